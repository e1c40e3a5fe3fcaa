-- Row level security, opt-in: `holdfast migrate --rls`. Safe to run again; every later migrate does so where it is on, so that
-- tables that came meanwhile are closed too. Who reads which tenant is one function, holdfast.my_tenants(): replace it freely.
--
--   anon            nothing
--   authenticated   reads its tenants' jobs, runs, logs, events and extraction results; never arguments, workers, machines, secrets
--   service_role    everything
--
-- The owner of the tables, as whom Holdfast itself connects, is not bound by policies (no FORCE). On Supabase the roles and
-- auth.uid() are there already and stay as they are; elsewhere they are made in the same shape.

DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['anon', 'authenticated', 'service_role'] LOOP
        IF to_regrole(v_role) IS NULL THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- another database's migration was faster
            END;
        END IF;
    END LOOP;
    IF to_regprocedure('auth.uid()') IS NULL THEN
        CREATE SCHEMA IF NOT EXISTS auth;
        GRANT USAGE ON SCHEMA auth TO anon, authenticated, service_role;
        -- After a transaction that set it locally the setting is '' and not null, hence nullif.
        CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE SET search_path = '' AS $body$
            SELECT coalesce(nullif(current_setting('request.jwt.claim.sub', true), ''),
                            nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')::uuid
        $body$;
    END IF;
    IF to_regprocedure('holdfast.my_tenants()') IS NULL THEN
        -- As its owner, because members themselves may not read this table.
        CREATE FUNCTION holdfast.my_tenants() RETURNS SETOF text
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS $body$
            SELECT m.tenant FROM holdfast.members m WHERE m.user_id = (SELECT auth.uid())::text
        $body$;
    END IF;
END $$;

REVOKE ALL ON FUNCTION holdfast.my_tenants() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION holdfast.my_tenants() TO authenticated, service_role;
GRANT USAGE ON SCHEMA holdfast TO authenticated, service_role;

-- Every table is closed first; what members may read is opened by name below.
DO $$
DECLARE
    v_table record;
BEGIN
    FOR v_table IN
        SELECT c.oid::regclass AS name, c.relrowsecurity AS guarded,
               EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'holdfast_service') AS served
          FROM pg_class c WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY c.relname
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC, anon, authenticated', v_table.name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO service_role', v_table.name);
        IF NOT v_table.guarded THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', v_table.name);
        END IF;
        IF NOT v_table.served THEN  -- a service_role that we made does not bypass policies, Supabase's does
            EXECUTE format('CREATE POLICY holdfast_service ON %s TO service_role USING (true) WITH CHECK (true)', v_table.name);
        END IF;
    END LOOP;
END $$;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast TO service_role;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO service_role;

-- What members read: the rows of their tenants, without the columns that SPEC keeps from them. Each is also a view of just those
-- columns (my_jobs, my_logs, …), because `select *` on the table itself asks for columns that are not granted.
DO $$
DECLARE
    v_open    record;
    v_columns text;
    v_view    text;
BEGIN
    FOR v_open IN
        SELECT c.oid, c.relname,
               CASE WHEN EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped)
                    THEN 'tenant IN (SELECT holdfast.my_tenants())'
                    WHEN c.relname = 'runs'
                    THEN 'EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.id = job_id)'  -- as the reader: its policy counts
                    ELSE 'EXISTS (SELECT 1 FROM holdfast.extraction_repositories r WHERE r.id = repository_id)' END AS rule
          FROM pg_class c
         WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p')
           AND (c.relname IN ('jobs', 'runs', 'logs', 'events')
                OR (c.relname LIKE 'extraction\_%' AND EXISTS (
                        SELECT 1 FROM pg_attribute a
                         WHERE a.attrelid = c.oid AND a.attname IN ('tenant', 'repository_id') AND NOT a.attisdropped)))
         ORDER BY c.relname = 'extraction_repositories' DESC, c.relname
    LOOP
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO v_columns
          FROM pg_attribute a
         WHERE a.attrelid = v_open.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND a.attname NOT IN ('args', 'machine_id', 'locked_by', 'worker', 'trace_context', 'on_failed', 'sealed_token', 'secret', 'token')
           -- What the reaper notes of a worker stands in the data of events.
           AND NOT (v_open.relname = 'events' AND a.attname = 'data');
        EXECUTE format('GRANT SELECT (%s) ON holdfast.%I TO authenticated', v_columns, v_open.relname);
        IF NOT EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = v_open.oid AND p.polname = 'holdfast_members') THEN
            EXECUTE format('CREATE POLICY holdfast_members ON holdfast.%I FOR SELECT TO authenticated USING (%s)',
                           v_open.relname, v_open.rule);
        END IF;
        v_view := 'my_' || v_open.relname;
        EXECUTE format('DROP VIEW IF EXISTS holdfast.%I', v_view);
        EXECUTE format('CREATE VIEW holdfast.%I WITH (security_invoker = true) AS SELECT %s FROM holdfast.%I',
                       v_view, v_columns, v_open.relname);
        EXECUTE format('REVOKE ALL ON holdfast.%I FROM PUBLIC, anon', v_view);
        EXECUTE format('GRANT SELECT ON holdfast.%I TO authenticated, service_role', v_view);
    END LOOP;
END $$;

-- Supabase Realtime: new log lines reach those who may read them.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_publication WHERE pubname = 'supabase_realtime' AND NOT puballtables)
       AND NOT EXISTS (SELECT 1 FROM pg_publication_tables
                        WHERE pubname = 'supabase_realtime' AND schemaname = 'holdfast' AND tablename = 'logs') THEN
        ALTER PUBLICATION supabase_realtime ADD TABLE holdfast.logs;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'The publication supabase_realtime belongs to somebody else: add holdfast.logs to it as its owner.';
END $$;
