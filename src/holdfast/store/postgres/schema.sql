-- Holdfast on PostgreSQL: the whole schema as it is after all migrations. A test proves that the two are equal.
-- `holdfast migrate` runs the numbered files in migrations/ and then functions.sql; this page is for reading.
--
--   migrations   which numbered files ran, per component (`core`, or the name of an extension)
--   jobs         one row per job, from enqueue until retention removes it; the newest run lives on this row
--   runs         older runs of a job: written when a run ends in anything but the job's own end
--   events       what was unusual (cancel, retry, reap, …); a job that simply works writes none
--   logs         numbered lines of a run
--   steps        remembered results of step(), so that a retry skips what is done
--   plans        what a tenant may do; tenants: who has which plan, and numbers of its own; queues: limits and pauses
--   tallies      counters of all processes: totals at minute 0, the last hour minute by minute, a week at minus the hour
--   workers      who is there, since when, and last seen when
--   idempotency_keys   requests that were done, with their answers; rate_buckets: what was taken of which limit by whom
--   budgets      what a tenant or plan may spend in a month; budget_months: what was spent; budget_runs: by which run
--   breakers     outside services by name, and whether jobs that need them wait
--   members      who is what in which tenant; projects: parts of a tenant's work, by name
--   machines     those that a provider runs for us; machine_turn: whose turn it is to decide; machine_usage: what they cost by month
--   schedules    what happens by the clock; batches: jobs that belong together, and what is done when all have ended
--   keys         what calls the HTTP API, by the hash of its secret; sessions: browsers that showed one, and login links
--   webhooks     whom a tenant wants to be told of what; each delivery is a job
--
-- The life of a row in jobs: inserted `queued`, with `hold` saying why it may not be claimed yet (null: claimable);
-- the claim makes it `running` with a lease; whoever leaves `running` names the row's run_id (the fence). Every move
-- from `running` to `queued` makes a new run_id, so that nothing late from the old run is accepted.
--
-- Holds: `time` until run_at has come (the claim lifts it), `order` while an older job with the same ordering key is
-- active (the claim sets it when it meets such a job, the older job's end lifts it). Both keep the claim's index free
-- of rows that cannot be claimed, which is what keeps its cost flat.
--
-- Lock order: rows of jobs first, then advisory locks of ordering keys in ascending order, then the parked rows of those
-- keys, then rows of other tables. `hold = 'order'` is set and lifted under the key's lock only.
-- A claim never waits: it skips locked rows and only tries advisory locks.

CREATE SCHEMA IF NOT EXISTS holdfast;

CREATE TABLE holdfast.migrations (
    component   text        NOT NULL,
    version     integer     NOT NULL,
    name        text        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (component, version)
);

CREATE TABLE holdfast.jobs (
    id                  uuid             NOT NULL PRIMARY KEY,
    seq                 bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,  -- order of arrival; ids come from clients' clocks
    run_id              uuid             NOT NULL,
    queue               text             NOT NULL,
    task                text             NOT NULL,
    state               text             NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    hold                text             CHECK (hold IN ('time', 'order')),
    tenant              text,
    project             text,
    actor               text,
    priority            integer          NOT NULL DEFAULT 0,
    run_at              timestamptz      NOT NULL,
    run_no              integer          NOT NULL DEFAULT 0,
    attempt             integer          NOT NULL DEFAULT 0,
    max_attempts        integer          NOT NULL,
    unique_key          text,
    order_key           text,
    order_blocks        boolean          NOT NULL DEFAULT false,
    lease_seconds       double precision NOT NULL,
    timeout_seconds     double precision,
    expected_seconds    double precision,
    backoff             double precision[],
    noun                text,
    locked_by           text,
    machine_id          text,
    lease_expires_at    timestamptz,
    last_heartbeat_at   timestamptz,
    deadline            timestamptz,
    stage               text,
    progress            double precision,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    error_code          text,
    error_message       text,
    enqueued_by         text,
    trace_context       text,
    created_at          timestamptz      NOT NULL,
    started_at          timestamptz,
    finished_at         timestamptz,
    updated_at          timestamptz      NOT NULL,
    tags                text[],
    meta                jsonb,
    args                jsonb            NOT NULL,
    result              jsonb,
    batch               text,
    on_failed           jsonb,
    announced           integer  -- the run whose end was told to webhooks last; null: nobody is to be told
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1, autovacuum_analyze_scale_factor = 0.05);

-- Exactly what a claim may take, in the order in which it takes it. ~priority (that is -priority - 1) instead of a descending
-- column: all columns rise, so that a claim can begin behind any row by comparing whole rows, and no priority overflows.
CREATE INDEX jobs_claimable ON holdfast.jobs (queue, coalesce(tenant, ''), (~priority), run_at, seq)
    WHERE state = 'queued' AND hold IS NULL;
CREATE INDEX jobs_scheduled ON holdfast.jobs (run_at) WHERE state = 'queued' AND hold = 'time';
-- lease_expires_at is not in here on purpose: a heartbeat then changes no indexed column and stays a HOT update.
-- locked_by is, so that statements that are fenced by `id, run_id, state = 'running'` cannot use this index: with statistics
-- from a quiet moment the planner takes it for empty, and would scan all running jobs for each row of a batch.
-- seq keeps the keys apart: with thousands of equal ones every claim pays for tidying the same pages of the index.
CREATE INDEX jobs_running ON holdfast.jobs (coalesce(tenant, ''), queue, seq) WHERE state = 'running' AND locked_by IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique_key ON holdfast.jobs (coalesce(tenant, ''), unique_key)
    WHERE unique_key IS NOT NULL AND state IN ('queued', 'running');
CREATE INDEX jobs_order_key ON holdfast.jobs (coalesce(tenant, ''), order_key, seq)
    WHERE order_key IS NOT NULL AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks));
