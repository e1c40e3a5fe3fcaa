-- The extraction application: where code comes from, what was found in it, and what was not looked for.

CREATE TABLE holdfast_extraction_integrations (
    tenant          TEXT        NOT NULL,
    id              TEXT        NOT NULL,
    provider        TEXT        NOT NULL,
    installation_id TEXT,
    sealed_token    TEXT,  -- encrypted; the key is not in the database
    created_at      REAL        NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    PRIMARY KEY (tenant, id),
    CHECK (installation_id IS NULL OR sealed_token IS NULL)
);

CREATE TABLE holdfast_extraction_repositories (
    id             TEXT        NOT NULL PRIMARY KEY,
    tenant         TEXT        NOT NULL,
    project        TEXT        NOT NULL,
    provider       TEXT        NOT NULL,
    source         TEXT        NOT NULL,
    full_name      TEXT        NOT NULL,
    branch         TEXT,
    path           TEXT        NOT NULL,
    integration_id TEXT,
    status         TEXT        NOT NULL DEFAULT 'idle'
                   CHECK (status IN ('idle', 'queued', 'extracting', 'ready', 'error', 'cancelled')),
    job_id         TEXT,  -- the newest extraction
    run_id         TEXT,  -- its attempt that may write
    created_at     REAL        NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    updated_at     REAL        NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    UNIQUE (tenant, project),
    FOREIGN KEY (tenant, integration_id) REFERENCES holdfast_extraction_integrations (tenant, id)
);

CREATE TABLE holdfast_extraction_runs (
    job_id        TEXT        NOT NULL PRIMARY KEY,
    repository_id TEXT        NOT NULL REFERENCES holdfast_extraction_repositories (id) ON DELETE CASCADE,
    number        INTEGER     NOT NULL,
    outcomes      TEXT        NOT NULL DEFAULT '{}',
    error_code    TEXT,
    error_message TEXT,
    started_at    REAL,
    finished_at   REAL,
    created_at    REAL        NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    UNIQUE (repository_id, number)
);

-- One row for each kind of result that a run looked for, or did not: no row with count 0 stands for "not scanned".
CREATE TABLE holdfast_extraction_scans (
    job_id        TEXT        NOT NULL REFERENCES holdfast_extraction_runs (job_id) ON DELETE CASCADE,
    kind          TEXT        NOT NULL CHECK (kind IN ('dependencies', 'vulnerabilities', 'findings', 'secrets', 'reports')),
    repository_id TEXT        NOT NULL,
    scanned       INTEGER     NOT NULL,
    reason        TEXT,  -- why it was not scanned
    count         INTEGER,
    seen          TEXT,  -- fingerprint -> what it was; only of the newest two, to compare them
    details       TEXT        NOT NULL,
    saved_at      REAL        NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    PRIMARY KEY (job_id, kind),
    CHECK (scanned = (count IS NOT NULL)),
    CHECK (scanned = (reason IS NULL))
);
CREATE INDEX holdfast_extraction_scans_repository ON holdfast_extraction_scans (repository_id, kind);

CREATE TABLE holdfast_extraction_dependencies (
    repository_id TEXT    NOT NULL REFERENCES holdfast_extraction_repositories (id) ON DELETE CASCADE,
    key           TEXT    NOT NULL,
    fingerprint   TEXT    NOT NULL,
    purl          TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    version       TEXT    NOT NULL,
    ecosystem     TEXT    NOT NULL,
    scope         TEXT    NOT NULL,
    direct        INTEGER,
    manifest      TEXT    NOT NULL,
    depends_on    TEXT    NOT NULL,
    enrichment    TEXT,  -- null: pending
    PRIMARY KEY (repository_id, key)
) WITHOUT ROWID;

CREATE TABLE holdfast_extraction_vulnerabilities (
    repository_id TEXT    NOT NULL REFERENCES holdfast_extraction_repositories (id) ON DELETE CASCADE,
    key           TEXT    NOT NULL,
    fingerprint   TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    purl          TEXT    NOT NULL,
    aliases       TEXT    NOT NULL,
    severity      TEXT    NOT NULL,
    cvss_score    REAL,
    cvss_vector   TEXT,
    fixed_in      TEXT    NOT NULL,
    summary       TEXT    NOT NULL,
    epss          REAL,
    percentile    REAL,
    kev           INTEGER,
    PRIMARY KEY (repository_id, key)
) WITHOUT ROWID;

CREATE TABLE holdfast_extraction_findings (
    repository_id TEXT    NOT NULL REFERENCES holdfast_extraction_repositories (id) ON DELETE CASCADE,
    key           TEXT    NOT NULL,
    fingerprint   TEXT    NOT NULL,
    rule          TEXT    NOT NULL,
    path          TEXT    NOT NULL,
    line          INTEGER NOT NULL,
    end_line      INTEGER,
    severity      TEXT    NOT NULL,
    message       TEXT    NOT NULL,
    cwes          TEXT    NOT NULL,
    PRIMARY KEY (repository_id, key)
) WITHOUT ROWID;

-- Where secrets lie open; the secrets themselves are never stored.
CREATE TABLE holdfast_extraction_secrets (
    repository_id TEXT    NOT NULL REFERENCES holdfast_extraction_repositories (id) ON DELETE CASCADE,
    key           TEXT    NOT NULL,
    fingerprint   TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    path          TEXT    NOT NULL,
    line          INTEGER NOT NULL,
    verified      INTEGER,
    "commit"      TEXT,
    PRIMARY KEY (repository_id, key)
) WITHOUT ROWID;

CREATE TABLE holdfast_extraction_reports (
    repository_id TEXT    NOT NULL REFERENCES holdfast_extraction_repositories (id) ON DELETE CASCADE,
    key           TEXT    NOT NULL,
    fingerprint   TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    location      TEXT    NOT NULL,
    media_type    TEXT    NOT NULL,
    bytes         INTEGER NOT NULL,
    PRIMARY KEY (repository_id, key)
) WITHOUT ROWID;
