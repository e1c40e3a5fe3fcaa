-- name: integration_insert
INSERT INTO holdfast.extraction_integrations
       (tenant, id, provider, host, name, user_name, installation_id, sealed_token, created_by, token_set_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN CAST($8 AS text) IS NULL THEN NULL ELSE clock_timestamp() END)
ON CONFLICT DO NOTHING RETURNING *;

-- name: integration_get
SELECT * FROM holdfast.extraction_integrations WHERE tenant = $1 AND id = $2;

-- name: integration_hold
-- Nobody removes it before this transaction ends.
SELECT * FROM holdfast.extraction_integrations WHERE tenant = $1 AND id = $2 FOR SHARE;

-- name: integration_list
SELECT * FROM holdfast.extraction_integrations WHERE tenant = $1 AND id > coalesce($2, '') ORDER BY id LIMIT $3;

-- name: integration_set_token
UPDATE holdfast.extraction_integrations SET sealed_token = $3, token_set_at = clock_timestamp()
 WHERE tenant = $1 AND id = $2 AND installation_id IS NULL RETURNING *;

-- name: integration_users
SELECT project FROM holdfast.extraction_repositories WHERE tenant = $1 AND integration_id = $2 ORDER BY project LIMIT 5;

-- name: integration_delete
DELETE FROM holdfast.extraction_integrations WHERE tenant = $1 AND id = $2 RETURNING *;

-- name: integration_lock
SELECT * FROM holdfast.extraction_integrations WHERE tenant = $1 AND id = $2 FOR UPDATE;

-- name: integration_sealed
SELECT * FROM holdfast.extraction_integrations
 WHERE sealed_token IS NOT NULL AND (tenant, id) > ($1, $2) ORDER BY tenant, id LIMIT $3;

-- name: integration_reseal
UPDATE holdfast.extraction_integrations SET sealed_token = $3 WHERE tenant = $1 AND id = $2 AND sealed_token = $4 RETURNING id;
