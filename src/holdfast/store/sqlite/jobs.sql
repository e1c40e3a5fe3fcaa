-- name: job_insert_many
-- For any connection, hence one parameter and the host's clock inside it. An older active job with the same unique key
-- is returned in place of the new one; so is a job that an earlier try of the same call has already inserted.
INSERT INTO holdfast_jobs (
    id, run_id, queue, task, args, max_attempts, lease_seconds, priority, tenant, project, actor, run_at, hold,
    unique_key, order_key, order_blocks, timeout_seconds, expected_seconds, backoff, noun, tags, meta, enqueued_by,
    trace_context, batch, on_failed, created_at, updated_at,
    announced
)
SELECT
    value ->> '$.id', value ->> '$.run_id', value ->> '$.queue', value ->> '$.task',
    value -> '$.args',  -- `->` and not `->>`: this stays JSON text, also for a bare string or number
    value ->> '$.max_attempts', value ->> '$.lease_seconds', value ->> '$.priority',
    value ->> '$.tenant', value ->> '$.project', value ->> '$.actor',
    value ->> '$.run_at', CASE WHEN value ->> '$.run_at' > value ->> '$.now' THEN 'time' END,
    value ->> '$.unique_key', value ->> '$.order_key', value ->> '$.order_blocks',
    value ->> '$.timeout_seconds', value ->> '$.expected_seconds', value ->> '$.backoff', value ->> '$.noun',
    value ->> '$.tags', value ->> '$.meta', value ->> '$.enqueued_by', value ->> '$.trace_context',
    value ->> '$.batch', value ->> '$.on_failed', value ->> '$.now', value ->> '$.now',
    value ->> '$.announced'
FROM json_each($1)
WHERE true
ON CONFLICT (id) DO UPDATE SET id = excluded.id
ON CONFLICT (coalesce(tenant, ''), unique_key) WHERE unique_key IS NOT NULL AND state IN ('queued', 'running')
    DO UPDATE SET unique_key = excluded.unique_key
RETURNING id, run_id, state, tenant, unique_key, queue, priority;

-- name: job_forget
-- Takes back what a refused enqueue_many has just written in the caller's transaction.
DELETE FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each($1)) RETURNING id;

-- name: job_claimable_exists
-- What an idle worker asks: no write lock, no row of history.
SELECT
    EXISTS (
        SELECT 1 FROM holdfast_jobs
        WHERE state = 'queued' AND hold IS NULL
          AND queue IN (SELECT value FROM json_each(:queues)) AND task IN (SELECT value FROM json_each(:tasks))
    ) AS claimable,
    (SELECT min(run_at) FROM holdfast_jobs WHERE state = 'queued' AND hold = 'time') AS due_at;

-- name: job_lift_due
UPDATE holdfast_jobs SET hold = NULL, updated_at = :now
WHERE seq IN (
    SELECT seq FROM holdfast_jobs WHERE state = 'queued' AND hold = 'time' AND run_at <= :now ORDER BY run_at LIMIT :limit
);

-- name: job_candidates
-- The front of one tenant in one queue. Of an ordering key only the oldest is free, and only while none of the key runs.
SELECT seq, coalesce(tenant, '') AS tenant, order_key,
    order_key IS NULL OR (
        NOT EXISTS (
            SELECT 1 FROM holdfast_jobs AS other
            WHERE coalesce(other.tenant, '') = coalesce(job.tenant, '') AND other.order_key = job.order_key
              AND other.state = 'running')
        AND NOT EXISTS (
            SELECT 1 FROM holdfast_jobs AS other
            WHERE coalesce(other.tenant, '') = coalesce(job.tenant, '') AND other.order_key = job.order_key
              AND (other.state IN ('queued', 'running') OR (other.state = 'failed' AND other.order_blocks))
              AND other.seq < job.seq)
    ) AS free
FROM holdfast_jobs AS job
WHERE queue = :queue AND coalesce(tenant, '') = :lane AND state = 'queued' AND hold IS NULL
  AND task IN (SELECT value FROM json_each(:tasks))
ORDER BY priority DESC, run_at, seq
LIMIT :limit;

-- name: job_claim
UPDATE holdfast_jobs SET
    state = 'running', attempt = attempt + 1, run_no = run_no + 1, started_at = :now, locked_by = :worker,
    machine_id = :machine, lease_expires_at = :now + lease_seconds, last_heartbeat_at = :now,
    deadline = :now + timeout_seconds, stage = NULL, progress = NULL, error_code = NULL, error_message = NULL,
    updated_at = :now
