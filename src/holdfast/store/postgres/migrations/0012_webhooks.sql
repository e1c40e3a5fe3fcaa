-- Whom a tenant wants to be told: signed messages over HTTP, each a job of its own.

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

-- The run of this job whose end was told last; null, as for almost every job: nobody is to be told.
ALTER TABLE holdfast.jobs ADD COLUMN announced integer;
CREATE INDEX jobs_announce ON holdfast.jobs (id) WHERE announced < run_no AND state IN ('completed', 'failed', 'cancelled');
-- The deliveries of one webhook, newest first; their project is the webhook.
CREATE INDEX jobs_deliveries ON holdfast.jobs (project, id) WHERE task = 'holdfast:deliver';
