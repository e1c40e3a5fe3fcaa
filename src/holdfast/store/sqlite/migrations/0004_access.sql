-- Who may call: members and projects of organizations (which are the tenants), keys, and sessions of browsers.

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
