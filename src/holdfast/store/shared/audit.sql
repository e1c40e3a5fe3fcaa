-- name: audit_write
INSERT INTO holdfast.events (tenant, type, actor, data, at) VALUES ($1, $2, $3, $4, :now)
