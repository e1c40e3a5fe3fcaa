-- What happens by the clock, jobs that belong together, and what a failure sets off.

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

ALTER TABLE holdfast_jobs ADD COLUMN batch TEXT;
ALTER TABLE holdfast_jobs ADD COLUMN on_failed TEXT;
CREATE INDEX holdfast_jobs_batch ON holdfast_jobs (batch, state, id) WHERE batch IS NOT NULL;
