-- Whom a tenant wants to be told: signed messages over HTTP, each a job of its own.

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

-- The run of this job whose end was told last; null, as for almost every job: nobody is to be told.
ALTER TABLE holdfast_jobs ADD COLUMN announced INTEGER;
CREATE INDEX holdfast_jobs_announce ON holdfast_jobs (id) WHERE announced < run_no AND state IN ('completed', 'failed', 'cancelled');
-- The deliveries of one webhook, newest first; their project is the webhook.
CREATE INDEX holdfast_jobs_deliveries ON holdfast_jobs (project, id) WHERE task = 'holdfast:deliver';
