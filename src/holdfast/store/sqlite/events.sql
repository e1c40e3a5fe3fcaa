-- name: event_insert
INSERT INTO holdfast_events (job_id, tenant, type, actor, data, at) VALUES (:job_id, :tenant, :type, :actor, :data, :now);

-- name: event_list
SELECT id, job_id, tenant, type, actor, data, at FROM holdfast_events WHERE job_id = :job_id ORDER BY id;

-- name: event_prune
DELETE FROM holdfast_events WHERE id IN (SELECT id FROM holdfast_events WHERE at < :before ORDER BY at LIMIT :limit);
