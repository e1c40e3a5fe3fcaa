-- name: job_insert_many
-- The only parameter is a JSON array of jobs, so that one statement serves every driver a caller may have.
SELECT * FROM holdfast.job_insert_v1(CAST($1 AS jsonb))

-- name: job_insert_alike
-- Many jobs that differ in ids, arguments and tenant only, to be run at once and without a unique key: what they share is read
-- once and not per row, and since nothing can conflict, nothing has to be asked or answered per row. The columns and the wake-up
-- are those of job_insert_many; its answer, without an id, is said of all of them.
WITH same AS (
    SELECT p.asked, r.*, coalesce(CAST(p.asked ->> CAST('now' AS text) AS timestamptz), statement_timestamp()) AS at
      FROM (SELECT CAST($1 AS jsonb)) AS p (asked), jsonb_to_record(p.asked -> CAST('same' AS text)) AS r (
           queue text, task text, max_attempts integer, lease_seconds double precision, priority integer, project text, actor text,
           order_key text, order_blocks boolean, timeout_seconds double precision, expected_seconds double precision,
           backoff double precision[], noun text, tags text[], meta jsonb, enqueued_by text, trace_context text, batch text,
           on_failed jsonb, announced integer)
), placed AS (
    INSERT INTO holdfast.jobs (
           id, run_id, queue, task, args, max_attempts, lease_seconds, priority, tenant, project, actor, run_at,
           order_key, order_blocks, timeout_seconds, expected_seconds, backoff, noun, tags, meta, enqueued_by,
           trace_context, batch, on_failed, created_at, updated_at, announced)
    SELECT CAST(each.id AS uuid), CAST(each.run_id AS uuid), s.queue, s.task, each.args, s.max_attempts, s.lease_seconds,
           coalesce(s.priority, 0), each.tenant, s.project, s.actor, s.at,
           s.order_key, coalesce(s.order_blocks, false), s.timeout_seconds, s.expected_seconds, s.backoff, s.noun, s.tags, s.meta,
           s.enqueued_by, s.trace_context, s.batch, s.on_failed, s.at, s.at, s.announced
      FROM same s, ROWS FROM (
           jsonb_array_elements_text(s.asked -> CAST('id' AS text)), jsonb_array_elements_text(s.asked -> CAST('run_id' AS text)),
           jsonb_array_elements(s.asked -> CAST('args' AS text)), jsonb_array_elements_text(s.asked -> CAST('tenant' AS text))) AS each (id, run_id, args, tenant)
), told AS (
    SELECT pg_notify('holdfast', 'job:' || s.queue) FROM same s
)
SELECT NULL AS id, NULL AS run_id, 'queued' AS state, NULL AS tenant, NULL AS unique_key, s.queue, coalesce(s.priority, 0) AS priority,
       (SELECT count(*) FROM told)
  FROM same s

-- name: job_inserted
SELECT CAST(id AS text), CAST(run_id AS text), state, tenant, unique_key, queue, priority FROM holdfast.jobs WHERE id = ANY ($1::uuid[])

-- name: job_forget
-- Takes back what a refused enqueue_many has just written in the caller's transaction.
DELETE FROM holdfast.jobs WHERE id = ANY (ARRAY(SELECT CAST(value AS uuid) FROM jsonb_array_elements_text(CAST($1 AS jsonb)))) RETURNING CAST(id AS text)

-- name: job_claim
SELECT * FROM holdfast.job_claim_v3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: lease_extend
SELECT id, run_id, cancel_requested, cancel_requested_by, extended FROM holdfast.lease_extend_v2($1, $2, $3, $4)

-- name: lease_list
SELECT id::text, run_id::text, lease_seconds FROM holdfast.jobs WHERE state = 'running' AND locked_by = $1

-- name: job_complete
SELECT holdfast.job_complete_v2($1, $2, $3, $4)

-- name: run_states
-- Without a lock: another session's lock must not hold this up.
SELECT j.run_id, j.state FROM unnest($1::uuid[], $2::uuid[]) AS asked (id, run_id)
  JOIN holdfast.jobs j ON j.id = asked.id AND j.run_id = asked.run_id

-- name: job_complete_one
-- For the caller's own connection: one JSON parameter, one row if the lease still held.
SELECT * FROM holdfast.job_complete_one_v1(CAST($1 AS jsonb))

-- name: job_leave
SELECT run_id, state FROM holdfast.job_leave_v2($1, $2)

-- name: job_cancel
-- A job's tenant never changes: it can be looked at first, without a lock.
SELECT CASE WHEN $4::text IS NULL OR EXISTS (SELECT 1 FROM holdfast.jobs WHERE id = $1 AND tenant = $4)
            THEN holdfast.job_cancel_v1($1, $2, $3) ELSE 'not_found' END

-- name: job_retry
SELECT CASE WHEN $4::text IS NULL OR EXISTS (SELECT 1 FROM holdfast.jobs WHERE id = $1 AND tenant = $4)
            THEN holdfast.job_retry_v1($1, $2, $3) ELSE 'not_found' END

-- name: job_reap
SELECT id::text, queue, task, tenant, attempt, state, reason, locked_by, stage FROM holdfast.job_reap_v2($1, $2, $3, $4, $5, $6)

-- name: order_heal
SELECT holdfast.order_heal_v1()

-- name: progress_set
-- A run that completes its job in a transaction of its own may have said something just before.
UPDATE holdfast.jobs SET progress = coalesce($3, progress), stage = coalesce($4, stage), updated_at = coalesce($5, clock_timestamp())
 WHERE ctid = (SELECT ctid FROM holdfast.jobs WHERE id = $1 AND run_id = $2 AND state IN ('running', 'completed')
                  FOR NO KEY UPDATE SKIP LOCKED)
RETURNING true

-- name: job_prune
-- Ids carry the time they were made, so the primary key finds old rows without an index of their own.
-- Runs and steps go by their foreign keys; logs have none, because every line would pay for it: log_prune_of_jobs goes first.
DELETE FROM holdfast.jobs j
 WHERE id = ANY (ARRAY(
    SELECT id FROM holdfast.jobs
     WHERE id < $1 AND ((state IN ('completed', 'cancelled') AND finished_at < $2) OR (state = 'failed' AND finished_at < $3))
     ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED))
   AND NOT EXISTS (SELECT 1 FROM holdfast.logs l WHERE l.run_id = j.run_id)
   AND NOT EXISTS (SELECT 1 FROM holdfast.runs r WHERE r.job_id = j.id
                      AND EXISTS (SELECT 1 FROM holdfast.logs l WHERE l.run_id = r.run_id))

-- name: job_get
SELECT id::text, queue, task, state, run_id::text, attempt, max_attempts, run_no, priority, tenant, project, actor, args::text, hold,
       run_at, unique_key, order_key, locked_by, machine_id, lease_expires_at, last_heartbeat_at, deadline,
       expected_seconds AS expected_duration, stage, progress, cancel_requested_at, cancel_requested_by, error_code,
       error_message, result::text AS output, tags, meta::text, enqueued_by, trace_context, batch, created_at, started_at, finished_at,
       updated_at
  FROM holdfast.jobs WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)

-- name: job_unserved
SELECT queue, task, n FROM holdfast.job_unserved_v1($1, $2, $3, $4)

-- name: job_demand
SELECT queue, tenant, task, waiting, oldest, oldest_id::text, room, queue_room FROM holdfast.job_demand_v1($1, $2, $3, $4)
