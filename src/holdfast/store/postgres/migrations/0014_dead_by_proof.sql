-- What proves that a worker is dead: its process, in words that another process of its machine can check; and the session that it
-- keeps open, together with how often it reports, and since when it has done so without a gap.

ALTER TABLE holdfast.workers
    ADD COLUMN process      text,
    ADD COLUMN heartbeat    double precision,
    ADD COLUMN has_session  boolean NOT NULL DEFAULT false,
    ADD COLUMN steady_since timestamptz;