WHERE seq IN (SELECT value FROM json_each(:seqs)) AND state = 'queued'
-- The casts: a REAL column that holds a whole number comes out of RETURNING as an integer.
RETURNING seq, id, run_id, run_no, task, args, attempt, max_attempts, queue, tenant, order_key,
    CAST(lease_seconds AS REAL), CAST(timeout_seconds AS REAL), :now - run_at, trace_context;

-- name: job_park
-- All of one ordering key at once, so that each waiting job is parked once and not met by every claim. Its head stays
-- where it is, unless one of the key runs: a parked head would have nobody to let it go.
UPDATE holdfast_jobs SET hold = 'order', updated_at = :now
WHERE state = 'queued' AND hold IS NULL
  AND seq IN (
    SELECT member.seq FROM holdfast_jobs AS member
    WHERE coalesce(member.tenant, '') = :tenant AND member.order_key = :order_key
      AND (member.state IN ('queued', 'running') OR (member.state = 'failed' AND member.order_blocks)))
  AND (
    EXISTS (
        SELECT 1 FROM holdfast_jobs AS other
        WHERE coalesce(other.tenant, '') = :tenant AND other.order_key = :order_key AND other.state = 'running')
    OR seq > (
        SELECT head.seq FROM holdfast_jobs AS head
        WHERE coalesce(head.tenant, '') = :tenant AND head.order_key = :order_key
          AND (head.state IN ('queued', 'running') OR (head.state = 'failed' AND head.order_blocks))
        ORDER BY head.seq LIMIT 1));

-- name: order_heal
-- Heads that nobody let go. The triggers leave none behind; rows that were changed by hand, with triggers off, might.
UPDATE holdfast_jobs SET hold = NULL, updated_at = :now
WHERE state = 'queued' AND hold = 'order' AND seq IN (
    SELECT min(seq) FROM holdfast_jobs
    WHERE order_key IS NOT NULL AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks))
    GROUP BY coalesce(tenant, ''), order_key
    HAVING NOT max(state = 'running'))
RETURNING queue;

-- name: order_head
SELECT queue, state, hold FROM holdfast_jobs
WHERE coalesce(tenant, '') = :tenant AND order_key = :order_key
  AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks))
ORDER BY seq LIMIT 1;

-- name: lease_extend
UPDATE holdfast_jobs SET lease_expires_at = :now + (beat.value ->> '$.lease_seconds'), last_heartbeat_at = :now
FROM json_each(:beats) AS beat
WHERE holdfast_jobs.id = beat.value ->> '$.id' AND run_id = beat.value ->> '$.run_id' AND state = 'running'
RETURNING id, run_id, cancel_requested_at IS NOT NULL AS cancel_requested, cancel_requested_by;

-- name: run_states
SELECT job.run_id, job.state FROM json_each(:runs) AS asked
JOIN holdfast_jobs AS job ON job.id = asked.value ->> 0 AND job.run_id = asked.value ->> 1;

-- name: lease_list
SELECT id, run_id, lease_seconds FROM holdfast_jobs WHERE state = 'running' AND locked_by = :worker;

-- name: job_complete
UPDATE holdfast_jobs SET
    state = 'completed', result = done.value ->> '$.result', error_code = NULL, error_message = NULL,
    lease_expires_at = NULL, deadline = NULL, finished_at = :now, updated_at = :now
FROM json_each(:completions) AS done
WHERE holdfast_jobs.id = done.value ->> '$.id' AND run_id = done.value ->> '$.run_id' AND state = 'running'
RETURNING run_id, tenant, order_key;

-- name: job_complete_one
-- For any connection, hence one parameter and the host's clock inside it.
UPDATE holdfast_jobs SET
    state = 'completed', result = done.value ->> '$.result', error_code = NULL, error_message = NULL,
    lease_expires_at = NULL, deadline = NULL, finished_at = done.value ->> '$.now', updated_at = done.value ->> '$.now'
FROM json_each($1) AS done
WHERE holdfast_jobs.id = done.value ->> '$.id' AND run_id = done.value ->> '$.run_id' AND state = 'running'
RETURNING id;

