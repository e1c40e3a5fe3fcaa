-- name: event_list
SELECT id, job_id::text, tenant, type, actor, data::text, at FROM holdfast.events WHERE job_id = $1 ORDER BY id

-- name: event_prune
DELETE FROM holdfast.events WHERE id = ANY (ARRAY(SELECT id FROM holdfast.events WHERE at < $1 ORDER BY at LIMIT $2))
