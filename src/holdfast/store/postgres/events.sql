-- name: event_list
SELECT id, job_id::text, tenant, type, actor, data::text, at FROM holdfast.events
 WHERE id < coalesce($1::bigint, 9223372036854775807) ORDER BY id DESC LIMIT $2

-- name: event_list_of_job
SELECT id, job_id::text, tenant, type, actor, data::text, at FROM holdfast.events
 WHERE job_id = $1 AND ($2::text IS NULL OR tenant = $2) AND id < coalesce($3::bigint, 9223372036854775807)
 ORDER BY id DESC LIMIT $4

-- name: event_list_of_tenant
SELECT id, job_id::text, tenant, type, actor, data::text, at FROM holdfast.events
 WHERE tenant = $1 AND id < coalesce($2::bigint, 9223372036854775807) ORDER BY id DESC LIMIT $3

-- name: event_prune
DELETE FROM holdfast.events WHERE id = ANY (ARRAY(SELECT id FROM holdfast.events WHERE at < $1 ORDER BY at LIMIT $2))
