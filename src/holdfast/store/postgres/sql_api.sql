-- What may be called from SQL: by pg_cron, by RPC, from a trigger. The same code as Holdfast itself runs, not a second version.
-- Executable by the owner, and by service_role where there is one; by nobody else.

-- One recovery pass; a row per job that was rescued.
CREATE OR REPLACE FUNCTION holdfast.reap(
    max_jobs integer DEFAULT 500, backoff_base double precision DEFAULT 5, backoff_max double precision DEFAULT 900,
    deadline_grace double precision DEFAULT 30, now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, queue text, task text, tenant text, attempt integer, state text, reason text, locked_by text, stage text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM holdfast.job_reap_v2(max_jobs, backoff_base, backoff_max, deadline_grace, '{}', now)
$$;

-- A job in the caller's transaction; its id, or that of the active job with the same unique key. Whatever a task's decorator says
-- (queue, timeout, backoff, …) is known to Python alone, so say it here where it matters.
CREATE OR REPLACE FUNCTION holdfast.enqueue(
    task text, args jsonb DEFAULT '{}', queue text DEFAULT 'default', tenant text DEFAULT NULL, project text DEFAULT NULL,
    priority integer DEFAULT 0, delay double precision DEFAULT NULL, run_at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL,
    order_key text DEFAULT NULL, max_attempts integer DEFAULT 3, timeout_seconds double precision DEFAULT 14400,
    lease_seconds double precision DEFAULT 300, tags text[] DEFAULT NULL, enqueued_by text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    v_id     uuid := holdfast.new_job_id(clock_timestamp());
    v_answer uuid;
BEGIN
    IF coalesce(task, '') = '' OR coalesce(queue, '') = '' THEN
        RAISE EXCEPTION 'A job needs a task and a queue' USING ERRCODE = 'invalid_parameter_value';
    ELSIF jsonb_typeof(args) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'args must be a JSON object of the task''s arguments' USING ERRCODE = 'invalid_parameter_value';
    ELSIF pg_column_size(args) > 1048576 THEN
        RAISE EXCEPTION 'args take more than 1 MiB; store the data and pass its key' USING ERRCODE = 'invalid_parameter_value';
    ELSIF max_attempts < 1 OR lease_seconds <= 0 OR timeout_seconds <= 0 THEN
        RAISE EXCEPTION 'max_attempts, lease_seconds and timeout_seconds must be positive' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT i.id::uuid INTO v_answer FROM holdfast.job_insert_json(jsonb_build_array(jsonb_build_object(
        'id', v_id, 'run_id', gen_random_uuid(), 'queue', queue, 'task', task, 'args', args, 'max_attempts', max_attempts,
        'lease_seconds', lease_seconds, 'priority', priority, 'tenant', tenant, 'project', project, 'delay', delay, 'run_at', run_at,
        'unique_key', unique_key, 'order_key', order_key, 'timeout_seconds', timeout_seconds, 'tags', to_jsonb(tags),
        'enqueued_by', coalesce(enqueued_by, session_user)))) AS i;
    RETURN v_answer;
END $$;

-- Ids sort by time, as those that Python makes: 48 bits of milliseconds, then chance (UUID version 7).
CREATE OR REPLACE FUNCTION holdfast.new_job_id(p_at timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(set_byte(overlay(uuid_send(gen_random_uuid())
                                   PLACING substring(int8send((extract(epoch FROM p_at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
                           6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 'hex')::uuid
$$;

-- 'cancelled', 'cancelling' (a running one was asked to stop), or why not: 'not_found', 'completed', …
CREATE OR REPLACE FUNCTION holdfast.cancel(job_id uuid, by text DEFAULT NULL) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT holdfast.job_cancel_v1(job_id, coalesce(by, session_user), NULL)
$$;

REVOKE ALL ON FUNCTION holdfast.reap, holdfast.enqueue, holdfast.cancel, holdfast.job_insert_json, holdfast.new_job_id FROM PUBLIC;
DO $$
BEGIN
    IF to_regrole('service_role') IS NOT NULL THEN
        GRANT EXECUTE ON FUNCTION holdfast.reap, holdfast.enqueue, holdfast.cancel, holdfast.job_insert_json, holdfast.new_job_id TO service_role;
    END IF;
END $$;
