-- name: event_page
SELECT id, job_id, tenant, type, actor, data, at FROM holdfast.events
 WHERE (CAST($1 AS text) IS NULL OR tenant = $1) AND id < CAST($2 AS bigint)
 ORDER BY id DESC LIMIT $3
