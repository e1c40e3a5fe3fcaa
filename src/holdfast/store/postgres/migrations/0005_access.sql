-- Who may call: members and projects of organizations (which are the tenants), keys, and sessions of browsers.

CREATE TABLE holdfast.members (
    tenant   text        NOT NULL,
    user_id  text        NOT NULL,
    role     text        NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner')),
    added_at timestamptz NOT NULL,
    added_by text,
    PRIMARY KEY (tenant, user_id)
);
CREATE INDEX members_user ON holdfast.members (user_id);

CREATE TABLE holdfast.projects (
    tenant     text        NOT NULL,
    id         text        NOT NULL,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE holdfast.keys (
    id           text        NOT NULL PRIMARY KEY,
    tenant       text,
    role         text        NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner', 'service')),
    name         text,
    hash         text        NOT NULL UNIQUE,
    prefix       text        NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    revoked_by   text,
    last_used_at timestamptz,
    CHECK ((tenant IS NULL) = (role = 'service'))
);
CREATE INDEX keys_tenant ON holdfast.keys (tenant, id);

CREATE TABLE holdfast.sessions (
    hash       text        NOT NULL PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('session', 'link')),
    tenant     text,
    role       text        NOT NULL,
    actor      text        NOT NULL,
    key_id     text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_expires ON holdfast.sessions (expires_at);