-- name: job_leased
-- Everything needed to take a job out of `running`, but not its arguments.
SELECT id, run_id, queue, task, tenant, project, order_key, noun, backoff, attempt, max_attempts, run_no, stage, locked_by,
    cancel_requested_at, cancel_requested_by, on_failed
FROM holdfast_jobs WHERE id = :id AND run_id = :run_id AND state = 'running';

-- name: job_reapable
SELECT id, run_id, queue, task, tenant, project, order_key, noun, backoff, attempt, max_attempts, run_no, stage, locked_by,
    cancel_requested_at, cancel_requested_by, on_failed,
    CASE WHEN locked_by IN (SELECT value FROM json_each(:dead)) THEN 'worker_died'
        WHEN lease_expires_at < :now THEN 'lease_expired' ELSE 'deadline_exceeded' END AS reason,
    EXISTS (SELECT 1 FROM holdfast_runs AS run WHERE run.job_id = holdfast_jobs.id AND run.outcome = 'lost') AS lost_before
FROM holdfast_jobs
WHERE state = 'running'
  AND (lease_expires_at < :now OR deadline < :now - :deadline_grace OR locked_by IN (SELECT value FROM json_each(:dead)))
LIMIT :limit;

-- name: job_requeue
UPDATE holdfast_jobs SET
    state = 'queued', run_id = :new_run_id, attempt = :attempt, run_at = :now + :delay,
    hold = CASE WHEN :delay > 0 THEN 'time' END, stage = coalesce(:stage, stage), error_code = :error_code,
    error_message = :error_message, locked_by = NULL, machine_id = NULL, lease_expires_at = NULL,
    last_heartbeat_at = NULL, deadline = NULL, updated_at = :now
WHERE id = :id AND run_id = :run_id AND state = 'running';

-- name: job_end
-- To `failed` or `cancelled`. Who held it stays to be seen.
UPDATE holdfast_jobs SET
    state = :state, attempt = :attempt, stage = coalesce(:stage, stage), error_code = :error_code,
    error_message = :error_message, lease_expires_at = NULL, deadline = NULL, finished_at = :now, updated_at = :now
WHERE id = :id AND run_id = :run_id AND state = 'running';

-- name: job_cancel_queued
UPDATE holdfast_jobs SET
    state = 'cancelled', hold = NULL, cancel_requested_at = :now, cancel_requested_by = :by, finished_at = :now,
    updated_at = :now
WHERE id = :id AND state = 'queued';

-- name: job_request_cancel
UPDATE holdfast_jobs SET cancel_requested_at = :now, cancel_requested_by = :by, updated_at = :now
WHERE id = :id AND state = 'running' AND cancel_requested_at IS NULL;

-- name: job_active_with_unique_key
SELECT id FROM holdfast_jobs
WHERE coalesce(tenant, '') = :tenant AND unique_key = :unique_key AND state IN ('queued', 'running');

-- name: job_replay
UPDATE holdfast_jobs SET
    state = 'queued', run_id = :new_run_id, attempt = 0, run_at = :now, hold = NULL, stage = NULL, progress = NULL,
    error_code = NULL, error_message = NULL, result = NULL, locked_by = NULL, machine_id = NULL, lease_expires_at = NULL,
    last_heartbeat_at = NULL, deadline = NULL, cancel_requested_at = NULL, cancel_requested_by = NULL, started_at = NULL,
    finished_at = NULL, updated_at = :now
WHERE id = :id AND state IN ('failed', 'cancelled');

-- name: progress_set
-- A run that completes its job in a transaction of its own may have said something just before.
UPDATE holdfast_jobs SET progress = coalesce(:progress, progress), stage = coalesce(:stage, stage), updated_at = :now
WHERE id = :id AND run_id = :run_id AND state IN ('running', 'completed')
RETURNING id;

-- name: job_get
SELECT * FROM holdfast_jobs WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant);

-- name: job_list
-- The state is put in by name and with its index: without that the few running jobs are looked for in all of history.
SELECT * FROM holdfast_jobs WHERE true /* state */
  AND id < coalesce(:cursor, '~')  -- every id sorts before that
  AND id >= coalesce(:since, '')
  AND (:queue IS NULL OR queue = :queue)
  AND (:task IS NULL OR task = :task)
  AND (:tenant IS NULL OR tenant = :tenant)
  AND (:project IS NULL OR project = :project)
  AND (:after IS NULL OR created_at >= :after)
  AND (:before IS NULL OR created_at < :before)
  AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(holdfast_jobs.tags) WHERE value = :tag))
