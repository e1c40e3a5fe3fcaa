-- name: step_save
INSERT INTO holdfast_steps (job_id, name, fingerprint, result, run_id, created_at)
SELECT id, :name, :fingerprint, :result, :run_id, :now
FROM holdfast_jobs WHERE id = :id AND run_id = :run_id AND state = 'running'
-- Not DO NOTHING, which returns no row: the first result stays, and every writer gets it.
ON CONFLICT (job_id, name, fingerprint) DO UPDATE SET job_id = excluded.job_id
RETURNING result;

-- name: step_get
SELECT result FROM holdfast_steps WHERE job_id = :job_id AND name = :name AND fingerprint = :fingerprint;

-- name: step_delete
DELETE FROM holdfast_steps WHERE job_id IN (SELECT value FROM json_each(:ids));
