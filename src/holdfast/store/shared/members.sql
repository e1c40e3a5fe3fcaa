-- name: member_insert
INSERT INTO holdfast.members (tenant, user_id, role, added_by, added_at) VALUES ($1, $2, $3, $4, :now)
ON CONFLICT (tenant, user_id) DO NOTHING
RETURNING tenant, user_id, role, added_at, added_by

-- name: member_list
SELECT tenant, user_id, role, added_at, added_by FROM holdfast.members
WHERE tenant = $1 AND (CAST($2 AS text) IS NULL OR user_id > $2) ORDER BY user_id LIMIT $3

-- name: member_roles
SELECT tenant, role FROM holdfast.members WHERE user_id = $1 ORDER BY tenant LIMIT $2

-- name: member_get
SELECT tenant, user_id, role, added_at, added_by FROM holdfast.members WHERE tenant = $1 AND user_id = $2

-- name: member_lock_owners
UPDATE holdfast.members SET role = role WHERE tenant = $1 AND role = 'owner' RETURNING user_id

-- name: member_set_role
UPDATE holdfast.members SET role = $3 WHERE tenant = $1 AND user_id = $2 RETURNING tenant, user_id, role, added_at, added_by

-- name: member_delete
DELETE FROM holdfast.members WHERE tenant = $1 AND user_id = $2 RETURNING tenant, user_id, role, added_at, added_by
