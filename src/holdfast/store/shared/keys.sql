-- name: key_insert
INSERT INTO holdfast.keys (id, tenant, role, name, hash, prefix, created_by, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, :now, :later($8))
RETURNING id, tenant, role, name, prefix, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at

-- name: key_list
SELECT id, tenant, role, name, prefix, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
FROM holdfast.keys
WHERE (CAST($1 AS text) IS NULL OR tenant = $1) AND (CAST($2 AS text) IS NULL OR id < $2)
ORDER BY id DESC LIMIT $3

-- name: key_get
SELECT id, tenant, role, name, prefix, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
FROM holdfast.keys WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2)

-- name: key_valid_by_hash
SELECT id, tenant, role, hash, -:since(expires_at) AS seconds_left, :since(last_used_at) AS seconds_unused
FROM holdfast.keys WHERE hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)

-- name: key_valid_by_id
SELECT id, tenant, role FROM holdfast.keys
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)

-- name: key_valid_any
SELECT id FROM holdfast.keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) LIMIT 1

-- name: key_touch
UPDATE holdfast.keys SET last_used_at = :now WHERE id = $1 AND (last_used_at IS NULL OR :since(last_used_at) >= $2)

-- name: key_revoke
UPDATE holdfast.keys SET revoked_at = :now, revoked_by = $3
WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2) AND revoked_at IS NULL
RETURNING id, tenant, role, name, prefix, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
