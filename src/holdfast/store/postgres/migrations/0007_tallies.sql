-- Counters of all processes, statistics that stay cheap, and the claim that hands out the trace a job was enqueued under.

DROP FUNCTION IF EXISTS holdfast.job_claim_v2(text, text, text[], text[], integer, text[], integer, text[], timestamptz);

CREATE INDEX jobs_cancelled ON holdfast.jobs (id) WHERE state = 'cancelled';

CREATE TABLE holdfast.tallies (
    minute integer          NOT NULL,
    queue  text             NOT NULL,
    name   text             NOT NULL,
    label  text             NOT NULL,
    n      double precision NOT NULL,
    PRIMARY KEY (minute, queue, name, label)
) WITH (fillfactor = 50);