CREATE INDEX jobs_failed ON holdfast.jobs (id) WHERE state = 'failed';
-- For lists of one tenant: state by state, newest first.
CREATE INDEX jobs_tenant ON holdfast.jobs (tenant, state, id) WHERE tenant IS NOT NULL;
CREATE INDEX jobs_cancelled ON holdfast.jobs (id) WHERE state = 'cancelled';
CREATE INDEX jobs_batch ON holdfast.jobs (batch, state, id) WHERE batch IS NOT NULL;
CREATE INDEX jobs_announce ON holdfast.jobs (id) WHERE announced < run_no AND state IN ('completed', 'failed', 'cancelled');
-- The deliveries of one webhook, newest first; their project is the webhook.
CREATE INDEX jobs_deliveries ON holdfast.jobs (project, id) WHERE task = 'holdfast:deliver';
CREATE INDEX jobs_deliveries_failed ON holdfast.jobs (project, id) WHERE task = 'holdfast:deliver' AND state = 'failed';

CREATE TABLE holdfast.plans (
    name        text    NOT NULL PRIMARY KEY,
    max_running integer NOT NULL CHECK (max_running >= 0),
    queue_depth integer NOT NULL CHECK (queue_depth >= 0),
    weight      integer NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100)
);
INSERT INTO holdfast.plans (name, max_running, queue_depth) VALUES ('free', 1, 1000), ('starter', 3, 10000), ('pro', 10, 100000);

CREATE TABLE holdfast.tenants (
    id          text        NOT NULL PRIMARY KEY,
    plan        text        NOT NULL DEFAULT 'free' REFERENCES holdfast.plans (name),
    max_running integer     CHECK (max_running >= 0),
    queue_depth integer     CHECK (queue_depth >= 0),
    paused_at   timestamptz,
    paused_by   text,
    updated_at  timestamptz NOT NULL,
    timezone    text        NOT NULL DEFAULT 'UTC'  -- whose months are meant
);

CREATE TABLE holdfast.queues (
    name        text        NOT NULL PRIMARY KEY,
    max_running integer     CHECK (max_running >= 0),
    paused_at   timestamptz,
    paused_by   text,
    updated_at  timestamptz NOT NULL
);

