-- Requests that are done once, and how often something may be done.

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
