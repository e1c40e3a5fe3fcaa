-- Machines that come and go with the work: which there are, whose turn it is to decide, and what they cost.

CREATE TABLE holdfast.machines (
    name          text        NOT NULL PRIMARY KEY,
    provider      text        NOT NULL,
    id            text,  -- the provider's own; null until its answer came
    kind          text        NOT NULL CHECK (kind IN ('pool', 'burst')),
    state         text        NOT NULL,
    region        text,
    asked_at      timestamptz,  -- when we last made or started it
    started_at    timestamptz,
    stop_asked_at timestamptz,
    counted_at    timestamptz,  -- up to here its seconds are in machine_usage
    seen_at       timestamptz NOT NULL
);

CREATE TABLE holdfast.machine_turn (
    name       text        NOT NULL PRIMARY KEY,
    token      text        NOT NULL,  -- of whoever decides
    until_at   timestamptz NOT NULL,
    again      integer     NOT NULL DEFAULT 0,  -- somebody asked meanwhile
    pool       integer,  -- as scaled by hand; else the setting
    problem    text,  -- what keeps machines from coming
    told       text,  -- the last warnings with their jobs, so that each is told once
    vain_job   text,  -- the job that machines were started for and that still nobody serves
    vain_count integer     NOT NULL DEFAULT 0,
    vain_at    timestamptz
);

CREATE TABLE holdfast.machine_usage (
    month   text             NOT NULL,
    subject text             NOT NULL,  -- `tenant:NAME`, or `machine:PROVIDER` for the time that machines were up
    n       bigint           NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (month, subject)
);
