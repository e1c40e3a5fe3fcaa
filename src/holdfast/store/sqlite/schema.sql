-- Holdfast on SQLite: the whole schema as it is after all migrations. A test proves that the two are equal.
-- `holdfast migrate` runs the numbered files in migrations/; this page is for reading. The tables carry a prefix because
-- they may live in an application's own file. The names without it are those of the PostgreSQL schema:
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
--
-- Times are unix seconds of this host's clock, ids are text, lists and objects are JSON text.
--
-- The life of a row in jobs: inserted `queued`, with `hold` saying why it may not be claimed yet (null: claimable);
-- the claim makes it `running` with a lease; whoever leaves `running` names the row's run_id (the fence). Every move
-- from `running` to `queued` makes a new run_id, so that nothing late from the old run is accepted.
--
-- Holds: `time` until run_at has come (the claim lifts it), `order` while an older job with the same ordering key is
-- active (the claim sets it when it meets such a job, a trigger lifts it when that job moves). Both keep the claim's
-- index free of rows that cannot be claimed, which is what keeps its cost flat.
--
-- Locks: there is one write lock per file. Each process has one writer thread, which takes it with BEGIN IMMEDIATE and
-- commits what is waiting together; nobody upgrades from reading to writing, so nobody deadlocks. There are no foreign
-- keys, because their enforcement depends on a setting of whoever opens the file: prune deletes what hangs on a job.

CREATE TABLE holdfast_migrations (
    component  TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    applied_at REAL    NOT NULL,
    PRIMARY KEY (component, version)
);

CREATE TABLE holdfast_jobs (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of arrival; ids come from clients' clocks
    id                  TEXT    NOT NULL UNIQUE,
    run_id              TEXT    NOT NULL,
    queue               TEXT    NOT NULL,
    task                TEXT    NOT NULL,
    state               TEXT    NOT NULL DEFAULT 'queued'
        CHECK (state IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    hold                TEXT    CHECK (hold IN ('time', 'order')),
    tenant              TEXT,
    project             TEXT,
    actor               TEXT,
    priority            INTEGER NOT NULL DEFAULT 0,
    run_at              REAL    NOT NULL,
    run_no              INTEGER NOT NULL DEFAULT 0,
    attempt             INTEGER NOT NULL DEFAULT 0,
    max_attempts        INTEGER NOT NULL,
    unique_key          TEXT,
    order_key           TEXT,
    order_blocks        INTEGER NOT NULL DEFAULT 0,
    lease_seconds       REAL    NOT NULL,
    timeout_seconds     REAL,
    expected_seconds    REAL,
    backoff             TEXT,
    noun                TEXT,
    locked_by           TEXT,
    machine_id          TEXT,
    lease_expires_at    REAL,
    last_heartbeat_at   REAL,
    deadline            REAL,
    stage               TEXT,
    progress            REAL,
    cancel_requested_at REAL,
    cancel_requested_by TEXT,
    error_code          TEXT,
    error_message       TEXT,
    enqueued_by         TEXT,
    trace_context       TEXT,
    created_at          REAL    NOT NULL,
    started_at          REAL,
    finished_at         REAL,
    updated_at          REAL    NOT NULL,
    tags                TEXT,
    meta                TEXT,
    args                TEXT    NOT NULL,
    result              TEXT,
    batch               TEXT,
    on_failed           TEXT,
    announced           INTEGER  -- the run whose end was told to webhooks last; null: nobody is to be told
);

-- Exactly what a claim may take, in the order in which it takes it.
CREATE INDEX holdfast_jobs_claimable ON holdfast_jobs (queue, coalesce(tenant, ''), priority DESC, run_at, seq)
    WHERE state = 'queued' AND hold IS NULL;
CREATE INDEX holdfast_jobs_scheduled ON holdfast_jobs (run_at) WHERE state = 'queued' AND hold = 'time';
CREATE INDEX holdfast_jobs_running ON holdfast_jobs (coalesce(tenant, ''), queue) WHERE state = 'running';
CREATE UNIQUE INDEX holdfast_jobs_unique_key ON holdfast_jobs (coalesce(tenant, ''), unique_key)
    WHERE unique_key IS NOT NULL AND state IN ('queued', 'running');
CREATE INDEX holdfast_jobs_order_key ON holdfast_jobs (coalesce(tenant, ''), order_key, seq)
    WHERE order_key IS NOT NULL AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks));
