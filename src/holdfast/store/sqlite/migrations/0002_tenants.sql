-- Limits by tenant, plan and queue: the claim goes round the tenants of a queue, so its index is ordered by tenant.

DROP INDEX holdfast_jobs_claimable;
CREATE INDEX holdfast_jobs_claimable ON holdfast_jobs (queue, coalesce(tenant, ''), priority DESC, run_at, seq)
    WHERE state = 'queued' AND hold IS NULL;
DROP INDEX holdfast_jobs_running;
CREATE INDEX holdfast_jobs_running ON holdfast_jobs (coalesce(tenant, ''), queue) WHERE state = 'running';

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
    updated_at  REAL    NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_queues (
    name        TEXT    NOT NULL PRIMARY KEY,
    max_running INTEGER CHECK (max_running >= 0),
    paused_at   REAL,
    paused_by   TEXT,
    updated_at  REAL    NOT NULL
) WITHOUT ROWID;
