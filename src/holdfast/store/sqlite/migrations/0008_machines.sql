-- Machines that come and go with the work: which there are, whose turn it is to decide, and what they cost.

CREATE TABLE holdfast_machines (
    name          TEXT    NOT NULL PRIMARY KEY,
    provider      TEXT    NOT NULL,
    id            TEXT,  -- the provider's own; null until its answer came
    kind          TEXT    NOT NULL CHECK (kind IN ('pool', 'burst')),
    state         TEXT    NOT NULL,
    region        TEXT,
    asked_at      REAL,  -- when we last made or started it
    started_at    REAL,
    stop_asked_at REAL,
    counted_at    REAL,  -- up to here its seconds are in machine_usage
    seen_at       REAL    NOT NULL
);

CREATE TABLE holdfast_machine_turn (
    name       TEXT    NOT NULL PRIMARY KEY,
    token      TEXT    NOT NULL,  -- of whoever decides
    until_at   REAL    NOT NULL,
    again      INTEGER NOT NULL DEFAULT 0,  -- somebody asked meanwhile
    pool       INTEGER,  -- as scaled by hand; else the setting
    problem    TEXT,  -- what keeps machines from coming
    told       TEXT,  -- the last warnings with their jobs, so that each is told once
    vain_job   TEXT,  -- the job that machines were started for and that still nobody serves
    vain_count INTEGER NOT NULL DEFAULT 0,
    vain_at    REAL
);

CREATE TABLE holdfast_machine_usage (
    month   TEXT    NOT NULL,
    subject TEXT    NOT NULL,  -- `tenant:NAME`, or `machine:PROVIDER` for the time that machines were up
    n       INTEGER NOT NULL,
    seconds REAL    NOT NULL,
    PRIMARY KEY (month, subject)
) WITHOUT ROWID;