CREATE TABLE holdfast.runs (
    job_id        uuid        NOT NULL REFERENCES holdfast.jobs (id) ON DELETE CASCADE,
    run_no        integer     NOT NULL,
    run_id        uuid        NOT NULL,
    attempt       integer     NOT NULL,
    outcome       text        NOT NULL,
    worker        text,
    machine_id    text,
    stage         text,
    error_code    text,
    error_message text,
    started_at    timestamptz,
    finished_at   timestamptz,
    PRIMARY KEY (job_id, run_no)
);

CREATE TABLE holdfast.events (
    id     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id uuid,
    tenant text,
    type   text        NOT NULL,
    actor  text,
    data   jsonb       NOT NULL DEFAULT '{}',
    at     timestamptz NOT NULL
);
CREATE INDEX events_job ON holdfast.events (job_id, id);
CREATE INDEX events_tenant ON holdfast.events (tenant, id);
CREATE INDEX events_at ON holdfast.events (at);

CREATE TABLE holdfast.logs (
    run_id      uuid        NOT NULL,
    no          integer     NOT NULL,
    job_id      uuid        NOT NULL,
    tenant      text,
    project     text,
    step        text,
    level       text        NOT NULL,
    message     text        NOT NULL,
    duration_ms double precision,
    metadata    jsonb,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (run_id, no)
);
CREATE INDEX logs_created_at ON holdfast.logs (created_at);

CREATE TABLE holdfast.steps (
    job_id      uuid        NOT NULL REFERENCES holdfast.jobs (id) ON DELETE CASCADE,
    name        text        NOT NULL,
    fingerprint text        NOT NULL,
    result      jsonb       NOT NULL,
    run_id      uuid        NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (job_id, name, fingerprint)
);

CREATE TABLE holdfast.workers (
    id           text        NOT NULL PRIMARY KEY,
    host         text        NOT NULL,
    pid          integer     NOT NULL,
    machine_id   text,
    version      text        NOT NULL,
    queues       text[]      NOT NULL,
    tasks        text[]      NOT NULL,
    concurrency  integer     NOT NULL,
    running      integer     NOT NULL DEFAULT 0,
    draining     boolean     NOT NULL DEFAULT false,
    started_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    process      text,  -- host, boot, namespace, pid and start time: proves that it is dead
    heartbeat    double precision,  -- seconds between two reports
    has_session  boolean     NOT NULL DEFAULT false,  -- it holds an advisory lock for as long as it is connected
    steady_since timestamptz  -- since when it has reported without a gap
) WITH (fillfactor = 50);

CREATE TABLE holdfast.members (
    tenant   text        NOT NULL,
    user_id  text        NOT NULL,
    role     text        NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner')),
    added_at timestamptz NOT NULL,
    added_by text,
    PRIMARY KEY (tenant, user_id)
);
CREATE INDEX members_user ON holdfast.members (user_id);

