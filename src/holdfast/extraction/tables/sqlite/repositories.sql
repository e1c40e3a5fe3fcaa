-- name: repository_connect
INSERT INTO holdfast_extraction_repositories AS r (id, tenant, project, provider, source, full_name, branch, path, integration_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant, project) DO UPDATE
   SET provider = excluded.provider, source = excluded.source, full_name = excluded.full_name, branch = excluded.branch,
       path = excluded.path, integration_id = excluded.integration_id, updated_at = ((julianday('now') - 2440587.5) * 86400.0)
RETURNING *;

-- name: repository_lock
SELECT * FROM holdfast_extraction_repositories WHERE tenant = $1 AND project = $2;

-- name: repository_get
SELECT * FROM holdfast_extraction_repositories WHERE tenant = $1 AND project = $2;

-- name: repository_look
-- Transactions take turns here, so that what is read after this belongs together.
SELECT * FROM holdfast_extraction_repositories WHERE tenant = $1 AND project = $2;

-- name: repository_list
SELECT * FROM holdfast_extraction_repositories
 WHERE tenant = $1 AND project > coalesce($2, '') ORDER BY project LIMIT $3;

-- name: repository_tenants
SELECT tenant, count(*) AS count FROM holdfast_extraction_repositories
 WHERE tenant > coalesce($1, '') GROUP BY tenant ORDER BY tenant LIMIT $2;

-- name: repository_queue
UPDATE holdfast_extraction_repositories
   SET status = 'queued', job_id = $2, run_id = NULL, updated_at = ((julianday('now') - 2440587.5) * 86400.0)
 WHERE id = $1;

-- name: repository_settle
UPDATE holdfast_extraction_repositories SET status = $3, updated_at = ((julianday('now') - 2440587.5) * 86400.0)
 WHERE id = $1 AND job_id = $2 AND status <> $3;

-- name: repository_begin
UPDATE holdfast_extraction_repositories
   SET status = 'extracting', run_id = $3, updated_at = ((julianday('now') - 2440587.5) * 86400.0)
 WHERE id = $1 AND job_id = $2 RETURNING *;

-- name: repository_hold
-- The fence: only the attempt that began last may write, and nobody else while it does.
SELECT job_id FROM holdfast_extraction_repositories WHERE id = $1 AND run_id = $2;

-- name: run_insert
INSERT INTO holdfast_extraction_runs (job_id, repository_id, number)
SELECT $2, $1, 1 + coalesce(max(number), 0) FROM holdfast_extraction_runs WHERE repository_id = $1;

-- name: run_begin
UPDATE holdfast_extraction_runs
   SET started_at = ((julianday('now') - 2440587.5) * 86400.0), finished_at = NULL, error_code = NULL, error_message = NULL
 WHERE job_id = $1;

-- name: run_end
UPDATE holdfast_extraction_runs
   SET finished_at = ((julianday('now') - 2440587.5) * 86400.0), outcomes = $2, error_code = $3, error_message = $4
 WHERE job_id = $1;

-- name: run_list
SELECT * FROM holdfast_extraction_runs
 WHERE repository_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3;

-- name: repository_delete
DELETE FROM holdfast_extraction_repositories WHERE tenant = $1 AND project = $2 RETURNING id;
