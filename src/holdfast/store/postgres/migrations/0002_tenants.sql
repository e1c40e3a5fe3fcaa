-- Limits by tenant, plan and queue: the claim goes round the tenants of a queue, so its index is ordered by tenant.

DROP FUNCTION IF EXISTS holdfast.job_claim_v1(text, text, text[], text[], integer, timestamptz);

DROP INDEX holdfast.jobs_claimable;
CREATE INDEX jobs_claimable ON holdfast.jobs (queue, coalesce(tenant, ''), priority DESC, run_at, seq)
    WHERE state = 'queued' AND hold IS NULL;
DROP INDEX holdfast.jobs_running;
-- seq keeps the keys apart: with thousands of equal ones every claim pays for tidying the same pages of the index.
CREATE INDEX jobs_running ON holdfast.jobs (coalesce(tenant, ''), queue, seq) WHERE state = 'running' AND locked_by IS NOT NULL;

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
    updated_at  timestamptz NOT NULL
);

CREATE TABLE holdfast.queues (
    name        text        NOT NULL PRIMARY KEY,
    max_running integer     CHECK (max_running >= 0),
    paused_at   timestamptz,
    paused_by   text,
    updated_at  timestamptz NOT NULL
);

