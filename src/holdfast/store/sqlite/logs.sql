-- name: log_lease
SELECT tenant, project FROM holdfast_jobs WHERE id = :id AND run_id = :run_id AND state = 'running';

-- name: log_insert
INSERT INTO holdfast_logs (run_id, no, job_id, tenant, project, step, level, message, duration_ms, metadata, created_at)
VALUES (:run_id, :no, :job_id, :tenant, :project, :step, :level, :message, :duration_ms, :metadata, :created_at)
ON CONFLICT (run_id, no) DO NOTHING;

-- name: log_insert_next
INSERT INTO holdfast_logs (run_id, no, job_id, tenant, project, level, message, created_at)
SELECT :run_id, coalesce(max(no), 0) + 1, :job_id, :tenant, :project, :level, :message, :now
FROM holdfast_logs WHERE run_id = :run_id;

-- name: log_read
SELECT run_id, no, level, message, step, duration_ms, metadata, created_at
FROM holdfast_logs WHERE run_id = :run_id AND no > :after ORDER BY no LIMIT :limit;

-- name: log_delete
DELETE FROM holdfast_logs WHERE run_id IN (
    SELECT value FROM json_each(:run_ids)
    UNION SELECT run_id FROM holdfast_runs WHERE job_id IN (SELECT value FROM json_each(:ids)));

-- name: log_prune
-- Rows are in the order of writing and all have the same retention, so the oldest are at the front.
DELETE FROM holdfast_logs
WHERE rowid IN (SELECT rowid FROM holdfast_logs ORDER BY rowid LIMIT :limit) AND created_at < :before;
