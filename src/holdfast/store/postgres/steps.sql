-- name: step_get
SELECT result::text FROM holdfast.steps WHERE job_id = $1 AND name = $2 AND fingerprint = $3

-- name: step_save
INSERT INTO holdfast.steps (job_id, name, fingerprint, result, run_id, created_at)
SELECT j.id, $3, $4, $5, j.run_id, coalesce($6, clock_timestamp()) FROM holdfast.jobs j
 WHERE j.id = $1 AND j.run_id = $2 AND j.state = 'running'
ON CONFLICT (job_id, name, fingerprint) DO UPDATE SET result = excluded.result, run_id = excluded.run_id
RETURNING true
