-- What tenants may spend in a month and what runs have spent, and whether services that jobs need are well.

ALTER TABLE holdfast_tenants ADD COLUMN timezone TEXT NOT NULL DEFAULT 'UTC';

CREATE TABLE holdfast_budgets (
    subject    TEXT NOT NULL,  -- tenant:acme or plan:pro; `tenant:` alone is for jobs without a tenant
    kind       TEXT NOT NULL,
    cents      REAL NOT NULL CHECK (cents >= 0),
    updated_at REAL NOT NULL,
    updated_by TEXT,
    PRIMARY KEY (subject, kind)
);

CREATE TABLE holdfast_budget_months (
    tenant    TEXT NOT NULL,  -- empty for jobs without one
    kind      TEXT NOT NULL,
    month     TEXT NOT NULL,  -- 2026-11, by the tenant's time zone
    spent     REAL NOT NULL DEFAULT 0,
    late      REAL NOT NULL DEFAULT 0,  -- the part of it that was spent by runs that had lost their job
    extra     REAL NOT NULL DEFAULT 0,  -- added to the cap for this month alone
    warned_at REAL,
    opened_at REAL,
    ends_at   REAL NOT NULL,
    PRIMARY KEY (tenant, kind, month)
) WITHOUT ROWID;
CREATE INDEX holdfast_budget_months_ends_at ON holdfast_budget_months (ends_at);

-- What one run may spend and has spent. Its reservation counts while the run holds its job, and no longer: nothing has to be
-- given back. `is_open` only keeps the index small; whoever reserves next closes what has ended.
CREATE TABLE holdfast_budget_runs (
    run_id     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    job_id     TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    reserved   REAL    NOT NULL DEFAULT 0,
    spent      REAL    NOT NULL DEFAULT 0,
    late       REAL    NOT NULL DEFAULT 0,
    is_open    INTEGER NOT NULL,
    created_at REAL    NOT NULL,
    PRIMARY KEY (run_id, kind)
);
CREATE INDEX holdfast_budget_runs_open ON holdfast_budget_runs (tenant, kind) WHERE is_open;
CREATE INDEX holdfast_budget_runs_created_at ON holdfast_budget_runs (created_at);

CREATE TABLE holdfast_breakers (
    name           TEXT    NOT NULL PRIMARY KEY,
    state          TEXT    NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    failures       INTEGER NOT NULL DEFAULT 0,  -- in the present window
    window_ends_at REAL    NOT NULL,
    reason         TEXT,
    opened_at      REAL,
    opened_by      TEXT,  -- null: by failures
    until_at       REAL,  -- when a probe may go; null: not before somebody closes it
    probe          TEXT,  -- whose the probe is
    probe_ends_at  REAL,  -- unless he says until then that he is still at it
    updated_at     REAL    NOT NULL
) WITHOUT ROWID;
