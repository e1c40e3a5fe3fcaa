-- The extraction application: where code comes from, what was found in it, and what was not looked for.

CREATE TABLE holdfast.extraction_integrations (
    tenant          text        NOT NULL,
    id              text        NOT NULL,
    provider        text        NOT NULL,
    installation_id text,
    sealed_token    text,  -- encrypted; the key is not in the database
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, id),
    CHECK (installation_id IS NULL OR sealed_token IS NULL)
);

CREATE TABLE holdfast.extraction_repositories (
    id             text        NOT NULL PRIMARY KEY,
    tenant         text        NOT NULL,
    project        text        NOT NULL,
    provider       text        NOT NULL,
    source         text        NOT NULL,
    full_name      text        NOT NULL,
    branch         text,
    path           text        NOT NULL,
    integration_id text,
    status         text        NOT NULL DEFAULT 'idle'
                   CHECK (status IN ('idle', 'queued', 'extracting', 'ready', 'error', 'cancelled')),
    job_id         text,  -- the newest extraction
    run_id         text,  -- its attempt that may write
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, project),
    FOREIGN KEY (tenant, integration_id) REFERENCES holdfast.extraction_integrations (tenant, id)
);

CREATE TABLE holdfast.extraction_runs (
    job_id        text        NOT NULL PRIMARY KEY,
    repository_id text        NOT NULL REFERENCES holdfast.extraction_repositories (id) ON DELETE CASCADE,
    number        integer     NOT NULL,
    outcomes      jsonb       NOT NULL DEFAULT '{}',
    error_code    text,
    error_message text,
    started_at    timestamptz,
    finished_at   timestamptz,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (repository_id, number)
);

-- One row for each kind of result that a run looked for, or did not: no row with count 0 stands for "not scanned".
CREATE TABLE holdfast.extraction_scans (
    job_id        text        NOT NULL REFERENCES holdfast.extraction_runs (job_id) ON DELETE CASCADE,
    kind          text        NOT NULL CHECK (kind IN ('dependencies', 'vulnerabilities', 'findings', 'secrets', 'reports')),
    repository_id text        NOT NULL,
    scanned       boolean     NOT NULL,
    reason        text,  -- why it was not scanned
    count         integer,
    seen          jsonb,  -- fingerprint -> what it was; only of the newest two, to compare them
    details       jsonb       NOT NULL,
    saved_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, kind),
    CHECK (scanned = (count IS NOT NULL)),
    CHECK (scanned = (reason IS NULL))
);
CREATE INDEX extraction_scans_repository ON holdfast.extraction_scans (repository_id, kind);

CREATE TABLE holdfast.extraction_dependencies (
    repository_id text    NOT NULL REFERENCES holdfast.extraction_repositories (id) ON DELETE CASCADE,
    key           text    NOT NULL,
    fingerprint   text    NOT NULL,
    purl          text    NOT NULL,
    name          text    NOT NULL,
    version       text    NOT NULL,
    ecosystem     text    NOT NULL,
    scope         text    NOT NULL,
    direct        boolean,
    manifest      text    NOT NULL,
    depends_on    jsonb   NOT NULL,
    enrichment    jsonb,  -- null: pending
    PRIMARY KEY (repository_id, key)
);

CREATE TABLE holdfast.extraction_vulnerabilities (
    repository_id text    NOT NULL REFERENCES holdfast.extraction_repositories (id) ON DELETE CASCADE,
    key           text    NOT NULL,
    fingerprint   text    NOT NULL,
    id            text    NOT NULL,
    purl          text    NOT NULL,
    aliases       jsonb   NOT NULL,
    severity      text    NOT NULL,
    cvss_score    double precision,
    cvss_vector   text,
    fixed_in      jsonb   NOT NULL,
    summary       text    NOT NULL,
    epss          double precision,
    percentile    double precision,
    kev           boolean,
    PRIMARY KEY (repository_id, key)
);

CREATE TABLE holdfast.extraction_findings (
    repository_id text    NOT NULL REFERENCES holdfast.extraction_repositories (id) ON DELETE CASCADE,
    key           text    NOT NULL,
    fingerprint   text    NOT NULL,
    rule          text    NOT NULL,
    path          text    NOT NULL,
    line          integer NOT NULL,
    end_line      integer,
    severity      text    NOT NULL,
    message       text    NOT NULL,
    cwes          jsonb   NOT NULL,
    PRIMARY KEY (repository_id, key)
);

-- Where secrets lie open; the secrets themselves are never stored.
CREATE TABLE holdfast.extraction_secrets (
    repository_id text    NOT NULL REFERENCES holdfast.extraction_repositories (id) ON DELETE CASCADE,
    key           text    NOT NULL,
    fingerprint   text    NOT NULL,
    kind          text    NOT NULL,
    path          text    NOT NULL,
    line          integer NOT NULL,
    verified      boolean,
    commit        text,
    PRIMARY KEY (repository_id, key)
);

CREATE TABLE holdfast.extraction_reports (
    repository_id text    NOT NULL REFERENCES holdfast.extraction_repositories (id) ON DELETE CASCADE,
    key           text    NOT NULL,
    fingerprint   text    NOT NULL,
    name          text    NOT NULL,
    location      text    NOT NULL,
    media_type    text    NOT NULL,
    bytes         bigint  NOT NULL,
    PRIMARY KEY (repository_id, key)
);
