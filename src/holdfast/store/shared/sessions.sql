-- name: session_insert
INSERT INTO holdfast.sessions (hash, kind, tenant, role, actor, key_id, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, :now, :later($7))

-- name: session_valid
SELECT s.hash, s.tenant, s.role, s.actor, s.key_id, -:since(s.expires_at) AS seconds_left
FROM holdfast.sessions AS s LEFT JOIN holdfast.keys AS k ON k.id = s.key_id
WHERE s.hash = $1 AND s.kind = 'session' AND s.expires_at > :now
  AND (s.key_id IS NULL OR (k.id IS NOT NULL AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)))

-- name: session_take_link
DELETE FROM holdfast.sessions WHERE hash = $1 AND kind = 'link' AND expires_at > :now RETURNING tenant, role, actor, key_id

-- name: session_delete
DELETE FROM holdfast.sessions WHERE hash = $1

-- name: session_prune
DELETE FROM holdfast.sessions
WHERE hash IN (SELECT hash FROM holdfast.sessions WHERE expires_at < :now ORDER BY expires_at LIMIT $1)
RETURNING hash
