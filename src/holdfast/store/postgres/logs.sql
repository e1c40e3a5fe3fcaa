-- name: log_append
SELECT holdfast.log_append_v2($1, $2, $3, $4)

-- name: log_read
SELECT run_id::text, no, level, message, step, duration_ms, metadata::text, created_at
  FROM holdfast.log_read_v1($1, $2, $3, $4, $5, $6, $7, $8)

-- name: log_read_new
SELECT run_id::text, no, level, message, step, duration_ms, metadata::text, created_at FROM holdfast.log_read_new_v1($1, $2, $3)

-- name: run_open
SELECT j.run_id FROM unnest($1::uuid[], $2::uuid[]) AS asked (id, run_id)
  JOIN holdfast.jobs j ON j.id = asked.id AND j.run_id = asked.run_id AND j.state IN ('queued', 'running')

-- name: log_prune
DELETE FROM holdfast.logs WHERE ctid = ANY (ARRAY(SELECT ctid FROM holdfast.logs WHERE created_at < $1 ORDER BY created_at LIMIT $2))

-- name: log_prune_of_jobs
-- Lines of the jobs that job_prune looks at: a job may have any number of them, and none of our statements may take long.
DELETE FROM holdfast.logs
 WHERE ctid = ANY (ARRAY(
    SELECT line.ctid
      FROM (SELECT id, run_id FROM holdfast.jobs
             WHERE id < $1 AND ((state IN ('completed', 'cancelled') AND finished_at < $2) OR (state = 'failed' AND finished_at < $3))
             ORDER BY id LIMIT $4) AS old
     CROSS JOIN LATERAL (SELECT old.run_id UNION SELECT r.run_id FROM holdfast.runs r WHERE r.job_id = old.id) AS run
     CROSS JOIN LATERAL (SELECT l.ctid FROM holdfast.logs l WHERE l.run_id = run.run_id LIMIT $4) AS line
     LIMIT $4))
