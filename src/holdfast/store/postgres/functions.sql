-- The moves that need more than one statement, each one round trip and one transaction.
-- Applied by every `holdfast migrate`. A function whose meaning changes gets a new name (_v2): workers of the previous
-- release keep calling the old one until a later release drops it.
--
-- Plans: these functions pin what the planner may do. Its statistics are of some other moment: a table analyzed while no job ran
-- is taken to have no running rows, and a batch of 1,000 completions then compares each with each (measured: 140 ms instead of
-- 8); one analyzed while the queue was short would be sorted instead of read in the order of its index.
--
-- Times: p_now is null in production, then the database's clock decides; tests pass their own.
--
-- Names: every function sets its search_path, or is parsed when it is made (RETURN). A role that may create objects in a schema of the
-- caller's path could otherwise have its own functions and operators called, as the caller, wherever their types match better.

CREATE OR REPLACE FUNCTION holdfast.order_lock_id(p_tenant text, p_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(coalesce(p_tenant, '') || chr(31) || p_key, 7110);

CREATE OR REPLACE FUNCTION holdfast.noun_of(p_noun text, p_task text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(p_noun, upper(left(p_task, 1)) || replace(substr(p_task, 2), '_', ' '));

-- Whether a log line has this text, already in small letters, in its message or in a value beside it.
CREATE OR REPLACE FUNCTION holdfast.log_says(p_message text, p_metadata jsonb, p_search text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
    RETURN position(p_search IN lower(p_message)) > 0
        OR EXISTS (SELECT 1 FROM jsonb_each_text(p_metadata) AS said WHERE position(p_search IN lower(said.value)) > 0);

-- Step 1 of a job's life, for any connection: p_jobs is a JSON array. An older active job with the same unique key is answered in
-- place of the new one, and is not locked: its heartbeats and its end do not wait for the caller's transaction.
-- A run_at that has passed means now: waits are counted from it, and the oldest goes first.
CREATE OR REPLACE FUNCTION holdfast.job_insert_v1(p_jobs jsonb)
RETURNS TABLE (id text, run_id text, state text, tenant text, unique_key text, queue text, priority integer, told bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_placed integer;
    v_job    record;
BEGIN
    RETURN QUERY
    WITH asked AS (
        SELECT r.*, coalesce(r.now, statement_timestamp()) AS at
          FROM jsonb_to_recordset(p_jobs) AS r (
               id uuid, run_id uuid, queue text, task text, args jsonb, max_attempts integer, lease_seconds double precision,
               priority integer, tenant text, project text, actor text, delay double precision, run_at timestamptz,
               unique_key text, order_key text, order_blocks boolean, timeout_seconds double precision,
               expected_seconds double precision, backoff double precision[], noun text, tags text[], meta jsonb,
               enqueued_by text, trace_context text, batch text, on_failed jsonb, now timestamptz,
               announced integer)
    ), placed AS (
        INSERT INTO holdfast.jobs (
               id, run_id, queue, task, args, max_attempts, lease_seconds, priority, tenant, project, actor, run_at, hold,
               unique_key, order_key, order_blocks, timeout_seconds, expected_seconds, backoff, noun, tags, meta, enqueued_by,
               trace_context, batch, on_failed, created_at, updated_at,
               announced)
        SELECT a.id, a.run_id, a.queue, a.task, a.args, a.max_attempts, a.lease_seconds, coalesce(a.priority, 0), a.tenant,
               a.project, a.actor, greatest(a.at, coalesce(a.run_at, a.at + make_interval(secs => coalesce(a.delay, 0)))),
               CASE WHEN coalesce(a.run_at > a.at, a.delay > 0) THEN 'time' END,
               a.unique_key, a.order_key, coalesce(a.order_blocks, false), a.timeout_seconds, a.expected_seconds, a.backoff,
               a.noun, a.tags, a.meta, a.enqueued_by, a.trace_context, a.batch, a.on_failed, a.at, a.at,
               a.announced
          FROM asked a
        -- Not DO UPDATE: that would lock the row of the older job until the caller's transaction ends.
        ON CONFLICT (coalesce(tenant, ''), unique_key) WHERE unique_key IS NOT NULL AND state IN ('queued', 'running') DO NOTHING
        RETURNING id, run_id, state, tenant, unique_key, queue, priority
    ), told AS (
        -- For a handful of jobs the tenants are named, so that workers need not look at all of them.
        SELECT pg_notify('holdfast', 'job:' || w.queue || w.tenant)
          FROM (SELECT DISTINCT queue, CASE WHEN (SELECT count(*) FROM placed) <= 8 THEN chr(31) || coalesce(tenant, '') ELSE '' END AS tenant
                  FROM placed) AS w
    )
    SELECT CAST(p.id AS text), CAST(p.run_id AS text), p.state, p.tenant, p.unique_key, p.queue, p.priority, (SELECT count(*) FROM told)
      FROM placed p;
    GET DIAGNOSTICS v_placed = ROW_COUNT;
    IF v_placed = jsonb_array_length(p_jobs) THEN
        RETURN;
    END IF;
    -- Statements of their own: each sees what was committed before it, also by a transaction that the insert waited for.
    FOR v_job IN
        SELECT e.job, e.job ->> 'tenant' AS tenant, e.job ->> 'unique_key' AS unique_key FROM jsonb_array_elements(p_jobs) AS e (job)
         WHERE e.job ->> 'unique_key' IS NOT NULL
    LOOP
        RETURN QUERY
        SELECT j.id::text, j.run_id::text, j.state, j.tenant, j.unique_key, j.queue, j.priority, 0::bigint FROM holdfast.jobs j
         WHERE coalesce(j.tenant, '') = coalesce(v_job.tenant, '') AND j.unique_key = v_job.unique_key
           AND j.state IN ('queued', 'running');
        IF NOT FOUND THEN  -- it has ended since
            RETURN QUERY SELECT * FROM holdfast.job_insert_v1(jsonb_build_array(v_job.job));
        END IF;
    END LOOP;
END $$;

-- Let the next job of each of these ordering keys go, now that the one before it has ended.
-- The locks come in ascending order, so that two finishers never wait for each other in a circle, and before the look
-- at the row: a claimer that is just about to park that job holds the same lock, and we must see what it wrote.
CREATE OR REPLACE FUNCTION holdfast.order_release_v1(p_tenants text[], p_keys text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- The next distinct tenants with claimable work in a queue, in the order of their names, beginning after p_after (null: at
-- the beginning; jobs without a tenant are the tenant ''). One index probe each, however long their backlogs are.
-- p_first: taken as the first one without a look, where the caller knows a place further on in its lane.
CREATE OR REPLACE FUNCTION holdfast.lanes_after(p_queue text, p_after text, p_most integer, p_first text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_first text;
    v_lanes text[];
BEGIN
    -- Two statements: with `p_after IS NULL OR …` the index could not be entered at the right place.
    IF p_first IS NOT NULL THEN
        v_first := p_first;
    ELSIF p_after IS NULL THEN
        SELECT coalesce(j.tenant, '') INTO v_first FROM holdfast.jobs j
         WHERE j.queue = p_queue AND j.state = 'queued' AND j.hold IS NULL
         ORDER BY coalesce(j.tenant, '') LIMIT 1;
    ELSE
        SELECT coalesce(j.tenant, '') INTO v_first FROM holdfast.jobs j
         WHERE j.queue = p_queue AND j.state = 'queued' AND j.hold IS NULL AND coalesce(j.tenant, '') > p_after
         ORDER BY coalesce(j.tenant, '') LIMIT 1;
    END IF;
    IF v_first IS NULL OR p_most < 1 THEN
        RETURN '{}';
    END IF;
    WITH RECURSIVE hop (tenant, hops) AS (
        SELECT v_first, 1
        UNION ALL
        SELECT (SELECT coalesce(j.tenant, '') FROM holdfast.jobs j
                 WHERE j.queue = p_queue AND j.state = 'queued' AND j.hold IS NULL AND coalesce(j.tenant, '') > hop.tenant
                 ORDER BY coalesce(j.tenant, '') LIMIT 1), hop.hops + 1
          FROM hop WHERE hop.tenant IS NOT NULL AND hop.hops < p_most)
    SELECT array_agg(tenant ORDER BY hops) INTO v_lanes FROM hop WHERE tenant IS NOT NULL;
    RETURN v_lanes;
END $$;

-- How many more jobs each of these tenants may run now, and its weight. Room null: no limit; 0: full or paused; -1: somebody
-- else is serving it just now. Until the transaction ends nobody else can raise these tenants' counts, and finishing only
-- lowers them: that makes the limit exact. Two statements: the count must not use a snapshot older than the lock.
CREATE OR REPLACE FUNCTION holdfast.lanes_room(p_lanes text[], OUT rooms integer[], OUT weights integer[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_limits integer[];
BEGIN
    SELECT array_agg(CASE WHEN l.lane = '' THEN NULL
                          WHEN t.paused_at IS NOT NULL THEN 0
                          WHEN pg_try_advisory_xact_lock(7110, hashtext(l.lane)) THEN coalesce(t.max_running, p.max_running)
                          ELSE -1 END ORDER BY l.no),
           array_agg(coalesce(p.weight, 1) ORDER BY l.no)
      INTO v_limits, weights
      FROM unnest(p_lanes) WITH ORDINALITY AS l (lane, no)
      LEFT JOIN holdfast.tenants t ON t.id = l.lane
      LEFT JOIN holdfast.plans p ON p.name = coalesce(t.plan, 'free');
    SELECT array_agg(CASE WHEN l.most IS NULL OR l.most <= 0 THEN l.most
                          ELSE greatest(0, l.most - (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs j
                                 WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND coalesce(j.tenant, '') = l.lane LIMIT l.most) AS running)) END
                     ORDER BY l.no)
      INTO rooms
      FROM unnest(p_lanes, v_limits) WITH ORDINALITY AS l (lane, most, no);
END $$;

-- How many more jobs a queue may run now: p_most at the most; 0: full or paused; -1: somebody else is serving it just now.
CREATE OR REPLACE FUNCTION holdfast.queue_room(p_queue text, p_most integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_queue   record;
    v_running integer;
BEGIN
    SELECT q.max_running, q.paused_at INTO v_queue FROM holdfast.queues q WHERE q.name = p_queue;
    IF NOT FOUND OR (v_queue.paused_at IS NULL AND v_queue.max_running IS NULL) THEN
        RETURN p_most;
    ELSIF v_queue.paused_at IS NOT NULL THEN
        RETURN 0;
    ELSIF NOT pg_try_advisory_xact_lock(7111, hashtext(p_queue)) THEN
        RETURN -1;
    END IF;
    SELECT count(*) INTO v_running
      FROM (SELECT 1 FROM holdfast.jobs j WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND j.queue = p_queue LIMIT v_queue.max_running) AS running;
    RETURN least(p_most, greatest(0, v_queue.max_running - v_running));
END $$;

-- Of these jobs with ordering keys, the rows of those that may run now; the others are parked until the one before them ends.
CREATE OR REPLACE FUNCTION holdfast.order_heads(p_ids uuid[], OUT heads tid[], OUT parked integer, OUT busy boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id      uuid;
    v_verdict record;
BEGIN
    parked := 0;
    busy := false;
    FOREACH v_id IN ARRAY p_ids LOOP
        -- Busy lock: somebody is just deciding about this key, and need not tell anybody about the job that we leave alone.
        -- The look is a statement of its own after the lock: a snapshot taken before it would miss what the last holder wrote.
        IF NOT (SELECT pg_try_advisory_xact_lock(holdfast.order_lock_id(j.tenant, j.order_key))
                  FROM holdfast.jobs j WHERE j.id = v_id) THEN
            busy := true;
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
            parked := parked + 1;
        ELSE
            heads := heads || v_verdict.row;
        END IF;
    END LOOP;
END $$;

-- Step 2 of a job's life. Never waits for anybody: locked rows are skipped, advisory locks only tried.
--
-- Queue by queue in the order given; in a queue tenant by tenant, going round from the worker's cursor; of a tenant its most
-- urgent, then oldest jobs. p_hops bounds how many tenants one call looks at, so that thousands of tenants that are at their
-- limit cost no more than a few; p_hints are tenants worth a look besides (one of their jobs has just ended, or arrived).
--
-- Besides the jobs there is one row per queue looked at, without id: queue, task = the new cursor, run_no = 2 if the way round
-- was completed and 1 if it came past the last tenant, attempt = 1 if somebody else was in the way (plus 2 if tenants were at
-- their limit or paused), max_attempts = 1 if the queue's own limit or pause was in the way; and last, if there was room left, one row without id and queue, whose last column says in
-- how many seconds the next scheduled job falls due.
--
-- p_behind: per queue, the job without a tenant behind which to begin. While a transaction stays open anywhere, the index keeps
-- an entry for every job that was ever claimed meanwhile, and a claim that began at the front would walk over all of them. The
-- row of a queue says how long the look took (lease_seconds) and, if the claim was filled, behind which job to go on (run_id).
CREATE OR REPLACE FUNCTION holdfast.job_claim_v3(
    p_worker text, p_machine text, p_queues text[], p_tasks text[], p_limit integer, p_cursors text[], p_hops integer,
    p_hints text[], p_behind uuid[], p_now timestamptz)
RETURNS TABLE (id uuid, run_id uuid, run_no integer, task text, args text, attempt integer, max_attempts integer, queue text,
               tenant text, order_key text, lease_seconds double precision, timeout_seconds double precision, seconds double precision,
               trace_context text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_left    integer     := p_limit;
    v_parked  integer     := 0;
    v_lifted  boolean;
    v_queue   text;
    v_no      integer;
    v_room    integer;
    v_lanes   text[];
    v_way     integer;
    v_around  boolean;
    v_wrapped boolean;
    v_missed  boolean     := false;
    v_busy    boolean;
    v_held    boolean;
    v_full    boolean;
    v_open    record;
    v_share   integer;
    v_first   boolean;
    v_rows    tid[];
    v_ordered uuid[];
    v_served  integer;
    v_cursor  text;
    v_heads   tid[];
    v_behind  integer;
    v_taken   integer;
    v_begin   record;
    v_floored boolean;
    v_of_none uuid[];
    v_last    uuid;
    v_looked  timestamptz;
    v_seconds double precision;
BEGIN
    -- `ctid = ANY (ARRAY(…))`: a join or IN would become a hash join over the whole table under a generic plan.
    UPDATE holdfast.jobs SET hold = NULL
     WHERE ctid = ANY (ARRAY(SELECT j.ctid FROM holdfast.jobs j
                              WHERE j.state = 'queued' AND j.hold = 'time' AND j.run_at <= v_now
                              ORDER BY j.run_at LIMIT 1000 FOR UPDATE SKIP LOCKED));
    v_lifted := FOUND;
    IF v_lifted THEN
        p_hops := greatest(p_hops, 64);
    END IF;

    FOR v_no IN 1 .. cardinality(p_queues) LOOP
        EXIT WHEN v_left <= 0;
        v_queue := p_queues[v_no];
        v_cursor := p_cursors[v_no];
        v_around := true;
        v_wrapped := true;
        v_held := false;
        v_first := true;
        v_room := holdfast.queue_room(v_queue, v_left);
        v_busy := v_room < 0;
        v_full := v_room BETWEEN 0 AND v_left - 1;
        v_lanes := '{}';
        v_last := NULL;
        v_seconds := 0;
        v_looked := clock_timestamp();
        SELECT ~j.priority AS urgency, j.run_at, j.seq INTO v_begin FROM holdfast.jobs j WHERE j.id = p_behind[v_no];
        v_floored := FOUND AND NOT v_lifted;
        IF v_room > 0 THEN
            v_lanes := holdfast.lanes_after(v_queue, v_cursor, p_hops, CASE WHEN v_floored AND v_cursor IS NULL THEN '' END);
            v_wrapped := cardinality(v_lanes) < p_hops;
            IF v_cursor IS NOT NULL AND v_wrapped THEN
                v_lanes := v_lanes || ARRAY(
                    SELECT l.lane FROM unnest(holdfast.lanes_after(v_queue, NULL, p_hops - cardinality(v_lanes), CASE WHEN v_floored THEN '' END))
                           WITH ORDINALITY AS l (lane, no) WHERE l.lane <= v_cursor ORDER BY l.no);
            END IF;
            v_way := cardinality(v_lanes);
            v_around := v_way < p_hops;
            v_cursor := coalesce(v_lanes[v_way], v_cursor);
            v_lanes := v_lanes || ARRAY(SELECT h FROM unnest(p_hints) AS h WHERE h <> ALL (v_lanes));
        END IF;
        v_share := ceil(v_room::numeric / greatest(1, cardinality(v_lanes)));
        WHILE v_room > 0 AND cardinality(v_lanes) > 0 LOOP
            IF v_lanes = '{""}' THEN
                SELECT ARRAY[NULL::integer] AS rooms, ARRAY[1] AS weights INTO v_open;
            ELSE
                SELECT r.rooms, r.weights INTO v_open FROM holdfast.lanes_room(v_lanes) AS r;
            END IF;
            v_busy := v_busy OR coalesce(-1 = ANY (v_open.rooms), false);
            v_held := v_held OR coalesce(0 = ANY (v_open.rooms), false);
            SELECT array_agg(c.row) FILTER (WHERE c.order_key IS NULL), array_agg(c.id) FILTER (WHERE c.order_key IS NOT NULL),
                   max(c.no), array_agg(c.id) FILTER (WHERE c.lane = '')
              INTO v_rows, v_ordered, v_served, v_of_none
              FROM (SELECT j.row, j.id, j.order_key, l.no, l.lane
                      FROM unnest(v_lanes, v_open.rooms, v_open.weights) WITH ORDINALITY AS l (lane, room, weight, no)
                     CROSS JOIN LATERAL (
                           SELECT k.ctid AS row, k.id, k.order_key FROM holdfast.jobs k
                            WHERE k.queue = v_queue AND k.state = 'queued' AND k.hold IS NULL AND coalesce(k.tenant, '') = l.lane
                              AND (~k.priority, k.run_at, k.seq) >
                                  (CASE WHEN v_floored AND l.lane = '' THEN v_begin.urgency ELSE -2147483648 END,
                                   CASE WHEN v_floored AND l.lane = '' THEN v_begin.run_at ELSE '-infinity' END,
                                   CASE WHEN v_floored AND l.lane = '' THEN v_begin.seq ELSE 0 END)
                              AND k.task = ANY (p_tasks)
                            ORDER BY ~k.priority, k.run_at, k.seq
                            LIMIT greatest(0, least(coalesce(l.room, v_room), v_share * l.weight)) FOR UPDATE SKIP LOCKED) AS j
                     ORDER BY l.no LIMIT v_room) AS c;
            v_seconds := v_seconds + extract(epoch FROM clock_timestamp() - v_looked);
            v_last := coalesce(v_of_none[cardinality(v_of_none)], v_last);
            v_taken := 0;
            v_behind := 0;
            IF v_ordered IS NOT NULL THEN
                SELECT h.heads, h.parked, v_busy OR h.busy INTO v_heads, v_behind, v_busy FROM holdfast.order_heads(v_ordered) AS h;
                v_rows := v_rows || v_heads;
                v_parked := v_parked + v_behind;
            END IF;
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
                    RETURNING j.id, j.run_id, j.run_no, j.task, j.args::text AS args, j.attempt, j.max_attempts, j.queue, j.tenant,
                              j.order_key, j.lease_seconds, j.timeout_seconds, j.priority, j.run_at, j.seq, j.trace_context)
                SELECT t.id, t.run_id, t.run_no, t.task, t.args, t.attempt, t.max_attempts, t.queue, t.tenant, t.order_key,
                       t.lease_seconds, t.timeout_seconds, extract(epoch FROM v_now - t.run_at)::double precision, t.trace_context
                  FROM taken t ORDER BY t.priority DESC, t.run_at, t.seq;
                GET DIAGNOSTICS v_taken = ROW_COUNT;
                v_room := v_room - v_taken;
                v_left := v_left - v_taken;
                IF v_room <= 0 THEN
                    v_around := false;
                    v_wrapped := false;
                    -- The next claim goes on after the last tenant that got something; not so where all on the way have had
                    -- their share and this was what others left, or where hints were served, which lie anywhere.
                    IF v_first AND v_served <= v_way THEN
                        v_cursor := v_lanes[v_served];
                    END IF;
                END IF;
            END IF;
            -- Again with what is left: from the front if this began further on, for those behind a job that was just parked
            -- (not without end), and for tenants that have more work than their share, if others needed less than theirs.
            EXIT WHEN v_parked >= 1000 OR NOT (
                v_behind > 0 OR v_floored
                OR (v_taken > 0 AND EXISTS (SELECT 1 FROM unnest(v_open.rooms, v_open.weights) AS l (room, weight)
                                             WHERE coalesce(l.room, v_share * l.weight + 1) > v_share * l.weight
                                               AND v_share * l.weight < v_room + v_taken)));
            v_share := v_room;
            v_first := false;
            v_floored := false;
            v_looked := clock_timestamp();
        END LOOP;
        v_missed := v_missed OR NOT v_around;
        RETURN QUERY SELECT NULL::uuid, CASE WHEN v_room <= 0 THEN v_last END, v_wrapped::integer + v_around::integer, v_cursor,
            ''::text, v_busy::integer + 2 * v_held::integer, v_full::integer, v_queue, NULL::text, NULL::text,
            v_seconds, NULL::double precision, NULL::double precision, NULL::text;
    END LOOP;

    IF v_left > 0 THEN
        RETURN QUERY SELECT NULL::uuid, NULL::uuid, 0, NULL::text, ''::text, 0, 0, NULL::text, NULL::text, NULL::text,
            0::double precision, NULL::double precision,
            CASE WHEN v_parked >= 1000 OR (v_lifted AND v_missed) THEN 0
                 ELSE (SELECT greatest(0, extract(epoch FROM j.run_at - v_now)) FROM holdfast.jobs j
                        WHERE j.state = 'queued' AND j.hold = 'time' ORDER BY j.run_at LIMIT 1) END::double precision, NULL::text;
    END IF;
END $$;

-- Heartbeats. The rows are locked in the order of their ids, like a batch of completions: otherwise the two could deadlock.
CREATE OR REPLACE FUNCTION holdfast.lease_extend_v1(p_ids uuid[], p_run_ids uuid[], p_leases double precision[], p_now timestamptz)
RETURNS TABLE (id uuid, run_id uuid, cancel_requested boolean, cancel_requested_by text)
LANGUAGE sql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
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

-- Heartbeats that wait for no one. A row that another session has locked is skipped: a caller's long transaction must
-- not let the leases of the other runs expire. A skipped run still has its job (a reaper skips the row too):
-- it is answered with extended = false and asked about again.
CREATE OR REPLACE FUNCTION holdfast.lease_extend_v2(p_ids uuid[], p_run_ids uuid[], p_leases double precision[], p_now timestamptz)
RETURNS TABLE (id uuid, run_id uuid, cancel_requested boolean, cancel_requested_by text, extended boolean)
LANGUAGE sql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
    WITH held AS (
        SELECT j.id, b.lease
          FROM unnest(p_ids, p_run_ids, p_leases) AS b (id, run_id, lease)
          JOIN holdfast.jobs j ON j.id = b.id AND j.run_id = b.run_id AND j.state = 'running'
         ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
    ), extended AS (
        UPDATE holdfast.jobs j
           SET lease_expires_at = coalesce(p_now, clock_timestamp()) + make_interval(secs => held.lease),
               last_heartbeat_at = coalesce(p_now, clock_timestamp())
          FROM held WHERE j.id = held.id
        RETURNING j.id, j.run_id, j.cancel_requested_at, j.cancel_requested_by
    )
    SELECT e.id, e.run_id, e.cancel_requested_at IS NOT NULL, e.cancel_requested_by, true FROM extended e
     UNION ALL
    SELECT j.id, j.run_id, j.cancel_requested_at IS NOT NULL, j.cancel_requested_by, false
      FROM (SELECT b.id, b.run_id FROM unnest(p_ids, p_run_ids) AS b (id, run_id)
             WHERE NOT EXISTS (SELECT 1 FROM extended e WHERE e.run_id = b.run_id) OFFSET 0) AS skipped
      JOIN holdfast.jobs j ON j.id = skipped.id AND j.run_id = skipped.run_id AND j.state = 'running'
$$;

-- Step 4, the good end. Answers the run ids that still held their lease.
CREATE OR REPLACE FUNCTION holdfast.job_complete_v1(p_ids uuid[], p_run_ids uuid[], p_results text[], p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
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

-- The same for a worker's batch: rows that another session has locked are skipped, for the others must not wait. A run that is
-- missing from the answer has lost its lease, or has to be asked about again (`run_states` knows).
CREATE OR REPLACE FUNCTION holdfast.job_complete_v2(p_ids uuid[], p_run_ids uuid[], p_results text[], p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_done    uuid[];
    v_tenants text[];
    v_keys    text[];
BEGIN
    WITH held AS (
        SELECT j.ctid AS row, f.result
          FROM unnest(p_ids, p_run_ids, p_results) AS f (id, run_id, result)
          JOIN holdfast.jobs j ON j.id = f.id AND j.run_id = f.run_id AND j.state = 'running'
           FOR NO KEY UPDATE OF j SKIP LOCKED
    ), done AS (
        UPDATE holdfast.jobs j
           SET state = 'completed', result = held.result::jsonb, finished_at = v_now, updated_at = v_now,
               lease_expires_at = NULL, deadline = NULL, error_code = NULL, error_message = NULL
          FROM held WHERE j.ctid = held.row
        RETURNING j.run_id, j.tenant, j.order_key)
    SELECT coalesce(array_agg(d.run_id), '{}'),
           array_agg(d.tenant) FILTER (WHERE d.order_key IS NOT NULL), array_agg(d.order_key) FILTER (WHERE d.order_key IS NOT NULL)
      INTO v_done, v_tenants, v_keys FROM done d;
    IF v_keys IS NOT NULL THEN
        PERFORM holdfast.order_release_v1(v_tenants, v_keys);
    END IF;
    RETURN v_done;
END $$;

-- One completion in the caller's transaction: the run id if the lease still held. A transaction that looks at one snapshot does not see
-- which job of the ordering key was enqueued or parked since, and would strand it: then nothing is written, and the answer is the
-- level of the transaction.
CREATE OR REPLACE FUNCTION holdfast.job_complete_one_v1(p_completion jsonb) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id    uuid := (p_completion ->> 'id')::uuid;
    v_level text := current_setting('transaction_isolation');
BEGIN
    IF v_level IN ('repeatable read', 'serializable')
       AND EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.id = v_id AND j.order_key IS NOT NULL) THEN
        RETURN NEXT v_level;
    ELSE
        RETURN QUERY SELECT unnest(holdfast.job_complete_v1(
            ARRAY[v_id], ARRAY[(p_completion ->> 'run_id')::uuid], ARRAY[p_completion ->> 'result'], (p_completion ->> 'now')::timestamptz))::text;
    END IF;
END $$;

-- The job that a failure makes, in the transaction of that failure. It has no follow-up of its own: a failing hook must not call
-- itself.
CREATE OR REPLACE FUNCTION holdfast.job_follow_up_v1(p_id uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_queue text;
BEGIN
    INSERT INTO holdfast.jobs (
           id, run_id, queue, task, args, max_attempts, lease_seconds, priority, tenant, project, run_at, order_blocks,
           timeout_seconds, expected_seconds, backoff, noun, enqueued_by, created_at, updated_at)
    SELECT holdfast.new_job_id(p_now), gen_random_uuid(), h.queue, h.task,
           jsonb_build_object(h.argument, jsonb_build_object('job_id', j.id, 'task', j.task, 'queue', j.queue, 'tenant', j.tenant,
               'project', j.project, 'attempts', j.attempt, 'error_code', j.error_code, 'error_message', j.error_message)),
           h.max_attempts, h.lease_seconds, coalesce(h.priority, 0), j.tenant, j.project, p_now, coalesce(h.order_blocks, false),
           h.timeout_seconds, h.expected_seconds, h.backoff, h.noun, 'on_failed:' || j.id, p_now, p_now
      FROM holdfast.jobs j,
           jsonb_to_record(j.on_failed) AS h (queue text, task text, argument text, max_attempts integer,
               lease_seconds double precision, priority integer, order_blocks boolean, timeout_seconds double precision,
               expected_seconds double precision, backoff double precision[], noun text)
     WHERE j.id = p_id
    RETURNING queue INTO v_queue;
    PERFORM pg_notify('holdfast', 'job:' || v_queue);
END $$;

-- Step 4, every other end of a run. A requested cancel turns each of them into `cancelled`.
CREATE OR REPLACE FUNCTION holdfast.job_leave_v1(p_departures jsonb, p_now timestamptz) RETURNS TABLE (run_id uuid, state text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
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
            IF v_job.target = 'failed' AND v_job.on_failed IS NOT NULL THEN
                PERFORM holdfast.job_follow_up_v1(v_job.id, v_now);
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

-- The same, but rows that another session has locked are skipped: their runs are missing from the answer, as are those that have
-- lost their lease (`run_states` tells them apart).
CREATE OR REPLACE FUNCTION holdfast.job_leave_v2(p_departures jsonb, p_now timestamptz) RETURNS TABLE (run_id uuid, state text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_free jsonb;
BEGIN
    SELECT jsonb_agg(held.departure) INTO v_free FROM (
        SELECT a.departure
          FROM (SELECT d AS departure, (d ->> 'id')::uuid AS id, (d ->> 'run_id')::uuid AS run_id FROM jsonb_array_elements(p_departures) AS d) AS a
          JOIN holdfast.jobs j ON j.id = a.id AND j.run_id = a.run_id AND j.state = 'running'
         ORDER BY j.id FOR UPDATE OF j SKIP LOCKED) AS held;
    IF v_free IS NOT NULL THEN
        RETURN QUERY SELECT l.run_id, l.state FROM holdfast.job_leave_v1(v_free, p_now) AS l;
    END IF;
END $$;

-- Workers whose session has ended and that have missed a heartbeat, and in how many seconds each is taken for dead (not above 0: now):
-- once it has missed two, and has had time to report after an outage that no other worker noticed. That is one of up to 1.25
-- heartbeats, and a worker reports within a second after it. A worker whose own reports have had no longer gap must confirm a death: after
-- a longer outage, in which all went silent at once, each has one heartbeat to report first. Any role may hold such a lock: that
-- only delays a rescue until the lease ends. pg_locks is looked at only if some worker is late.
CREATE OR REPLACE FUNCTION holdfast.worker_silence_v1(p_now timestamptz) RETURNS TABLE (id text, seconds double precision)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_steady timestamptz;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.workers w
                    WHERE w.has_session AND w.last_seen_at < v_now - make_interval(secs => 1.1 * w.heartbeat)) THEN
        RETURN;
    END IF;
    SELECT min(w.steady_since) INTO v_steady FROM holdfast.workers w
     WHERE w.last_seen_at >= v_now - make_interval(secs => 1.25 * w.heartbeat);
    RETURN QUERY
    WITH open AS MATERIALIZED (
        SELECT l.classid::bigint << 32 | l.objid::bigint AS lock_id FROM pg_locks l
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
           AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    SELECT w.id, extract(epoch FROM greatest(w.last_seen_at + make_interval(secs => 2.25 * w.heartbeat + 2),
                                             v_steady + make_interval(secs => w.heartbeat)) - v_now)::double precision
      FROM holdfast.workers w
     WHERE w.has_session AND w.last_seen_at < v_now - make_interval(secs => 1.1 * w.heartbeat) AND v_steady IS NOT NULL
       AND NOT EXISTS (SELECT FROM open o WHERE o.lock_id = hashtextextended(w.id, 7114));
END $$;

-- Step 5: runs whose worker has gone silent, or that should have ended long ago. Any number of reapers at once.
-- While the server was down nobody could report: once it is up, a run has the length of its lease, at most 15 s, to do so.
-- At once those whose worker is dead: p_dead, which the caller knows of, and those whose session has ended.
CREATE OR REPLACE FUNCTION holdfast.job_reap_v2(
    p_limit integer, p_base double precision, p_most double precision, p_grace double precision, p_dead text[],
    p_now timestamptz)
RETURNS TABLE (id uuid, queue text, task text, tenant text, attempt integer, state text, reason text, locked_by text, stage text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_up     timestamptz := CASE WHEN p_now IS NULL THEN pg_postmaster_start_time() ELSE '-infinity' END;
    v_dead   text[] := p_dead || ARRAY(SELECT s.id FROM holdfast.worker_silence_v1(p_now) AS s WHERE s.seconds <= 0);
    v_gone   text[];
    v_job    record;
    v_delay  double precision;
    v_noun   text;
    v_level  text;
    v_line   text;
    v_what   text;
BEGIN
    -- Not those that are rescued here: a claim that was on its way when its worker died may have been too late for this pass.
    v_gone := ARRAY(SELECT w.id FROM holdfast.workers w WHERE w.id = ANY (v_dead)
                       AND NOT EXISTS (SELECT FROM holdfast.jobs j
                                        WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND j.locked_by = w.id));
    FOR v_job IN
        SELECT j.*,
               CASE WHEN j.locked_by = ANY (v_dead) THEN 'worker_died' WHEN j.lease_expires_at < v_now THEN 'lease_expired' ELSE 'deadline_exceeded' END AS why,
               CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN j.attempt < j.max_attempts THEN 'queued'
                    ELSE 'failed' END AS target
          FROM holdfast.jobs j
         WHERE j.state = 'running' AND j.locked_by IS NOT NULL
           AND (j.locked_by = ANY (v_dead)
                OR (j.lease_expires_at < v_now OR j.deadline < v_now - make_interval(secs => p_grace))
                   AND v_up + make_interval(secs => least(j.lease_seconds, 15)) < v_now)
         LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        v_noun := holdfast.noun_of(v_job.noun, v_job.task);
        IF v_job.target = 'queued' THEN
            -- What is known to have lost its worker for the first time need not wait; what loses one after another does.
            v_delay := CASE WHEN v_job.why = 'worker_died' AND NOT EXISTS (
                                     SELECT FROM holdfast.runs r WHERE r.job_id = v_job.id AND r.outcome = 'lost') THEN 0
                            WHEN cardinality(v_job.backoff) > 0 THEN v_job.backoff[least(v_job.attempt, cardinality(v_job.backoff))]
                            ELSE random() * least(p_most, p_base * power(2, least(v_job.attempt - 1, 60))) END;
            v_level := 'warning';
            v_what := CASE v_job.why WHEN 'worker_died' THEN 'its worker died' ELSE 'the worker stopped answering' END;
            v_line := format('%s attempt %s failed (%s) - automatically retrying...', v_noun, v_job.attempt,
                             CASE v_job.why WHEN 'worker_died' THEN 'worker died' ELSE 'machine unresponsive' END);
            INSERT INTO holdfast.runs
            VALUES (v_job.id, v_job.run_no, v_job.run_id, v_job.attempt, 'lost', v_job.locked_by, v_job.machine_id, v_job.stage,
                    v_job.why, v_what, v_job.started_at, v_now);
            UPDATE holdfast.jobs j
               SET state = 'queued', run_id = gen_random_uuid(), run_at = v_now + make_interval(secs => v_delay),
                   hold = CASE WHEN v_delay > 0 THEN 'time' END, error_code = v_job.why,
                   error_message = v_what, locked_by = NULL, machine_id = NULL, lease_expires_at = NULL,
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
                                 'Retry the job once the cause is fixed.', v_noun, v_job.attempt);
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
            -- Its place is free, and the worker that held it cannot take the next one.
            PERFORM pg_notify('holdfast', 'job:' || v_job.queue || chr(31) || coalesce(v_job.tenant, ''));
            IF v_job.order_key IS NOT NULL AND NOT (v_job.target = 'failed' AND v_job.order_blocks) THEN
                PERFORM holdfast.order_release_v1(ARRAY[v_job.tenant], ARRAY[v_job.order_key]);
            END IF;
            IF v_job.target = 'failed' AND v_job.on_failed IS NOT NULL THEN
                PERFORM holdfast.job_follow_up_v1(v_job.id, v_now);
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
        PERFORM pg_notify('holdfast_logs', 'log:' || v_job.run_id);
        id := v_job.id; queue := v_job.queue; task := v_job.task; tenant := v_job.tenant; attempt := v_job.attempt;
        state := v_job.target; reason := v_job.why; locked_by := v_job.locked_by; stage := v_job.stage;
        RETURN NEXT;
    END LOOP;
    DELETE FROM holdfast.workers w WHERE w.id = ANY (v_gone);
END $$;

-- For workers of the release before.
CREATE OR REPLACE FUNCTION holdfast.job_reap_v1(
    p_limit integer, p_base double precision, p_most double precision, p_grace double precision, p_now timestamptz)
RETURNS TABLE (id uuid, queue text, task text, tenant text, attempt integer, state text, reason text, locked_by text, stage text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM holdfast.job_reap_v2(p_limit, p_base, p_most, p_grace, '{}', p_now)
$$;

-- Lines of many runs in one round trip; answers the run ids that still hold their lease. The lines of a run are a JSON array of
-- [no, level, message, step, duration_ms, metadata, age]: their age in seconds, because a worker's clock may be off.
-- FOR SHARE: a reaper that takes a job away waits for its lines, or makes us find nothing; it then numbers its own after them.
-- The rows are locked in the order of their ids, like heartbeats and completions.
-- A job that this very run completed, in the caller's own transaction, still takes the lines that were on their way.
CREATE OR REPLACE FUNCTION holdfast.log_append_v1(p_ids uuid[], p_run_ids uuid[], p_lines text[], p_now timestamptz) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now   timestamptz := coalesce(p_now, statement_timestamp());
    v_run   record;
    v_taken uuid[] := '{}';
BEGIN
    FOR v_run IN
        SELECT j.id, j.run_id, j.tenant, j.project, said.lines
          FROM unnest(p_ids, p_run_ids, p_lines) AS said (id, run_id, lines)
          JOIN holdfast.jobs j ON j.id = said.id AND j.run_id = said.run_id AND j.state IN ('running', 'completed')
         ORDER BY j.id FOR SHARE OF j
    LOOP
        v_taken := v_taken || v_run.run_id;
        INSERT INTO holdfast.logs (run_id, no, job_id, tenant, project, level, message, step, duration_ms, metadata, created_at)
        SELECT v_run.run_id, (l ->> 0)::integer, v_run.id, v_run.tenant, v_run.project, l ->> 1, l ->> 2, l ->> 3,
               (l ->> 4)::double precision, nullif(l -> 5, 'null'), v_now - make_interval(secs => greatest(0, (l ->> 6)::double precision))
          FROM jsonb_array_elements(v_run.lines::jsonb) AS l
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM pg_notify('holdfast_logs', 'log:' || v_run.run_id);
        END IF;
    END LOOP;
    RETURN v_taken;
END $$;

-- The same, but rows that another session has locked are skipped, as in job_leave_v2.
-- FOR KEY SHARE keeps away a reaper and a departure, which take FOR UPDATE, but neither a heartbeat nor a completion, after which
-- lines are still taken.
CREATE OR REPLACE FUNCTION holdfast.log_append_v2(p_ids uuid[], p_run_ids uuid[], p_lines text[], p_now timestamptz) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now   timestamptz := coalesce(p_now, statement_timestamp());
    v_run   record;
    v_taken uuid[] := '{}';
BEGIN
    FOR v_run IN
        SELECT j.id, j.run_id, j.tenant, j.project, said.lines
          FROM unnest(p_ids, p_run_ids, p_lines) AS said (id, run_id, lines)
          JOIN holdfast.jobs j ON j.id = said.id AND j.run_id = said.run_id AND j.state IN ('running', 'completed')
         ORDER BY j.id FOR KEY SHARE OF j SKIP LOCKED
    LOOP
        v_taken := v_taken || v_run.run_id;
        INSERT INTO holdfast.logs (run_id, no, job_id, tenant, project, level, message, step, duration_ms, metadata, created_at)
        SELECT v_run.run_id, (l ->> 0)::integer, v_run.id, v_run.tenant, v_run.project, l ->> 1, l ->> 2, l ->> 3,
               (l ->> 4)::double precision, nullif(l -> 5, 'null'), v_now - make_interval(secs => greatest(0, (l ->> 6)::double precision))
          FROM jsonb_array_elements(v_run.lines::jsonb) AS l
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM pg_notify('holdfast_logs', 'log:' || v_run.run_id);
        END IF;
    END LOOP;
    RETURN v_taken;
END $$;

-- A step's result, once: the first writer wins, and every caller gets what is stored. Null: the lease is gone.
-- FOR SHARE: a reaper that takes the job away waits for us, or makes us find nothing.
CREATE OR REPLACE FUNCTION holdfast.step_save_v1(
    p_id uuid, p_run_id uuid, p_name text, p_fingerprint text, p_result jsonb, p_now timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_stored text;
BEGIN
    PERFORM 1 FROM holdfast.jobs j WHERE j.id = p_id AND j.run_id = p_run_id AND j.state = 'running' FOR SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO holdfast.steps (job_id, name, fingerprint, result, run_id, created_at)
    VALUES (p_id, p_name, p_fingerprint, p_result, p_run_id, coalesce(p_now, clock_timestamp()))
    ON CONFLICT (job_id, name, fingerprint) DO NOTHING;
    SELECT s.result::text INTO v_stored FROM holdfast.steps s
     WHERE s.job_id = p_id AND s.name = p_name AND s.fingerprint = p_fingerprint;
    RETURN v_stored;
END $$;

-- A page of a log, along its key. Pinned, because the planner knows only how long logs are on average: for the long one that
-- somebody reads it would fetch and sort all lines to find the first hundred.
CREATE OR REPLACE FUNCTION holdfast.log_read_v1(
    p_run_id uuid, p_after bigint, p_before bigint, p_levels text[], p_step text, p_search text, p_limit integer, p_newest boolean)
RETURNS SETOF holdfast.logs
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_before bigint := coalesce(p_before, 9223372036854775807);
    v_search text := lower(p_search);
BEGIN
    IF p_newest THEN
        RETURN QUERY
        SELECT l.* FROM holdfast.logs l
         WHERE l.run_id = p_run_id AND l.no > p_after AND l.no < v_before
           AND (p_levels IS NULL OR l.level = ANY (p_levels)) AND (p_step IS NULL OR l.step = p_step)
           AND (v_search IS NULL OR holdfast.log_says(l.message, l.metadata, v_search))
         ORDER BY l.no DESC LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT l.* FROM holdfast.logs l
         WHERE l.run_id = p_run_id AND l.no > p_after AND l.no < v_before
           AND (p_levels IS NULL OR l.level = ANY (p_levels)) AND (p_step IS NULL OR l.step = p_step)
           AND (v_search IS NULL OR holdfast.log_says(l.message, l.metadata, v_search))
         ORDER BY l.no LIMIT p_limit;
    END IF;
END $$;

-- Of each run the first lines after a number.
CREATE OR REPLACE FUNCTION holdfast.log_read_new_v1(p_run_ids uuid[], p_after bigint[], p_limit integer) RETURNS SETOF holdfast.logs
LANGUAGE sql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
    SELECT line.*
      FROM unnest(p_run_ids, p_after) AS asked (run_id, after),
           LATERAL (SELECT * FROM holdfast.logs l WHERE l.run_id = asked.run_id AND l.no > asked.after ORDER BY l.no LIMIT p_limit) AS line
     ORDER BY line.run_id, line.no
$$;

-- What became of a cancel: `cancelled`, `cancelling`, `not_found`, or why not (`already_…`).
CREATE OR REPLACE FUNCTION holdfast.job_cancel_v1(p_id uuid, p_by text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- Cancels those of these jobs that can still be cancelled; their ids. Rows first, then the locks of all ordering keys at once:
-- one cancel after the other in one transaction would take them in turns, and could wait for somebody who waits for us.
CREATE OR REPLACE FUNCTION holdfast.jobs_cancel_v1(p_ids uuid[], p_by text, p_now timestamptz) RETURNS SETOF uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_queued uuid[];
    v_running uuid[];
    v_tenants text[];
    v_keys text[];
BEGIN
    WITH locked AS (
        SELECT j.id, j.state, j.tenant, j.order_key, j.hold FROM holdfast.jobs j
         WHERE j.id = ANY (p_ids) AND j.state IN ('queued', 'running') AND j.cancel_requested_at IS NULL
         ORDER BY j.id FOR UPDATE)
    SELECT array_agg(l.id) FILTER (WHERE l.state = 'queued'), array_agg(l.id) FILTER (WHERE l.state = 'running'),
           array_agg(l.tenant) FILTER (WHERE l.state = 'queued' AND l.order_key IS NOT NULL AND l.hold IS DISTINCT FROM 'order'),
           array_agg(l.order_key) FILTER (WHERE l.state = 'queued' AND l.order_key IS NOT NULL AND l.hold IS DISTINCT FROM 'order')
      INTO v_queued, v_running, v_tenants, v_keys FROM locked l;
    UPDATE holdfast.jobs j
       SET cancel_requested_at = v_now, cancel_requested_by = p_by, updated_at = v_now, hold = NULL,
           state = CASE j.state WHEN 'queued' THEN 'cancelled' ELSE j.state END,
           finished_at = CASE j.state WHEN 'queued' THEN v_now END
     WHERE j.id = ANY (v_queued || v_running);
    INSERT INTO holdfast.events (job_id, tenant, type, actor, at)
    SELECT j.id, j.tenant, CASE j.state WHEN 'cancelled' THEN 'job.cancelled' ELSE 'job.cancel_requested' END, p_by, v_now
      FROM holdfast.jobs j WHERE j.id = ANY (v_queued || v_running);
    PERFORM pg_notify('holdfast', 'cancel:' || r.id) FROM unnest(v_running) AS r (id);
    IF v_keys IS NOT NULL THEN
        PERFORM holdfast.order_release_v1(v_tenants, v_keys);
    END IF;
    RETURN QUERY SELECT unnest(v_queued || v_running);
END $$;

-- What became of a manual retry: `queued`, `not_found`, or why not.
CREATE OR REPLACE FUNCTION holdfast.job_retry_v1(p_id uuid, p_by text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- What is in the queues, for people and alerts: bounded by p_cap rows per queue or per kind, whatever there is.
CREATE OR REPLACE FUNCTION holdfast.queue_stats_v2(p_tenant text, p_grace double precision, p_cap integer, p_look integer, p_now timestamptz)
RETURNS TABLE (kind text, queue text, n bigint, stuck bigint, slow bigint, oldest double precision)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_queue text;
BEGIN
    SELECT j.queue INTO v_queue FROM holdfast.jobs j WHERE j.state = 'queued' AND j.hold IS NULL ORDER BY j.queue LIMIT 1;
    FOR v_no IN 1 .. 200 LOOP
        EXIT WHEN v_queue IS NULL;
        IF p_tenant IS NULL THEN
            RETURN QUERY SELECT 'waiting', v_queue, count(*), 0::bigint, 0::bigint, extract(epoch FROM v_now - min(w.run_at))::double precision
              FROM (SELECT j.run_at FROM holdfast.jobs j WHERE j.state = 'queued' AND j.hold IS NULL AND j.queue = v_queue
                     LIMIT p_cap) AS w;
        ELSE
            RETURN QUERY SELECT 'waiting', v_queue, count(*), 0::bigint, 0::bigint, extract(epoch FROM v_now - min(w.run_at))::double precision
              FROM (SELECT j.run_at FROM holdfast.jobs j
                     WHERE j.state = 'queued' AND j.hold IS NULL AND j.queue = v_queue AND coalesce(j.tenant, '') = p_tenant
                     ORDER BY j.queue, coalesce(j.tenant, ''), (~j.priority), j.run_at, j.seq LIMIT p_cap) AS w;
        END IF;
        SELECT min(j.queue) INTO v_queue FROM holdfast.jobs j WHERE j.state = 'queued' AND j.hold IS NULL AND j.queue > v_queue;
    END LOOP;
    RETURN QUERY SELECT CASE WHEN s.run_at > v_now THEN 'scheduled' ELSE 'waiting' END, s.queue, count(*), 0::bigint, 0::bigint,
           extract(epoch FROM v_now - min(s.run_at))::double precision
      FROM (SELECT j.queue, j.run_at, j.tenant FROM holdfast.jobs j
             WHERE j.state = 'queued' AND j.hold = 'time' ORDER BY j.run_at LIMIT p_cap) AS s
     WHERE p_tenant IS NULL OR s.tenant = p_tenant GROUP BY 1, 2;
    RETURN QUERY SELECT 'ordered', o.queue, count(*), 0::bigint, 0::bigint, NULL::double precision
      FROM (SELECT j.queue, j.hold, j.state, j.tenant FROM holdfast.jobs j
             WHERE j.order_key IS NOT NULL AND (j.state IN ('queued', 'running') OR (j.state = 'failed' AND j.order_blocks))
             ORDER BY coalesce(j.tenant, ''), j.order_key, j.seq LIMIT p_cap) AS o
     WHERE o.hold = 'order' AND (p_tenant IS NULL OR o.tenant = p_tenant) GROUP BY 2;
    -- How many run is told by the index. Whether they have a lease is told by their rows, which lie scattered over the table.
    RETURN QUERY SELECT 'running', c.queue, c.n, coalesce(l.stuck, 0), coalesce(l.slow, 0), NULL::double precision
      FROM (SELECT r.queue, count(*) AS n
              FROM ((SELECT j.queue FROM holdfast.jobs j WHERE p_tenant IS NULL AND j.state = 'running' AND j.locked_by IS NOT NULL
                      ORDER BY coalesce(j.tenant, ''), j.queue, j.seq LIMIT p_cap)
                    UNION ALL
                    (SELECT j.queue FROM holdfast.jobs j
                      WHERE coalesce(j.tenant, '') = p_tenant AND j.state = 'running' AND j.locked_by IS NOT NULL
                      ORDER BY j.queue, j.seq LIMIT p_cap)) AS r
             WHERE p_tenant IS DISTINCT FROM '' GROUP BY 1) AS c
      LEFT JOIN (SELECT r.queue,
                        count(*) FILTER (WHERE r.lease_expires_at < v_now OR r.deadline < v_now - make_interval(secs => p_grace)) AS stuck,
                        count(*) FILTER (WHERE r.started_at < v_now - make_interval(secs => coalesce(r.expected_seconds, 300))) AS slow
                   FROM ((SELECT j.* FROM holdfast.jobs j WHERE p_tenant IS NULL AND j.state = 'running' AND j.locked_by IS NOT NULL
                           ORDER BY coalesce(j.tenant, ''), j.queue, j.seq LIMIT p_look)
                         UNION ALL
                         (SELECT j.* FROM holdfast.jobs j
                           WHERE coalesce(j.tenant, '') = p_tenant AND j.state = 'running' AND j.locked_by IS NOT NULL
                           ORDER BY j.queue, j.seq LIMIT p_look)) AS r GROUP BY 1) AS l ON l.queue = c.queue;
END $$;

-- For those who have not been replaced yet: looks at the rows of all that it counts.
CREATE OR REPLACE FUNCTION holdfast.queue_stats_v1(p_tenant text, p_grace double precision, p_cap integer, p_now timestamptz)
RETURNS TABLE (kind text, queue text, n bigint, stuck bigint, slow bigint, oldest double precision)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM holdfast.queue_stats_v2(p_tenant, p_grace, p_cap, p_cap, p_now) $$;

-- Of completed jobs there is no index, because every completion would pay for it: the oldest jobs are looked at instead.
CREATE OR REPLACE FUNCTION holdfast.job_counts_v1(p_tenant text, p_cap integer) RETURNS TABLE (state text, n bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF p_tenant IS NOT NULL THEN
        RETURN QUERY SELECT e.state, (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs k WHERE k.tenant = p_tenant AND k.state = e.state
                                                             ORDER BY k.id LIMIT p_cap) AS j)
                       FROM unnest(ARRAY['queued', 'running', 'completed', 'failed', 'cancelled']) AS e (state);
        RETURN;
    END IF;
    RETURN QUERY SELECT 'running', count(*)
      FROM (SELECT 1 FROM holdfast.jobs k WHERE k.state = 'running' AND k.locked_by IS NOT NULL
             ORDER BY coalesce(k.tenant, ''), k.queue, k.seq LIMIT p_cap) AS j;
    RETURN QUERY SELECT 'queued', least(p_cap,
        (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs k WHERE k.state = 'queued' AND k.hold IS NULL ORDER BY k.queue LIMIT p_cap) AS j)
        + (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs k WHERE k.state = 'queued' AND k.hold = 'time' ORDER BY k.run_at LIMIT p_cap) AS j)
        + (SELECT count(*) FROM (SELECT k.hold FROM holdfast.jobs k
                                  WHERE k.order_key IS NOT NULL AND (k.state IN ('queued', 'running') OR (k.state = 'failed' AND k.order_blocks))
                                  ORDER BY coalesce(k.tenant, ''), k.order_key, k.seq LIMIT p_cap) AS j WHERE j.hold = 'order'));
    RETURN QUERY SELECT 'completed', count(*) FROM (SELECT k.state FROM holdfast.jobs k ORDER BY k.id LIMIT p_cap) AS j WHERE j.state = 'completed';
    RETURN QUERY SELECT 'failed', count(*) FROM (SELECT 1 FROM holdfast.jobs k WHERE k.state = 'failed' LIMIT p_cap) AS j;
    RETURN QUERY SELECT 'cancelled', count(*) FROM (SELECT 1 FROM holdfast.jobs k WHERE k.state = 'cancelled' LIMIT p_cap) AS j;
END $$;

-- What has waited for p_older_than seconds and is known to no live worker. Grouped before workers are asked, queue by queue, so
-- that one long queue does not hide the others; of each as many jobs are looked at as its share of p_look.
CREATE OR REPLACE FUNCTION holdfast.job_unserved_v1(p_older_than double precision, p_limit integer, p_look integer, p_now timestamptz)
RETURNS TABLE (queue text, task text, n bigint)
LANGUAGE sql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE hop (queue) AS (
        (SELECT j.queue FROM holdfast.jobs j WHERE j.state = 'queued' AND j.hold IS NULL ORDER BY j.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT j.queue FROM holdfast.jobs j WHERE j.state = 'queued' AND j.hold IS NULL AND j.queue > hop.queue ORDER BY j.queue LIMIT 1)
          FROM hop WHERE hop.queue IS NOT NULL
    ), asked AS (
        SELECT coalesce(p_now, clock_timestamp()) AS now, greatest(100, p_look / (1 + (SELECT count(hop.queue) FROM hop))) AS share
    ), waiting AS (
        SELECT w.queue, w.task, count(*) AS n
          FROM hop CROSS JOIN asked CROSS JOIN LATERAL (
                SELECT j.queue, j.task, j.run_at FROM holdfast.jobs j
                 WHERE j.state = 'queued' AND j.hold IS NULL AND j.queue = hop.queue
                 ORDER BY coalesce(j.tenant, ''), (~j.priority), j.run_at, j.seq LIMIT asked.share) AS w
         WHERE w.run_at < asked.now - make_interval(secs => p_older_than) GROUP BY 1, 2
         UNION ALL
        SELECT d.queue, d.task, count(*)
          FROM asked CROSS JOIN LATERAL (
                SELECT j.queue, j.task FROM holdfast.jobs j
                 WHERE j.state = 'queued' AND j.hold = 'time' AND j.run_at < asked.now - make_interval(secs => p_older_than)
                 ORDER BY j.run_at LIMIT asked.share) AS d
         GROUP BY 1, 2
    )
    SELECT waiting.queue, waiting.task, sum(waiting.n)::bigint
      FROM waiting CROSS JOIN asked
     WHERE NOT EXISTS (SELECT 1 FROM holdfast.workers w
                        WHERE w.last_seen_at > asked.now - interval '60 seconds' AND NOT w.draining
                          AND waiting.queue = ANY (w.queues) AND waiting.task = ANY (w.tasks))
     GROUP BY 1, 2 ORDER BY 3 DESC LIMIT p_limit
$$;

-- What waits for a worker, for whoever wakes machines: tenant by tenant, until p_enough jobs are found that limits let run, or
-- p_hops tenants were looked at. Looks at p_cap jobs of each and takes no lock: a machine too many is harmless.
CREATE OR REPLACE FUNCTION holdfast.job_demand_v1(p_enough integer, p_cap integer, p_hops integer, p_now timestamptz)
RETURNS TABLE (queue text, tenant text, task text, waiting bigint, oldest double precision, oldest_id uuid, room integer, queue_room integer)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now        timestamptz := coalesce(p_now, clock_timestamp());
    v_queue      text;
    v_lane       text;
    v_found      integer := 0;
    v_hops       integer := 0;
    v_lanes      text[];
    v_queue_room integer;
    v_room       integer;
    v_waiting    integer;
BEGIN
    SELECT j.queue INTO v_queue FROM holdfast.jobs j WHERE j.state = 'queued' AND j.hold IS NULL ORDER BY j.queue LIMIT 1;
    WHILE v_queue IS NOT NULL AND v_found < p_enough AND v_hops < p_hops LOOP
        v_queue_room := holdfast.demand_queue_room(v_queue);
        v_lane := NULL;
        -- A few lanes at a time: as a rule the first ones are enough.
        WHILE v_queue_room IS DISTINCT FROM 0 AND v_found < p_enough AND v_hops < p_hops LOOP
            v_lanes := holdfast.lanes_after(v_queue, v_lane, least(64, p_hops - v_hops), NULL);
            EXIT WHEN v_lanes = '{}';
            FOREACH v_lane IN ARRAY v_lanes LOOP
                EXIT WHEN v_found >= p_enough;
                v_hops := v_hops + 1;
                v_room := holdfast.demand_tenant_room(v_lane);
                CONTINUE WHEN v_room = 0;
                v_waiting := 0;
                FOR queue, tenant, task, waiting, oldest, oldest_id, room, queue_room IN
                    SELECT v_queue, v_lane, w.task, count(*) FILTER (WHERE w.order_key IS NULL) + count(DISTINCT w.order_key),
                           extract(epoch FROM v_now - min(w.run_at))::double precision, (array_agg(w.id ORDER BY w.run_at))[1], v_room, v_queue_room
                      FROM (SELECT j.id, j.task, j.order_key, j.run_at FROM holdfast.jobs j
                             WHERE j.state = 'queued' AND j.hold IS NULL AND j.queue = v_queue AND coalesce(j.tenant, '') = v_lane
                             ORDER BY j.queue, coalesce(j.tenant, ''), (~j.priority), j.run_at, j.seq LIMIT p_cap) AS w GROUP BY w.task
                LOOP
                    v_waiting := v_waiting + waiting;
                    RETURN NEXT;
                END LOOP;
                v_found := v_found + least(v_waiting, coalesce(v_room, v_waiting), coalesce(v_queue_room, v_waiting));
            END LOOP;
        END LOOP;
        SELECT min(j.queue) INTO v_queue FROM holdfast.jobs j WHERE j.state = 'queued' AND j.hold IS NULL AND j.queue > v_queue;
    END LOOP;
    -- Fallen due while nobody was there to lift their hold.
    RETURN QUERY
    SELECT d.queue, d.lane, d.task, d.n, d.oldest, d.id, holdfast.demand_tenant_room(d.lane), holdfast.demand_queue_room(d.queue)
      FROM (SELECT w.queue, w.lane, w.task, count(*) FILTER (WHERE w.order_key IS NULL) + count(DISTINCT w.order_key) AS n,
                   extract(epoch FROM v_now - min(w.run_at))::double precision AS oldest, (array_agg(w.id ORDER BY w.run_at))[1] AS id
              FROM (SELECT j.id, j.queue, coalesce(j.tenant, '') AS lane, j.task, j.order_key, j.run_at FROM holdfast.jobs j
                     WHERE j.state = 'queued' AND j.hold = 'time' AND j.run_at <= v_now ORDER BY j.run_at LIMIT p_cap) AS w
             GROUP BY w.queue, w.lane, w.task) AS d;
END $$;

CREATE OR REPLACE FUNCTION holdfast.demand_queue_room(p_queue text) RETURNS integer LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN q.paused_at IS NOT NULL THEN 0
                WHEN q.max_running IS NOT NULL THEN greatest(0, q.max_running - (SELECT count(*) FROM (
                    SELECT 1 FROM holdfast.jobs j WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND j.queue = p_queue
                     LIMIT q.max_running) AS running))::integer END
      FROM holdfast.queues q WHERE q.name = p_queue
$$;

CREATE OR REPLACE FUNCTION holdfast.demand_tenant_room(p_lane text) RETURNS integer LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_lane = '' THEN NULL WHEN t.paused_at IS NOT NULL THEN 0
                ELSE greatest(0, coalesce(t.max_running, p.max_running) - (SELECT count(*) FROM (
                    SELECT 1 FROM holdfast.jobs j WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND coalesce(j.tenant, '') = p_lane
                     LIMIT coalesce(t.max_running, p.max_running)) AS running))::integer END
      FROM (SELECT 1) AS one
      LEFT JOIN holdfast.tenants t ON t.id = p_lane
      LEFT JOIN holdfast.plans p ON p.name = coalesce(t.plan, 'free')
$$;
