-- name: repository_connect
INSERT INTO holdfast.extraction_repositories AS r (id, tenant, project, provider, source, full_name, branch, path, integration_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant, project) DO UPDATE
   SET provider = excluded.provider, source = excluded.source, full_name = excluded.full_name, branch = excluded.branch,
       path = excluded.path, integration_id = excluded.integration_id, updated_at = clock_timestamp()
RETURNING r.*;

-- name: repository_lock
SELECT * FROM holdfast.extraction_repositories WHERE tenant = $1 AND project = $2 FOR UPDATE;

-- name: repository_get
SELECT * FROM holdfast.extraction_repositories WHERE tenant = $1 AND project = $2;

-- name: repository_look
-- A share lock: whoever writes results holds the row, so that what is read after this belongs together.
SELECT * FROM holdfast.extraction_repositories WHERE tenant = $1 AND project = $2 FOR SHARE;

-- name: repository_list
SELECT * FROM holdfast.extraction_repositories
 WHERE tenant = $1 AND project > coalesce($2, '') ORDER BY project LIMIT $3;

-- name: repository_tenants
SELECT tenant, count(*) AS count FROM holdfast.extraction_repositories
 WHERE tenant > coalesce($1, '') GROUP BY tenant ORDER BY tenant LIMIT $2;

-- name: repository_queue
UPDATE holdfast.extraction_repositories
   SET status = 'queued', job_id = $2, run_id = NULL, updated_at = clock_timestamp() WHERE id = $1;

-- name: repository_settle
UPDATE holdfast.extraction_repositories SET status = $3, updated_at = clock_timestamp()
 WHERE id = $1 AND job_id = $2 AND status <> $3;

-- name: repository_begin
UPDATE holdfast.extraction_repositories
   SET status = 'extracting', run_id = $3, updated_at = clock_timestamp() WHERE id = $1 AND job_id = $2 RETURNING *;

-- name: repository_hold
-- The fence: only the attempt that began last may write, and nobody else while it does.
SELECT job_id FROM holdfast.extraction_repositories WHERE id = $1 AND run_id = $2 FOR UPDATE;

-- name: run_insert
INSERT INTO holdfast.extraction_runs (job_id, repository_id, number)
SELECT $2, $1, 1 + coalesce(max(number), 0) FROM holdfast.extraction_runs WHERE repository_id = $1;

-- name: run_begin
UPDATE holdfast.extraction_runs
   SET started_at = clock_timestamp(), finished_at = NULL, error_code = NULL, error_message = NULL WHERE job_id = $1;

-- name: run_end
UPDATE holdfast.extraction_runs
   SET finished_at = clock_timestamp(), outcomes = CAST($2 AS jsonb), error_code = $3, error_message = $4
 WHERE job_id = $1;

-- name: run_list
SELECT * FROM holdfast.extraction_runs
 WHERE repository_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3;

-- name: repository_delete
DELETE FROM holdfast.extraction_repositories WHERE tenant = $1 AND project = $2 RETURNING id;
