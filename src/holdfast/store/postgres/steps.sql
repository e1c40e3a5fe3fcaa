-- name: step_get
SELECT result::text FROM holdfast.steps WHERE job_id = $1 AND name = $2 AND fingerprint = $3

-- name: step_save
SELECT holdfast.step_save_v1($1, $2, $3, $4, $5, $6)
