-- name: worker_save
INSERT INTO holdfast.workers AS w (id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, started_at, last_seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11, clock_timestamp()), coalesce($11, clock_timestamp()))
ON CONFLICT (id) DO UPDATE SET running = excluded.running, draining = excluded.draining, last_seen_at = excluded.last_seen_at

-- name: worker_seen
INSERT INTO holdfast.workers AS w (id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, started_at, last_seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11, clock_timestamp()), coalesce($11, clock_timestamp()))
ON CONFLICT (id) DO UPDATE SET running = excluded.running, last_seen_at = excluded.last_seen_at

-- name: worker_remove
-- Told to the others: what it ran to its end before it left has made room that it did not use itself.
WITH gone AS (DELETE FROM holdfast.workers WHERE id = $1 RETURNING id) SELECT pg_notify('holdfast', '') FROM gone

-- name: worker_list
SELECT id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, started_at, last_seen_at
  FROM holdfast.workers ORDER BY started_at, id

-- name: worker_prune
DELETE FROM holdfast.workers WHERE id = ANY (ARRAY(SELECT id FROM holdfast.workers WHERE last_seen_at < $1 LIMIT $2))

-- name: wake
SELECT pg_notify('holdfast', '')
