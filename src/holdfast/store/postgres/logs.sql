-- name: log_append
-- FOR SHARE: a reaper that takes this job away waits for these lines, or makes us find nothing; it then numbers its own after them.
WITH leased AS (
    SELECT id, run_id, tenant, project FROM holdfast.jobs WHERE id = $1 AND run_id = $2 AND state = 'running' FOR SHARE
), written AS (
    INSERT INTO holdfast.logs (run_id, no, job_id, tenant, project, step, level, message, duration_ms, metadata, created_at)
    SELECT leased.run_id, l.no, leased.id, leased.tenant, leased.project, l.step, l.level, l.message, l.duration_ms, l.metadata,
           coalesce(l.created_at, $4, clock_timestamp())
      FROM leased, jsonb_to_recordset(CAST($3 AS jsonb)) AS l (no integer, step text, level text, message text,
           duration_ms double precision, metadata jsonb, created_at timestamptz)
    ON CONFLICT DO NOTHING
)
SELECT true FROM leased

-- name: log_read
SELECT run_id::text, no, level, message, step, duration_ms, metadata::text, created_at
  FROM holdfast.logs WHERE run_id = $1 AND no > $2 ORDER BY no LIMIT $3

-- name: log_prune
DELETE FROM holdfast.logs WHERE ctid = ANY (ARRAY(SELECT ctid FROM holdfast.logs WHERE created_at < $1 LIMIT $2))
