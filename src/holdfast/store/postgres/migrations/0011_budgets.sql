-- What tenants may spend in a month and what runs have spent, and whether services that jobs need are well.

ALTER TABLE holdfast.tenants ADD COLUMN timezone text NOT NULL DEFAULT 'UTC';

CREATE TABLE holdfast.budgets (
    subject    text             NOT NULL,  -- tenant:acme or plan:pro; `tenant:` alone is for jobs without a tenant
    kind       text             NOT NULL,
    cents      double precision NOT NULL CHECK (cents >= 0),
    updated_at timestamptz      NOT NULL,
    updated_by text,
    PRIMARY KEY (subject, kind)
);

CREATE TABLE holdfast.budget_months (
    tenant    text             NOT NULL,  -- empty for jobs without one
    kind      text             NOT NULL,
    month     text             NOT NULL,  -- 2026-11, by the tenant's time zone
    spent     double precision NOT NULL DEFAULT 0,
    late      double precision NOT NULL DEFAULT 0,  -- the part of it that was spent by runs that had lost their job
    extra     double precision NOT NULL DEFAULT 0,  -- added to the cap for this month alone
    warned_at timestamptz,
    opened_at timestamptz,
    ends_at   timestamptz      NOT NULL,
    PRIMARY KEY (tenant, kind, month)
) WITH (fillfactor = 50);
CREATE INDEX budget_months_ends_at ON holdfast.budget_months (ends_at);

-- What one run may spend and has spent. Its reservation counts while the run holds its job, and no longer: nothing has to be
-- given back. `is_open` only keeps the index small; whoever reserves next closes what has ended.
CREATE TABLE holdfast.budget_runs (
    run_id     uuid             NOT NULL,
    kind       text             NOT NULL,
    job_id     uuid             NOT NULL,
    tenant     text             NOT NULL,
    reserved   double precision NOT NULL DEFAULT 0,
    spent      double precision NOT NULL DEFAULT 0,
    late       double precision NOT NULL DEFAULT 0,
    is_open    boolean          NOT NULL,
    created_at timestamptz      NOT NULL,
    PRIMARY KEY (run_id, kind)
);
CREATE INDEX budget_runs_open ON holdfast.budget_runs (tenant, kind) WHERE is_open;
CREATE INDEX budget_runs_created_at ON holdfast.budget_runs (created_at);

CREATE TABLE holdfast.breakers (
    name           text        NOT NULL PRIMARY KEY,
    state          text        NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    failures       integer     NOT NULL DEFAULT 0,  -- in the present window
    window_ends_at timestamptz NOT NULL,
    reason         text,
    opened_at      timestamptz,
    opened_by      text,  -- null: by failures
    until_at       timestamptz,  -- when a probe may go; null: not before somebody closes it
    probe          text,  -- whose the probe is
    probe_ends_at  timestamptz,  -- unless he says until then that he is still at it
    updated_at     timestamptz NOT NULL
) WITH (fillfactor = 50);