-- Whether a key has a running job must not cost a walk over everything that waits behind it.
CREATE INDEX holdfast_jobs_order_running ON holdfast_jobs (coalesce(tenant, ''), order_key)
    WHERE order_key IS NOT NULL AND state = 'running';
CREATE INDEX holdfast_jobs_failed ON holdfast_jobs (id) WHERE state = 'failed';
CREATE INDEX holdfast_jobs_finished ON holdfast_jobs (state, finished_at) WHERE state IN ('completed', 'cancelled');
CREATE INDEX holdfast_jobs_cancelled ON holdfast_jobs (id) WHERE state = 'cancelled';
-- For lists of one tenant: state by state, newest first.
CREATE INDEX holdfast_jobs_tenant ON holdfast_jobs (tenant, state, id) WHERE tenant IS NOT NULL;
CREATE INDEX holdfast_jobs_batch ON holdfast_jobs (batch, state, id) WHERE batch IS NOT NULL;
CREATE INDEX holdfast_jobs_announce ON holdfast_jobs (id) WHERE announced < run_no AND state IN ('completed', 'failed', 'cancelled');
-- The deliveries of one webhook, newest first; their project is the webhook.
CREATE INDEX holdfast_jobs_deliveries ON holdfast_jobs (project, id) WHERE task = 'holdfast:deliver';
CREATE INDEX holdfast_jobs_deliveries_failed ON holdfast_jobs (project, id) WHERE task = 'holdfast:deliver' AND state = 'failed';

-- Whatever moves an ordered job out of the way, also on a caller's own connection, lets the head of its key go in the
-- same transaction. A head that is running, or failed and blocking, is left alone, and so are those behind it.
CREATE TRIGGER holdfast_jobs_order_moved AFTER UPDATE OF state ON holdfast_jobs
WHEN old.order_key IS NOT NULL AND new.state <> 'running'
BEGIN
    UPDATE holdfast_jobs SET hold = NULL
    WHERE state = 'queued' AND hold = 'order'
      AND seq = (SELECT head.seq FROM holdfast_jobs AS head
                 WHERE coalesce(head.tenant, '') = coalesce(old.tenant, '') AND head.order_key = old.order_key
                   AND (head.state IN ('queued', 'running') OR (head.state = 'failed' AND head.order_blocks))
                 ORDER BY head.seq LIMIT 1)
      AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS other
                      WHERE coalesce(other.tenant, '') = coalesce(old.tenant, '') AND other.order_key = old.order_key
                        AND other.state = 'running');
END;
CREATE TRIGGER holdfast_jobs_order_deleted AFTER DELETE ON holdfast_jobs
WHEN old.order_key IS NOT NULL
BEGIN
    UPDATE holdfast_jobs SET hold = NULL
    WHERE state = 'queued' AND hold = 'order'
      AND seq = (SELECT head.seq FROM holdfast_jobs AS head
                 WHERE coalesce(head.tenant, '') = coalesce(old.tenant, '') AND head.order_key = old.order_key
                   AND (head.state IN ('queued', 'running') OR (head.state = 'failed' AND head.order_blocks))
                 ORDER BY head.seq LIMIT 1)
      AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS other
                      WHERE coalesce(other.tenant, '') = coalesce(old.tenant, '') AND other.order_key = old.order_key
                        AND other.state = 'running');
END;

CREATE TABLE holdfast_plans (
    name        TEXT    NOT NULL PRIMARY KEY,
    max_running INTEGER NOT NULL CHECK (max_running >= 0),
    queue_depth INTEGER NOT NULL CHECK (queue_depth >= 0),
    weight      INTEGER NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 100)
) WITHOUT ROWID;
INSERT INTO holdfast_plans (name, max_running, queue_depth) VALUES ('free', 1, 1000), ('starter', 3, 10000), ('pro', 10, 100000);

CREATE TABLE holdfast_tenants (
    id          TEXT    NOT NULL PRIMARY KEY,
    plan        TEXT    NOT NULL DEFAULT 'free',
    max_running INTEGER CHECK (max_running >= 0),
    queue_depth INTEGER CHECK (queue_depth >= 0),
    paused_at   REAL,
    paused_by   TEXT,
    updated_at  REAL    NOT NULL,
    timezone    TEXT    NOT NULL DEFAULT 'UTC'  -- whose months are meant
) WITHOUT ROWID;

