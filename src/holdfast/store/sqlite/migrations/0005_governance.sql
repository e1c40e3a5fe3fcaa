-- Requests that are done once, and how often something may be done.

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