ORDER BY id DESC
LIMIT :limit;

-- name: queue_list_waiting
-- Hops from queue to queue, one index probe each, however long they are.
WITH RECURSIVE hop (queue) AS (
    SELECT min(queue) FROM holdfast_jobs WHERE state = 'queued' AND hold IS NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_jobs WHERE state = 'queued' AND hold IS NULL AND queue > hop.queue)
    FROM hop WHERE hop.queue IS NOT NULL
)
SELECT queue FROM hop WHERE queue IS NOT NULL;

-- name: job_unserved
-- Grouped before workers are asked: a look at them for each of thousands of jobs would be the most expensive part.
SELECT queue, task, n FROM (
    SELECT queue, task, count(*) AS n FROM (
        SELECT queue, task, run_at FROM holdfast_jobs WHERE state = 'queued' AND hold IS NULL AND queue = :queue LIMIT :scan)
    WHERE run_at < :now - :older_than GROUP BY queue, task)
WHERE NOT EXISTS (
    SELECT 1 FROM holdfast_workers AS worker
    WHERE worker.last_seen_at >= :now - :alive_seconds AND NOT worker.draining
      AND EXISTS (SELECT 1 FROM json_each(worker.queues) AS q WHERE q.value = queue)
      AND EXISTS (SELECT 1 FROM json_each(worker.tasks) AS t WHERE t.value = task));

-- name: job_unserved_due
-- Jobs that have fallen due while no worker was there to lift their hold.
SELECT queue, task, n FROM (
    SELECT queue, task, count(*) AS n FROM (
        SELECT queue, task FROM holdfast_jobs
        WHERE state = 'queued' AND hold = 'time' AND run_at < :now - :older_than LIMIT :scan)
    GROUP BY queue, task)
WHERE NOT EXISTS (
    SELECT 1 FROM holdfast_workers AS worker
    WHERE worker.last_seen_at >= :now - :alive_seconds AND NOT worker.draining
      AND EXISTS (SELECT 1 FROM json_each(worker.queues) AS q WHERE q.value = queue)
      AND EXISTS (SELECT 1 FROM json_each(worker.tasks) AS t WHERE t.value = task));

-- name: job_prunable
SELECT * FROM (SELECT id, run_id FROM holdfast_jobs
    WHERE state = 'completed' AND state IN ('completed', 'cancelled') AND finished_at < :finished_before LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT id, run_id FROM holdfast_jobs
    WHERE state = 'cancelled' AND state IN ('completed', 'cancelled') AND finished_at < :finished_before LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT id, run_id FROM holdfast_jobs WHERE state = 'failed' AND finished_at < :failed_before LIMIT :limit)
LIMIT :limit;

-- name: job_without_lines
SELECT job.id FROM holdfast_jobs AS job
WHERE job.id IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM holdfast_logs AS line WHERE line.run_id = job.run_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast_runs AS run JOIN holdfast_logs AS line ON line.run_id = run.run_id
                  WHERE run.job_id = job.id);

-- name: job_delete
DELETE FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: demand_lane
-- The id is that of the oldest: beside min() a bare column is of the row that has it.
SELECT :queue AS queue, :lane AS tenant, task, count(*) FILTER (WHERE order_key IS NULL) + count(DISTINCT order_key) AS waiting,
    :now - min(run_at) AS oldest, id
FROM (SELECT id, task, order_key, run_at FROM holdfast_jobs
      WHERE state = 'queued' AND hold IS NULL AND queue = :queue AND coalesce(tenant, '') = :lane
      ORDER BY priority DESC, run_at, seq LIMIT :cap)
GROUP BY task;

-- name: demand_due
-- Fallen due while nobody was there to lift their hold.
SELECT queue, lane AS tenant, task, count(*) FILTER (WHERE order_key IS NULL) + count(DISTINCT order_key) AS waiting,
    :now - min(run_at) AS oldest, id
FROM (SELECT id, queue, coalesce(tenant, '') AS lane, task, order_key, run_at FROM holdfast_jobs
      WHERE state = 'queued' AND hold = 'time' AND run_at <= :now ORDER BY run_at LIMIT :cap)
GROUP BY queue, lane, task;