CREATE TABLE holdfast_queues (
    name        TEXT    NOT NULL PRIMARY KEY,
    max_running INTEGER CHECK (max_running >= 0),
    paused_at   REAL,
    paused_by   TEXT,
    updated_at  REAL    NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_runs (
    job_id        TEXT    NOT NULL,
    run_no        INTEGER NOT NULL,
    run_id        TEXT    NOT NULL,
    attempt       INTEGER NOT NULL,
    outcome       TEXT    NOT NULL,
    worker        TEXT,
    machine_id    TEXT,
    stage         TEXT,
    error_code    TEXT,
    error_message TEXT,
    started_at    REAL,
    finished_at   REAL,
    PRIMARY KEY (job_id, run_no)
) WITHOUT ROWID;

CREATE TABLE holdfast_events (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT,
    tenant TEXT,
    type   TEXT NOT NULL,
    actor  TEXT,
    data   TEXT NOT NULL DEFAULT '{}',
    at     REAL NOT NULL
);
CREATE INDEX holdfast_events_job ON holdfast_events (job_id, id);
CREATE INDEX holdfast_events_tenant ON holdfast_events (tenant, id);
CREATE INDEX holdfast_events_at ON holdfast_events (at);

-- Has a rowid on purpose: retention deletes from the oldest row on, without an index on the time.
CREATE TABLE holdfast_logs (
    run_id      TEXT    NOT NULL,
    no          INTEGER NOT NULL,
    job_id      TEXT    NOT NULL,
    tenant      TEXT,
    project     TEXT,
    step        TEXT,
    level       TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    duration_ms REAL,
    metadata    TEXT,
    created_at  REAL    NOT NULL,
    PRIMARY KEY (run_id, no)
);

CREATE TABLE holdfast_steps (
    job_id      TEXT NOT NULL,
    name        TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    result      TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    created_at  REAL NOT NULL,
    PRIMARY KEY (job_id, name, fingerprint)
);

CREATE TABLE holdfast_workers (
    id           TEXT    NOT NULL PRIMARY KEY,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    machine_id   TEXT,
    version      TEXT    NOT NULL,
    queues       TEXT    NOT NULL,
    tasks        TEXT    NOT NULL,
    concurrency  INTEGER NOT NULL,
    running      INTEGER NOT NULL DEFAULT 0,
    draining     INTEGER NOT NULL DEFAULT 0,
    started_at   REAL    NOT NULL,
    last_seen_at REAL    NOT NULL,
    process      TEXT  -- host, boot, namespace, pid and start time: proves that it is dead
);

CREATE TABLE holdfast_members (
    tenant   TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    role     TEXT NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner')),
    added_at REAL NOT NULL,
    added_by TEXT,
    PRIMARY KEY (tenant, user_id)
) WITHOUT ROWID;
CREATE INDEX holdfast_members_user ON holdfast_members (user_id);

CREATE TABLE holdfast_projects (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at REAL NOT NULL,
    created_by TEXT,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE holdfast_keys (
    id           TEXT NOT NULL PRIMARY KEY,
    tenant       TEXT,
    role         TEXT NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner', 'service')),
    name         TEXT,
    hash         TEXT NOT NULL UNIQUE,
    prefix       TEXT NOT NULL,
    created_at   REAL NOT NULL,
    created_by   TEXT,
    expires_at   REAL,
    revoked_at   REAL,
    revoked_by   TEXT,
    last_used_at REAL,
    CHECK ((tenant IS NULL) = (role = 'service'))
) WITHOUT ROWID;
CREATE INDEX holdfast_keys_tenant ON holdfast_keys (tenant, id);

CREATE TABLE holdfast_sessions (
    hash       TEXT NOT NULL PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('session', 'link')),
    tenant     TEXT,
    role       TEXT NOT NULL,
    actor      TEXT NOT NULL,
    key_id     TEXT,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX holdfast_sessions_expires ON holdfast_sessions (expires_at);

CREATE TABLE holdfast_tallies (
    minute INTEGER NOT NULL,
    queue  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    label  TEXT    NOT NULL,
    n      REAL    NOT NULL,
    PRIMARY KEY (minute, queue, name, label)
) WITHOUT ROWID;

CREATE TABLE holdfast_idempotency_keys (
    id               TEXT NOT NULL PRIMARY KEY,  -- a digest of tenant, scope and key; the key itself is not kept
    tenant           TEXT,
    fingerprint      TEXT NOT NULL,
    token            TEXT NOT NULL,  -- of whoever does the work
    response         TEXT,  -- null while it is being done
    lease_expires_at REAL NOT NULL,
    expires_at       REAL NOT NULL
);
CREATE INDEX holdfast_idempotency_keys_expires_at ON holdfast_idempotency_keys (expires_at);

CREATE TABLE holdfast_rate_buckets (
    name     TEXT NOT NULL,
    subject  TEXT NOT NULL,
    used     REAL NOT NULL,
    taken_at REAL NOT NULL,
    ends_at  REAL NOT NULL,  -- from here on it is as good as no bucket
    PRIMARY KEY (name, subject)
) WITHOUT ROWID;
CREATE INDEX holdfast_rate_buckets_ends_at ON holdfast_rate_buckets (ends_at);

CREATE TABLE holdfast_budgets (
    subject    TEXT NOT NULL,  -- tenant:acme or plan:pro; `tenant:` alone is for jobs without a tenant
    kind       TEXT NOT NULL,
    cents      REAL NOT NULL CHECK (cents >= 0),
    updated_at REAL NOT NULL,
    updated_by TEXT,
    PRIMARY KEY (subject, kind)
);

CREATE TABLE holdfast_budget_months (
    tenant    TEXT NOT NULL,  -- empty for jobs without one
    kind      TEXT NOT NULL,
    month     TEXT NOT NULL,  -- 2026-11, by the tenant's time zone
    spent     REAL NOT NULL DEFAULT 0,
    late      REAL NOT NULL DEFAULT 0,  -- the part of it that was spent by runs that had lost their job
    extra     REAL NOT NULL DEFAULT 0,  -- added to the cap for this month alone
    warned_at REAL,
    opened_at REAL,
    ends_at   REAL NOT NULL,
    PRIMARY KEY (tenant, kind, month)
) WITHOUT ROWID;
CREATE INDEX holdfast_budget_months_ends_at ON holdfast_budget_months (ends_at);

-- What one run may spend and has spent. Its reservation counts while the run holds its job, and no longer: nothing has to be
-- given back. `is_open` only keeps the index small; whoever reserves next closes what has ended.
CREATE TABLE holdfast_budget_runs (
    run_id     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    job_id     TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    reserved   REAL    NOT NULL DEFAULT 0,
    spent      REAL    NOT NULL DEFAULT 0,
    late       REAL    NOT NULL DEFAULT 0,
    is_open    INTEGER NOT NULL,
    created_at REAL    NOT NULL,
    PRIMARY KEY (run_id, kind)
);
CREATE INDEX holdfast_budget_runs_open ON holdfast_budget_runs (tenant, kind) WHERE is_open;
CREATE INDEX holdfast_budget_runs_created_at ON holdfast_budget_runs (created_at);

CREATE TABLE holdfast_breakers (
    name           TEXT    NOT NULL PRIMARY KEY,
    state          TEXT    NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    failures       INTEGER NOT NULL DEFAULT 0,  -- in the present window
    window_ends_at REAL    NOT NULL,
    reason         TEXT,
    opened_at      REAL,
    opened_by      TEXT,  -- null: by failures
    until_at       REAL,  -- when a probe may go; null: not before somebody closes it
    probe          TEXT,  -- whose the probe is
    probe_ends_at  REAL,  -- unless he says until then that he is still at it
    updated_at     REAL    NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_schedules (
    id          TEXT    NOT NULL PRIMARY KEY,
    name        TEXT    NOT NULL,
    tenant      TEXT,
    task        TEXT,  -- null: the system's own, done by the reaper itself
    args        TEXT    NOT NULL DEFAULT '{}',
    cron        TEXT,
    seconds     REAL    CHECK (seconds > 0),
    tz          TEXT    NOT NULL DEFAULT 'UTC',
    missed      TEXT    NOT NULL DEFAULT 'skip' CHECK (missed IN ('skip', 'once')),
    declared    INTEGER NOT NULL DEFAULT 0,  -- in code: only programs that say so keep it going
    revision    INTEGER NOT NULL DEFAULT 1,  -- every change raises it: whoever knows an older one may change nothing
    next_at     REAL    NOT NULL,
    paused_at   REAL,
    paused_by   TEXT,
    last_at     REAL,
    last_job_id TEXT,
    result      TEXT,
    error       TEXT,
    created_at  REAL    NOT NULL,
    created_by  TEXT,
    updated_at  REAL    NOT NULL,
    CHECK ((cron IS NULL) <> (seconds IS NULL))
);
CREATE UNIQUE INDEX holdfast_schedules_name ON holdfast_schedules (coalesce(tenant, ''), name);
CREATE INDEX holdfast_schedules_next_at ON holdfast_schedules (next_at) WHERE paused_at IS NULL AND task IS NOT NULL;
INSERT INTO holdfast_schedules (id, name, seconds, next_at, created_at, updated_at)
VALUES ('retention', 'holdfast.retention', 600, CAST(strftime('%s', 'now') AS REAL), CAST(strftime('%s', 'now') AS REAL), CAST(strftime('%s', 'now') AS REAL));

CREATE TABLE holdfast_batches (
    id          TEXT    NOT NULL PRIMARY KEY,
    tenant      TEXT,
    total       INTEGER NOT NULL,
    then_id     TEXT,
    then_job    TEXT,  -- the job that is made when all have ended
    created_at  REAL    NOT NULL,
    created_by  TEXT,
    ended_at    REAL
);
CREATE INDEX holdfast_batches_open ON holdfast_batches (id) WHERE ended_at IS NULL;
CREATE INDEX holdfast_batches_ended ON holdfast_batches (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE holdfast_webhooks (
    id                 TEXT NOT NULL PRIMARY KEY,
    tenant             TEXT NOT NULL,
    url                TEXT NOT NULL,
    events             TEXT NOT NULL,  -- a JSON list: types, `job.*`, `*`
    description        TEXT,
    secret             TEXT NOT NULL,  -- sealed where an encryption key is configured
    old_secret         TEXT,  -- signs beside the new one until old_secret_ends_at
    old_secret_ends_at REAL,
    failures           INTEGER NOT NULL DEFAULT 0,  -- in a row
    failing_since_at   REAL,
    retry_at           REAL,  -- nothing is sent before
    last_error         TEXT,
    disabled_at        REAL,
    disabled_reason    TEXT,
    created_at         REAL NOT NULL,
    created_by         TEXT
) WITHOUT ROWID;
CREATE INDEX holdfast_webhooks_tenant ON holdfast_webhooks (tenant, id);

CREATE TABLE holdfast_machines (
    name          TEXT    NOT NULL PRIMARY KEY,
    provider      TEXT    NOT NULL,
    id            TEXT,  -- the provider's own; null until its answer came
    kind          TEXT    NOT NULL CHECK (kind IN ('pool', 'burst')),
    state         TEXT    NOT NULL,
    region        TEXT,
    asked_at      REAL,  -- when we last made or started it
    started_at    REAL,
    stop_asked_at REAL,
    counted_at    REAL,  -- up to here its seconds are in machine_usage
    seen_at       REAL    NOT NULL
);

CREATE TABLE holdfast_machine_turn (
    name       TEXT    NOT NULL PRIMARY KEY,
    token      TEXT    NOT NULL,  -- of whoever decides
    until_at   REAL    NOT NULL,
    again      INTEGER NOT NULL DEFAULT 0,  -- somebody asked meanwhile
    pool       INTEGER,  -- as scaled by hand; else the setting
    problem    TEXT,  -- what keeps machines from coming
    told       TEXT,  -- the last warnings with their jobs, so that each is told once
    vain_job   TEXT,  -- the job that machines were started for and that still nobody serves
    vain_count INTEGER NOT NULL DEFAULT 0,
    vain_at    REAL
);

CREATE TABLE holdfast_machine_usage (
    month   TEXT    NOT NULL,
    subject TEXT    NOT NULL,  -- `tenant:NAME`, or `machine:PROVIDER` for the time that machines were up
    n       INTEGER NOT NULL,
    seconds REAL    NOT NULL,
    PRIMARY KEY (month, subject)
) WITHOUT ROWID;
