-- What happens by the clock, jobs that belong together, and what a failure sets off.

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

ALTER TABLE holdfast.jobs ADD COLUMN batch text;
ALTER TABLE holdfast.jobs ADD COLUMN on_failed jsonb;
CREATE INDEX jobs_batch ON holdfast.jobs (batch, state, id) WHERE batch IS NOT NULL;
