-- name: project_insert
INSERT INTO holdfast.projects (tenant, id, name, created_by, created_at) VALUES ($1, $2, $3, $4, :now)
ON CONFLICT (tenant, id) DO NOTHING
RETURNING tenant, id, name, created_at, created_by

-- name: project_list
SELECT tenant, id, name, created_at, created_by FROM holdfast.projects
WHERE tenant = $1 AND (CAST($2 AS text) IS NULL OR id > $2) ORDER BY id LIMIT $3

-- name: project_get
SELECT tenant, id, name, created_at, created_by FROM holdfast.projects WHERE tenant = $1 AND id = $2

-- name: project_rename
UPDATE holdfast.projects SET name = $3 WHERE tenant = $1 AND id = $2 RETURNING tenant, id, name, created_at, created_by

-- name: project_delete
DELETE FROM holdfast.projects WHERE tenant = $1 AND id = $2 RETURNING tenant, id, name, created_at, created_by