CREATE TABLE holdfast.projects (
    tenant     text        NOT NULL,
    id         text        NOT NULL,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE holdfast.keys (
    id           text        NOT NULL PRIMARY KEY,
    tenant       text,
    role         text        NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner', 'service')),
    name         text,
    hash         text        NOT NULL UNIQUE,
    prefix       text        NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    revoked_by   text,
    last_used_at timestamptz,
    CHECK ((tenant IS NULL) = (role = 'service'))
);
CREATE INDEX keys_tenant ON holdfast.keys (tenant, id);

CREATE TABLE holdfast.sessions (
    hash       text        NOT NULL PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('session', 'link')),
    tenant     text,
    role       text        NOT NULL,
    actor      text        NOT NULL,
    key_id     text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_expires ON holdfast.sessions (expires_at);

CREATE TABLE holdfast.tallies (
    minute integer          NOT NULL,
    queue  text             NOT NULL,
    name   text             NOT NULL,
    label  text             NOT NULL,
    n      double precision NOT NULL,
    PRIMARY KEY (minute, queue, name, label)
) WITH (fillfactor = 50);

CREATE TABLE holdfast.idempotency_keys (
    id               text        NOT NULL PRIMARY KEY,  -- a digest of tenant, scope and key; the key itself is not kept
    tenant           text,
    fingerprint      text        NOT NULL,
    token            text        NOT NULL,  -- of whoever does the work
    response         text,  -- null while it is being done
    lease_expires_at timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL
);
CREATE INDEX idempotency_keys_expires_at ON holdfast.idempotency_keys (expires_at);

CREATE TABLE holdfast.rate_buckets (
    name     text             NOT NULL,
    subject  text             NOT NULL,
    used     double precision NOT NULL,
    taken_at timestamptz      NOT NULL,
    ends_at  timestamptz      NOT NULL,  -- from here on it is as good as no bucket
    PRIMARY KEY (name, subject)
) WITH (fillfactor = 50);
CREATE INDEX rate_buckets_ends_at ON holdfast.rate_buckets (ends_at);

CREATE TABLE holdfast.budgets (
    subject    text             NOT NULL,  -- tenant:acme or plan:pro; `tenant:` alone is for jobs without a tenant
    kind       text             NOT NULL,
    cents      double precision NOT NULL CHECK (cents >= 0),
    updated_at timestamptz      NOT NULL,
    updated_by text,
    PRIMARY KEY (subject, kind)
);

CREATE TABLE holdfast.budget_months (
    tenant    text             NOT NULL,  -- empty for jobs without one
    kind      text             NOT NULL,
    month     text             NOT NULL,  -- 2026-11, by the tenant's time zone
    spent     double precision NOT NULL DEFAULT 0,
    late      double precision NOT NULL DEFAULT 0,  -- the part of it that was spent by runs that had lost their job
    extra     double precision NOT NULL DEFAULT 0,  -- added to the cap for this month alone
    warned_at timestamptz,
    opened_at timestamptz,
    ends_at   timestamptz      NOT NULL,
    PRIMARY KEY (tenant, kind, month)
) WITH (fillfactor = 50);
CREATE INDEX budget_months_ends_at ON holdfast.budget_months (ends_at);

-- What one run may spend and has spent. Its reservation counts while the run holds its job, and no longer: nothing has to be
-- given back. `is_open` only keeps the index small; whoever reserves next closes what has ended.
CREATE TABLE holdfast.budget_runs (
    run_id     uuid             NOT NULL,
    kind       text             NOT NULL,
    job_id     uuid             NOT NULL,
    tenant     text             NOT NULL,
    reserved   double precision NOT NULL DEFAULT 0,
    spent      double precision NOT NULL DEFAULT 0,
    late       double precision NOT NULL DEFAULT 0,
    is_open    boolean          NOT NULL,
    created_at timestamptz      NOT NULL,
    PRIMARY KEY (run_id, kind)
);
CREATE INDEX budget_runs_open ON holdfast.budget_runs (tenant, kind) WHERE is_open;
CREATE INDEX budget_runs_created_at ON holdfast.budget_runs (created_at);

CREATE TABLE holdfast.breakers (
    name           text        NOT NULL PRIMARY KEY,
    state          text        NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    failures       integer     NOT NULL DEFAULT 0,  -- in the present window
    window_ends_at timestamptz NOT NULL,
    reason         text,
    opened_at      timestamptz,
    opened_by      text,  -- null: by failures
    until_at       timestamptz,  -- when a probe may go; null: not before somebody closes it
    probe          text,  -- whose the probe is
    probe_ends_at  timestamptz,  -- unless he says until then that he is still at it
    updated_at     timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE holdfast.schedules (
    id          text        NOT NULL PRIMARY KEY,
    name        text        NOT NULL,
    tenant      text,
    task        text,  -- null: the system's own, done by the reaper itself
    args        text        NOT NULL DEFAULT '{}',
    cron        text,
    seconds     double precision CHECK (seconds > 0),
    tz          text        NOT NULL DEFAULT 'UTC',
    missed      text        NOT NULL DEFAULT 'skip' CHECK (missed IN ('skip', 'once')),
    declared    boolean     NOT NULL DEFAULT false,  -- in code: only programs that say so keep it going
    revision    bigint      NOT NULL DEFAULT 1,  -- every change raises it: whoever knows an older one may change nothing
    next_at     timestamptz NOT NULL,
    paused_at   timestamptz,
    paused_by   text,
    last_at     timestamptz,
    last_job_id uuid,
    result      text,
    error       text,
    created_at  timestamptz NOT NULL,
    created_by  text,
    updated_at  timestamptz NOT NULL,
    CHECK ((cron IS NULL) <> (seconds IS NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX schedules_name ON holdfast.schedules (coalesce(tenant, ''), name);
CREATE INDEX schedules_next_at ON holdfast.schedules (next_at) WHERE paused_at IS NULL AND task IS NOT NULL;
INSERT INTO holdfast.schedules (id, name, seconds, next_at, created_at, updated_at)
VALUES ('retention', 'holdfast.retention', 600, now(), now(), now());

CREATE TABLE holdfast.batches (
    id          text        NOT NULL PRIMARY KEY,
    tenant      text,
    total       integer     NOT NULL,
    then_id     text,
    then_job    text,  -- the job that is made when all have ended
    created_at  timestamptz NOT NULL,
    created_by  text,
    ended_at    timestamptz
);
CREATE INDEX batches_open ON holdfast.batches (id) WHERE ended_at IS NULL;
CREATE INDEX batches_ended ON holdfast.batches (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE holdfast.webhooks (
    id                 text        NOT NULL PRIMARY KEY,
    tenant             text        NOT NULL,
    url                text        NOT NULL,
    events             text        NOT NULL,  -- a JSON list: types, `job.*`, `*`
    description        text,
    secret             text        NOT NULL,  -- sealed where an encryption key is configured
    old_secret         text,  -- signs beside the new one until old_secret_ends_at
    old_secret_ends_at timestamptz,
    failures           integer     NOT NULL DEFAULT 0,  -- in a row
    failing_since_at   timestamptz,
    retry_at           timestamptz,  -- nothing is sent before
    last_error         text,
    disabled_at        timestamptz,
    disabled_reason    text,
    created_at         timestamptz NOT NULL,
    created_by         text
);
CREATE INDEX webhooks_tenant ON holdfast.webhooks (tenant, id);

CREATE TABLE holdfast.machines (
    name          text        NOT NULL PRIMARY KEY,
    provider      text        NOT NULL,
    id            text,  -- the provider's own; null until its answer came
    kind          text        NOT NULL CHECK (kind IN ('pool', 'burst')),
    state         text        NOT NULL,
    region        text,
    asked_at      timestamptz,  -- when we last made or started it
    started_at    timestamptz,
    stop_asked_at timestamptz,
    counted_at    timestamptz,  -- up to here its seconds are in machine_usage
    seen_at       timestamptz NOT NULL
);

CREATE TABLE holdfast.machine_turn (
    name       text        NOT NULL PRIMARY KEY,
    token      text        NOT NULL,  -- of whoever decides
    until_at   timestamptz NOT NULL,
    again      integer     NOT NULL DEFAULT 0,  -- somebody asked meanwhile
    pool       integer,  -- as scaled by hand; else the setting
    problem    text,  -- what keeps machines from coming
    told       text,  -- the last warnings with their jobs, so that each is told once
    vain_job   text,  -- the job that machines were started for and that still nobody serves
    vain_count integer     NOT NULL DEFAULT 0,
    vain_at    timestamptz
);

CREATE TABLE holdfast.machine_usage (
    month   text             NOT NULL,
    subject text             NOT NULL,  -- `tenant:NAME`, or `machine:PROVIDER` for the time that machines were up
    n       bigint           NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (month, subject)
);
