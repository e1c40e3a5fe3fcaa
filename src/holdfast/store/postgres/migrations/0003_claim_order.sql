-- A claim may begin behind the last place where it found work: every column of its index rises, so that rows compare as a whole.

DROP FUNCTION IF EXISTS holdfast.job_claim_v2(text, text, text[], text[], integer, text[], integer, text[], timestamptz);
DROP FUNCTION IF EXISTS holdfast.lanes_after(text, text, integer);

CREATE INDEX jobs_claimable_rising ON holdfast.jobs (queue, coalesce(tenant, ''), (~priority), run_at, seq)
    WHERE state = 'queued' AND hold IS NULL;
DROP INDEX holdfast.jobs_claimable;
ALTER INDEX holdfast.jobs_claimable_rising RENAME TO jobs_claimable;
