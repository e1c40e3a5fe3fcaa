-- name: worker_save
INSERT INTO holdfast_workers (
    id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, process, started_at, last_seen_at
)
VALUES (
    :id, :host, :pid, :machine_id, :version, :queues, :tasks, :concurrency, :running, :draining,
    :process, :now, :now
)
ON CONFLICT (id) DO UPDATE SET
    running = excluded.running, draining = excluded.draining, last_seen_at = excluded.last_seen_at;

-- name: worker_seen
INSERT INTO holdfast_workers (
    id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, process, started_at, last_seen_at
)
VALUES (
    :id, :host, :pid, :machine_id, :version, :queues, :tasks, :concurrency, :running, :draining,
    :process, :now, :now
)
ON CONFLICT (id) DO UPDATE SET running = excluded.running, last_seen_at = excluded.last_seen_at;

-- name: worker_others
SELECT process FROM holdfast_workers WHERE id <> :id;

-- name: worker_remove
DELETE FROM holdfast_workers WHERE id = :id;

-- name: worker_list
SELECT id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, process, started_at, last_seen_at
FROM holdfast_workers ORDER BY started_at, id;

-- name: worker_remove_idle
-- Of workers that are dead, those that hold no job any more.
DELETE FROM holdfast_workers
WHERE id IN (SELECT value FROM json_each(:dead))
  AND id NOT IN (SELECT locked_by FROM holdfast_jobs WHERE state = 'running' AND locked_by IS NOT NULL);

-- name: worker_prune
DELETE FROM holdfast_workers WHERE id IN (SELECT id FROM holdfast_workers WHERE last_seen_at < :before LIMIT :limit);
