-- The moves that need more than one statement, each one round trip and one transaction.
-- Applied by every `holdfast migrate`. A function whose meaning changes gets a new name (_v2): workers of the previous
-- release keep calling the old one until a later release drops it.
--
-- Plans: these functions pin what the planner may do. Its statistics are of some other moment: a table analyzed while no job ran
-- is taken to have no running rows, and a batch of 1,000 completions then compares each with each (measured: 140 ms instead of
-- 8); one analyzed while the queue was short would be sorted instead of read in the order of its index.
--
-- Times: p_now is null in production, then the database's clock decides; tests pass their own.

CREATE OR REPLACE FUNCTION holdfast.order_lock_id(p_tenant text, p_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(coalesce(p_tenant, '') || chr(31) || p_key, 7110)
$$;

CREATE OR REPLACE FUNCTION holdfast.noun_of(p_noun text, p_task text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(p_noun, upper(left(p_task, 1)) || replace(substr(p_task, 2), '_', ' '))
$$;

-- Let the next job of each of these ordering keys go, now that the one before it has ended.
-- The locks come in ascending order, so that two finishers never wait for each other in a circle, and before the look
-- at the row: a claimer that is just about to park that job holds the same lock, and we must see what it wrote.
CREATE OR REPLACE FUNCTION holdfast.order_release_v1(p_tenants text[], p_keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lane      record;
    v_next    uuid;
    v_timeout text := current_setting('lock_timeout');
BEGIN
    PERFORM pg_advisory_xact_lock(lock_id)
       FROM (SELECT DISTINCT holdfast.order_lock_id(t, k) AS lock_id FROM unnest(p_tenants, p_keys) AS u (t, k) ORDER BY 1) AS locks;
    FOR lane IN SELECT DISTINCT coalesce(t, '') AS tenant, k AS key FROM unnest(p_tenants, p_keys) AS u (t, k) LOOP
        SELECT j.id INTO v_next FROM holdfast.jobs j
         WHERE coalesce(j.tenant, '') = lane.tenant AND j.order_key = lane.key AND j.state = 'queued' AND j.hold = 'order'
         ORDER BY j.seq LIMIT 1;
        UPDATE holdfast.jobs SET hold = NULL
         WHERE id = (SELECT j.id FROM holdfast.jobs j
                      WHERE j.id = v_next AND j.state = 'queued' AND j.hold = 'order' FOR UPDATE SKIP LOCKED);
        IF v_next IS NOT NULL AND NOT FOUND THEN
            -- Its row is locked: by somebody who cancels it, or by a claim that saw it before it was parked and locked it in
            -- passing. To skip it would strand the key. Both end soon and neither waits for our lock; whoever else holds it
            -- (a caller's long transaction) must not hold us up, and order_heal comes back to it.
            BEGIN
                PERFORM set_config('lock_timeout', '500ms', true);
                UPDATE holdfast.jobs SET hold = NULL
                 WHERE id = (SELECT j.id FROM holdfast.jobs j
                              WHERE coalesce(j.tenant, '') = lane.tenant AND j.order_key = lane.key
                                AND j.state = 'queued' AND j.hold = 'order'
                              ORDER BY j.seq LIMIT 1 FOR UPDATE);
                PERFORM set_config('lock_timeout', v_timeout, true);
            EXCEPTION WHEN lock_not_available THEN
                NULL;
            END;
        END IF;
        -- Also for one that was never parked: a claim that met our lock has left it alone, and nobody else would tell.
        PERFORM pg_notify('holdfast', 'job:' || head.queue)
           FROM (SELECT j.queue FROM holdfast.jobs j
                  WHERE coalesce(j.tenant, '') = lane.tenant AND j.order_key = lane.key AND j.state = 'queued' AND j.hold IS NULL
                  ORDER BY j.seq LIMIT 1) AS head;
    END LOOP;
END $$;

-- Parked jobs whose predecessor is gone without having let them go (a cancel that was rolled back, rows deleted by hand).
CREATE OR REPLACE FUNCTION holdfast.order_heal_v1() RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    healed integer;
BEGIN
    UPDATE holdfast.jobs SET hold = NULL
     WHERE id = ANY (ARRAY(
        SELECT head.id
          FROM (SELECT DISTINCT ON (coalesce(tenant, ''), order_key) id, coalesce(tenant, '') AS tenant, order_key, state, hold
                  FROM holdfast.jobs
                 WHERE order_key IS NOT NULL AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks))
                 ORDER BY coalesce(tenant, ''), order_key, seq) AS head
         WHERE head.state = 'queued' AND head.hold = 'order'
           AND NOT EXISTS (SELECT 1 FROM holdfast.jobs o
                            WHERE coalesce(o.tenant, '') = head.tenant AND o.order_key = head.order_key
                              AND o.state = 'running' AND (o.state IN ('queued', 'running') OR (o.state = 'failed' AND o.order_blocks)))))
       AND state = 'queued' AND hold = 'order';
    GET DIAGNOSTICS healed = ROW_COUNT;
    IF healed > 0 THEN
        PERFORM pg_notify('holdfast', '');
    END IF;
    RETURN healed;
END $$;

-- Step 2 of a job's life. Never waits for anybody: locked rows are skipped, order locks only tried.
-- A claim that found less than was asked for ends with a row without id, whose last column says in how many seconds the
-- next scheduled job falls due.
CREATE OR REPLACE FUNCTION holdfast.job_claim_v1(
    p_worker text, p_machine text, p_queues text[], p_tasks text[], p_limit integer, p_now timestamptz)
RETURNS TABLE (id uuid, run_id uuid, run_no integer, task text, args text, attempt integer, max_attempts integer, queue text,
               tenant text, order_key text, lease_seconds double precision, timeout_seconds double precision, seconds double precision)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_left    integer     := p_limit;
    v_parked  integer     := 0;
    v_busy    boolean     := false;
    v_round   integer;
    v_taken   integer;
    v_queue   text;
    v_rows    tid[];
    v_ordered uuid[];
    v_id      uuid;
    v_verdict record;
BEGIN
    -- `ctid = ANY (ARRAY(…))`: a join or IN would become a hash join over the whole table under a generic plan.
    UPDATE holdfast.jobs SET hold = NULL
     WHERE ctid = ANY (ARRAY(SELECT j.ctid FROM holdfast.jobs j
                              WHERE j.state = 'queued' AND j.hold = 'time' AND j.run_at <= v_now
                              ORDER BY j.run_at LIMIT 1000 FOR UPDATE SKIP LOCKED));

    FOREACH v_queue IN ARRAY p_queues LOOP
        LOOP
            EXIT WHEN v_left <= 0;
            SELECT array_agg(c.row) FILTER (WHERE c.order_key IS NULL), array_agg(c.id) FILTER (WHERE c.order_key IS NOT NULL)
              INTO v_rows, v_ordered
              FROM (SELECT j.ctid AS row, j.id, j.order_key FROM holdfast.jobs j
                     WHERE j.queue = v_queue AND j.state = 'queued' AND j.hold IS NULL AND j.task = ANY (p_tasks)
                     ORDER BY j.priority DESC, j.run_at, j.seq LIMIT v_left FOR UPDATE SKIP LOCKED) AS c;
            v_round := 0;
            FOREACH v_id IN ARRAY coalesce(v_ordered, '{}') LOOP
                -- Busy lock: somebody is just deciding about this key. The look is a statement of its own after the lock,
                -- because a snapshot taken before it would miss what the last holder wrote.
                IF NOT (SELECT pg_try_advisory_xact_lock(holdfast.order_lock_id(j.tenant, j.order_key))
                          FROM holdfast.jobs j WHERE j.id = v_id) THEN
                    v_busy := true;
                    CONTINUE;
                END IF;
                SELECT j.ctid AS row, EXISTS (
                           SELECT 1 FROM holdfast.jobs o
                            WHERE coalesce(o.tenant, '') = coalesce(j.tenant, '') AND o.order_key = j.order_key AND o.id <> j.id
                              AND (o.state IN ('queued', 'running') OR (o.state = 'failed' AND o.order_blocks))
                              AND (o.seq < j.seq OR o.state = 'running')) AS behind
                  INTO v_verdict FROM holdfast.jobs j WHERE j.id = v_id;
                IF v_verdict.behind THEN
                    UPDATE holdfast.jobs SET hold = 'order' WHERE id = v_id;
                    v_round := v_round + 1;
                ELSE
                    v_rows := v_rows || v_verdict.row;
                END IF;
            END LOOP;
            IF v_rows IS NOT NULL THEN
                RETURN QUERY
                WITH taken AS (
                    UPDATE holdfast.jobs j
                       SET state = 'running', attempt = j.attempt + 1, run_no = j.run_no + 1,
                           started_at = v_now, last_heartbeat_at = v_now, updated_at = v_now,
                           lease_expires_at = v_now + make_interval(secs => j.lease_seconds),
                           deadline = v_now + make_interval(secs => j.timeout_seconds),
                           locked_by = p_worker, machine_id = p_machine, stage = NULL, progress = NULL,
                           error_code = NULL, error_message = NULL
                     WHERE j.ctid = ANY (v_rows)
                    RETURNING j.*)
                SELECT t.id, t.run_id, t.run_no, t.task, t.args::text, t.attempt, t.max_attempts, t.queue, t.tenant, t.order_key,
                       t.lease_seconds, t.timeout_seconds, extract(epoch FROM v_now - t.run_at)::double precision
                  FROM taken t ORDER BY t.priority DESC, t.run_at, t.seq;
                GET DIAGNOSTICS v_taken = ROW_COUNT;
                v_left := v_left - v_taken;
            END IF;
            -- Only jobs that were just parked are worth another look at the same queue, and not without end.
            v_parked := v_parked + v_round;
            EXIT WHEN v_round = 0 OR v_parked >= 1000;
        END LOOP;
    END LOOP;

    IF v_left > 0 THEN
        RETURN QUERY SELECT NULL::uuid, NULL::uuid, 0, ''::text, ''::text, 0, 0, ''::text, NULL::text, NULL::text, 0::double precision,
            NULL::double precision,
            -- Whoever held a busy lock need not tell anybody about the job that we left alone.
            least(CASE WHEN v_parked >= 1000 THEN 0 WHEN v_busy THEN 0.05 END,
                  (SELECT greatest(0, extract(epoch FROM j.run_at - v_now)) FROM holdfast.jobs j
                    WHERE j.state = 'queued' AND j.hold = 'time' ORDER BY j.run_at LIMIT 1))::double precision;
    END IF;
END $$;

-- Heartbeats. The rows are locked in the order of their ids, like a batch of completions: otherwise the two could deadlock.
CREATE OR REPLACE FUNCTION holdfast.lease_extend_v1(p_ids uuid[], p_run_ids uuid[], p_leases double precision[], p_now timestamptz)
RETURNS TABLE (id uuid, run_id uuid, cancel_requested boolean, cancel_requested_by text)
LANGUAGE sql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    WITH held AS (
        SELECT j.id, b.lease
          FROM unnest(p_ids, p_run_ids, p_leases) AS b (id, run_id, lease)
          JOIN holdfast.jobs j ON j.id = b.id AND j.run_id = b.run_id AND j.state = 'running'
         ORDER BY j.id FOR NO KEY UPDATE OF j
    )
    UPDATE holdfast.jobs j
       SET lease_expires_at = coalesce(p_now, clock_timestamp()) + make_interval(secs => held.lease),
           last_heartbeat_at = coalesce(p_now, clock_timestamp())
      FROM held WHERE j.id = held.id
    RETURNING j.id, j.run_id, j.cancel_requested_at IS NOT NULL, j.cancel_requested_by
$$;

-- Step 4, the good end. Answers the run ids that still held their lease.
CREATE OR REPLACE FUNCTION holdfast.job_complete_v1(p_ids uuid[], p_run_ids uuid[], p_results text[], p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_done    uuid[];
    v_tenants text[];
    v_keys    text[];
BEGIN
    WITH done AS (
        UPDATE holdfast.jobs j
           SET state = 'completed', result = f.result::jsonb, finished_at = v_now, updated_at = v_now,
               lease_expires_at = NULL, deadline = NULL, error_code = NULL, error_message = NULL
          FROM unnest(p_ids, p_run_ids, p_results) AS f (id, run_id, result)
         WHERE j.id = f.id AND j.run_id = f.run_id AND j.state = 'running'
        RETURNING j.run_id, j.tenant, j.order_key)
    SELECT coalesce(array_agg(d.run_id), '{}'),
           array_agg(d.tenant) FILTER (WHERE d.order_key IS NOT NULL), array_agg(d.order_key) FILTER (WHERE d.order_key IS NOT NULL)
      INTO v_done, v_tenants, v_keys FROM done d;
    IF v_keys IS NOT NULL THEN
        PERFORM holdfast.order_release_v1(v_tenants, v_keys);
    END IF;
    RETURN v_done;
END $$;

-- Step 4, every other end of a run. A requested cancel turns each of them into `cancelled`.
CREATE OR REPLACE FUNCTION holdfast.job_leave_v1(p_departures jsonb, p_now timestamptz) RETURNS TABLE (run_id uuid, state text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_job record;
BEGIN
    FOR v_job IN
        SELECT j.*, a.how, a.delay, a.error_code AS new_code, a.error_message AS new_message, a.stage AS new_stage,
               CASE WHEN j.cancel_requested_at IS NOT NULL OR a.how = 'cancel' THEN 'cancelled'
                    WHEN a.how = 'fail' THEN 'failed' ELSE 'queued' END AS target,
               CASE WHEN a.how IN ('snooze', 'release') OR NOT coalesce(a.keep_attempt, true) THEN 1 ELSE 0 END AS refund
          FROM jsonb_to_recordset(p_departures) AS a (id uuid, run_id uuid, how text, delay double precision,
               error_code text, error_message text, stage text, keep_attempt boolean)
          JOIN holdfast.jobs j ON j.id = a.id AND j.run_id = a.run_id AND j.state = 'running'
         ORDER BY j.id FOR UPDATE OF j
    LOOP
        IF v_job.target = 'queued' THEN
            INSERT INTO holdfast.runs
            VALUES (v_job.id, v_job.run_no, v_job.run_id, v_job.attempt,
                    CASE v_job.how WHEN 'snooze' THEN 'snoozed' WHEN 'release' THEN 'released' ELSE 'failed' END,
                    v_job.locked_by, v_job.machine_id, coalesce(v_job.new_stage, v_job.stage), v_job.new_code, v_job.new_message,
                    v_job.started_at, v_now);
            UPDATE holdfast.jobs j
               SET state = 'queued', run_id = gen_random_uuid(), run_at = v_now + make_interval(secs => coalesce(v_job.delay, 0)),
                   hold = CASE WHEN v_job.delay > 0 THEN 'time' END, attempt = j.attempt - v_job.refund,
                   error_code = v_job.new_code, error_message = v_job.new_message, stage = coalesce(v_job.new_stage, j.stage),
                   locked_by = NULL, machine_id = NULL, lease_expires_at = NULL, last_heartbeat_at = NULL, deadline = NULL,
                   updated_at = v_now
             WHERE j.id = v_job.id;
            PERFORM pg_notify('holdfast', 'job:' || v_job.queue);
            -- Its turn may belong to an older job of its key now: one that was replayed while this one ran.
            IF v_job.order_key IS NOT NULL THEN
                PERFORM holdfast.order_release_v1(ARRAY[v_job.tenant], ARRAY[v_job.order_key]);
            END IF;
        ELSE
            UPDATE holdfast.jobs j
               SET state = v_job.target, finished_at = v_now, updated_at = v_now, lease_expires_at = NULL, deadline = NULL,
                   attempt = j.attempt - CASE WHEN v_job.target = 'failed' THEN v_job.refund ELSE 0 END,
                   error_code = v_job.new_code, error_message = v_job.new_message, stage = coalesce(v_job.new_stage, j.stage)
             WHERE j.id = v_job.id;
            IF v_job.order_key IS NOT NULL AND NOT (v_job.target = 'failed' AND v_job.order_blocks) THEN
                PERFORM holdfast.order_release_v1(ARRAY[v_job.tenant], ARRAY[v_job.order_key]);
            END IF;
        END IF;
        INSERT INTO holdfast.events (job_id, tenant, type, actor, data, at)
        VALUES (v_job.id, v_job.tenant,
                CASE WHEN v_job.target = 'cancelled' THEN 'job.cancelled' WHEN v_job.target = 'failed' THEN 'job.failed'
                     WHEN v_job.how = 'snooze' THEN 'job.snoozed' WHEN v_job.how = 'release' THEN 'job.released'
                     ELSE 'job.retrying' END,
                CASE WHEN v_job.target = 'cancelled' THEN v_job.cancel_requested_by END,
                jsonb_strip_nulls(jsonb_build_object('run_no', v_job.run_no, 'attempt', v_job.attempt, 'error_code', v_job.new_code,
                    'error_message', v_job.new_message, 'delay', CASE WHEN v_job.target = 'queued' THEN v_job.delay END)),
                v_now);
        run_id := v_job.run_id;
        state := v_job.target;
        RETURN NEXT;
    END LOOP;
END $$;

-- Step 5: runs whose worker has gone silent, or that should have ended long ago. Any number of reapers at once.
CREATE OR REPLACE FUNCTION holdfast.job_reap_v1(
    p_limit integer, p_base double precision, p_most double precision, p_grace double precision, p_now timestamptz)
RETURNS TABLE (id uuid, queue text, task text, tenant text, attempt integer, state text, reason text, locked_by text, stage text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_job    record;
    v_delay  double precision;
    v_noun   text;
    v_level  text;
    v_line   text;
BEGIN
    FOR v_job IN
        SELECT j.*,
               CASE WHEN j.lease_expires_at < v_now THEN 'lease_expired' ELSE 'deadline_exceeded' END AS why,
               CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN j.attempt < j.max_attempts THEN 'queued'
                    ELSE 'failed' END AS target
          FROM holdfast.jobs j
         WHERE j.state = 'running' AND j.locked_by IS NOT NULL
           AND (j.lease_expires_at < v_now OR j.deadline < v_now - make_interval(secs => p_grace))
         LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        v_noun := holdfast.noun_of(v_job.noun, v_job.task);
        IF v_job.target = 'queued' THEN
            v_delay := CASE WHEN cardinality(v_job.backoff) > 0 THEN v_job.backoff[least(v_job.attempt, cardinality(v_job.backoff))]
                            ELSE random() * least(p_most, p_base * power(2, least(v_job.attempt - 1, 60))) END;
            v_level := 'warning';
            v_line := format('%s attempt %s failed (machine unresponsive) - automatically retrying...', v_noun, v_job.attempt);
            INSERT INTO holdfast.runs
            VALUES (v_job.id, v_job.run_no, v_job.run_id, v_job.attempt, 'lost', v_job.locked_by, v_job.machine_id, v_job.stage,
                    v_job.why, 'the worker stopped answering', v_job.started_at, v_now);
            UPDATE holdfast.jobs j
               SET state = 'queued', run_id = gen_random_uuid(), run_at = v_now + make_interval(secs => v_delay),
                   hold = CASE WHEN v_delay > 0 THEN 'time' END, error_code = v_job.why,
                   error_message = 'the worker stopped answering', locked_by = NULL, machine_id = NULL, lease_expires_at = NULL,
                   last_heartbeat_at = NULL, deadline = NULL, updated_at = v_now
             WHERE j.id = v_job.id;
            PERFORM pg_notify('holdfast', 'job:' || v_job.queue);
            IF v_job.order_key IS NOT NULL THEN
                PERFORM holdfast.order_release_v1(ARRAY[v_job.tenant], ARRAY[v_job.order_key]);
            END IF;
        ELSE
            IF v_job.target = 'failed' THEN
                v_level := 'error';
                v_line := format('%s failed after %s attempts - machine crashed or timed out. '
                                 'Retry the job once the cause is mended.', v_noun, v_job.attempt);
            ELSE
                v_level := 'warning';
                v_line := format('Cancelled by %s; its worker did not answer', coalesce(v_job.cancel_requested_by, 'somebody'));
            END IF;
            UPDATE holdfast.jobs j
               SET state = v_job.target, finished_at = v_now, updated_at = v_now, lease_expires_at = NULL, deadline = NULL,
                   error_code = CASE WHEN v_job.target = 'failed' THEN v_job.why END,
                   error_message = CASE WHEN v_job.target = 'failed'
                       THEN format('%s failed after %s attempts (machine crash or timeout)', v_noun, v_job.attempt) END
             WHERE j.id = v_job.id;
            IF v_job.order_key IS NOT NULL AND NOT (v_job.target = 'failed' AND v_job.order_blocks) THEN
                PERFORM holdfast.order_release_v1(ARRAY[v_job.tenant], ARRAY[v_job.order_key]);
            END IF;
        END IF;
        INSERT INTO holdfast.events (job_id, tenant, type, actor, data, at)
        VALUES (v_job.id, v_job.tenant,
                CASE v_job.target WHEN 'queued' THEN 'reaper:requeued' WHEN 'failed' THEN 'reaper:failed(timeout)'
                                  ELSE 'reaper:cancelled' END,
                'reaper', jsonb_build_object('reason', v_job.why, 'locked_by', v_job.locked_by, 'attempt', v_job.attempt,
                                             'run_no', v_job.run_no), v_now);
        INSERT INTO holdfast.logs (run_id, no, job_id, tenant, project, level, message, created_at)
        SELECT v_job.run_id, coalesce(max(l.no), 0) + 1, v_job.id, v_job.tenant, v_job.project, v_level, v_line, v_now
          FROM holdfast.logs l WHERE l.run_id = v_job.run_id;
        id := v_job.id; queue := v_job.queue; task := v_job.task; tenant := v_job.tenant; attempt := v_job.attempt;
        state := v_job.target; reason := v_job.why; locked_by := v_job.locked_by; stage := v_job.stage;
        RETURN NEXT;
    END LOOP;
END $$;

-- What became of a cancel: `cancelled`, `cancelling`, `not_found`, or why not (`already_…`).
CREATE OR REPLACE FUNCTION holdfast.job_cancel_v1(p_id uuid, p_by text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_job record;
BEGIN
    SELECT * INTO v_job FROM holdfast.jobs j WHERE j.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF v_job.state NOT IN ('queued', 'running') THEN
        RETURN 'already_' || v_job.state;
    ELSIF v_job.cancel_requested_at IS NOT NULL THEN
        RETURN 'already_cancelling';
    END IF;
    UPDATE holdfast.jobs j
       SET cancel_requested_at = v_now, cancel_requested_by = p_by, updated_at = v_now,
           state = CASE v_job.state WHEN 'queued' THEN 'cancelled' ELSE j.state END,
           hold = NULL, finished_at = CASE v_job.state WHEN 'queued' THEN v_now END
     WHERE j.id = p_id;
    INSERT INTO holdfast.events (job_id, tenant, type, actor, at)
    VALUES (p_id, v_job.tenant, CASE v_job.state WHEN 'queued' THEN 'job.cancelled' ELSE 'job.cancel_requested' END, p_by, v_now);
    IF v_job.state = 'running' THEN
        PERFORM pg_notify('holdfast', 'cancel:' || p_id);
        RETURN 'cancelling';
    END IF;
    -- One that was parked had somebody before it, who lets the next go; to wait here for the key's lock could be to wait
    -- for somebody who waits for this very row.
    IF v_job.order_key IS NOT NULL AND v_job.hold IS DISTINCT FROM 'order' THEN
        PERFORM holdfast.order_release_v1(ARRAY[v_job.tenant], ARRAY[v_job.order_key]);
    END IF;
    RETURN 'cancelled';
END $$;

-- What became of a manual retry: `queued`, `not_found`, or why not.
CREATE OR REPLACE FUNCTION holdfast.job_retry_v1(p_id uuid, p_by text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_job record;
BEGIN
    SELECT * INTO v_job FROM holdfast.jobs j WHERE j.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF v_job.state IN ('queued', 'running') THEN
        RETURN 'job_' || v_job.state;
    ELSIF v_job.state = 'completed' THEN
        RETURN 'already_completed';
    END IF;
    UPDATE holdfast.jobs j
       SET state = 'queued', hold = NULL, run_at = v_now, attempt = 0, run_id = gen_random_uuid(), updated_at = v_now,
           finished_at = NULL, started_at = NULL, locked_by = NULL, machine_id = NULL, last_heartbeat_at = NULL, stage = NULL,
           progress = NULL, error_code = NULL, error_message = NULL, result = NULL,
           cancel_requested_at = NULL, cancel_requested_by = NULL
     WHERE j.id = p_id;
    IF v_job.run_no > 0 THEN
        -- A job that was cancelled while it waited for its next attempt has that run in the history already.
        INSERT INTO holdfast.runs
        VALUES (v_job.id, v_job.run_no, v_job.run_id, v_job.attempt, v_job.state, v_job.locked_by, v_job.machine_id, v_job.stage,
                v_job.error_code, v_job.error_message, v_job.started_at, v_job.finished_at)
        ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO holdfast.events (job_id, tenant, type, actor, at) VALUES (p_id, v_job.tenant, 'job.retried', p_by, v_now);
    PERFORM pg_notify('holdfast', 'job:' || v_job.queue);
    RETURN 'queued';
EXCEPTION WHEN unique_violation THEN
    RETURN 'duplicate_active';
END $$;
