-- name: event_insert
INSERT INTO holdfast_events (job_id, tenant, type, actor, data, at) VALUES (:job_id, :tenant, :type, :actor, :data, :now);

-- name: event_list
SELECT id, job_id, tenant, type, actor, data, at FROM holdfast_events
WHERE id < coalesce(:before, 9223372036854775807) ORDER BY id DESC LIMIT :limit;

-- name: event_list_of_job
SELECT id, job_id, tenant, type, actor, data, at FROM holdfast_events
WHERE job_id = :job_id AND (:tenant IS NULL OR tenant = :tenant) AND id < coalesce(:before, 9223372036854775807)
ORDER BY id DESC LIMIT :limit;

-- name: event_list_of_tenant
SELECT id, job_id, tenant, type, actor, data, at FROM holdfast_events
WHERE tenant = :tenant AND id < coalesce(:before, 9223372036854775807) ORDER BY id DESC LIMIT :limit;

-- name: event_prune
DELETE FROM holdfast_events WHERE id IN (SELECT id FROM holdfast_events WHERE at < :before ORDER BY at LIMIT :limit);
