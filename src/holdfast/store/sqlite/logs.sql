-- name: log_lease
-- Completed by this very run, in the caller's own transaction: its last lines are still on their way.
SELECT tenant, project FROM holdfast_jobs WHERE id = :id AND run_id = :run_id AND state IN ('running', 'completed');

-- name: log_insert
INSERT INTO holdfast_logs (run_id, job_id, tenant, project, no, level, message, step, duration_ms, metadata, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, no) DO NOTHING;

-- name: log_insert_next
INSERT INTO holdfast_logs (run_id, no, job_id, tenant, project, level, message, created_at)
SELECT :run_id, coalesce(max(no), 0) + 1, :job_id, :tenant, :project, :level, :message, :now
FROM holdfast_logs WHERE run_id = :run_id;

-- name: log_read
SELECT run_id, no, level, message, step, duration_ms, metadata, created_at
FROM holdfast_logs
WHERE run_id = :run_id AND no > :after AND no < coalesce(:before, 9223372036854775807)
  AND (:levels IS NULL OR level IN (SELECT value FROM json_each(:levels)))
  AND (:step IS NULL OR step = :step)
  AND (:search IS NULL OR holdfast_says(message, :search)
       OR EXISTS (SELECT 1 FROM json_each(metadata) AS said WHERE holdfast_says(said.value, :search)))
ORDER BY no LIMIT :limit;

-- name: log_read_new
SELECT run_id, no, level, message, step, duration_ms, metadata, created_at
FROM holdfast_logs WHERE run_id = :run_id AND no > :after ORDER BY no LIMIT :limit;

-- name: run_open
SELECT job.run_id FROM json_each(:runs) AS asked
JOIN holdfast_jobs AS job ON job.id = asked.value ->> 0 AND job.run_id = asked.value ->> 1 AND job.state IN ('queued', 'running');

-- name: log_delete
-- Lines of jobs that are to go: a job may have any number of them, and other writers wait meanwhile.
DELETE FROM holdfast_logs WHERE rowid IN (
    SELECT rowid FROM holdfast_logs WHERE run_id IN (
        SELECT value FROM json_each(:run_ids)
        UNION SELECT run_id FROM holdfast_runs WHERE job_id IN (SELECT value FROM json_each(:ids)))
    LIMIT :limit);

-- name: log_prune
-- Rows are in the order of writing and all have the same retention, so the oldest are at the front.
DELETE FROM holdfast_logs
WHERE rowid IN (SELECT rowid FROM holdfast_logs ORDER BY rowid LIMIT :limit) AND created_at < :before;
