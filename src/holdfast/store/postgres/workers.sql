-- name: worker_save
INSERT INTO holdfast.workers AS w (id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, process, heartbeat,
                                   has_session, started_at, last_seen_at, steady_since)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, now.at, now.at, now.at
  FROM (SELECT coalesce($14, clock_timestamp()) AS at) AS now
ON CONFLICT (id) DO UPDATE SET running = excluded.running, draining = excluded.draining, has_session = excluded.has_session,
    last_seen_at = excluded.last_seen_at,
    steady_since = CASE WHEN w.last_seen_at < excluded.last_seen_at - make_interval(secs => 1.25::double precision * w.heartbeat)
                        THEN excluded.last_seen_at ELSE w.steady_since END

-- name: worker_seen
-- Answers in how many seconds another worker will be taken for dead; null: none.
WITH seen AS (
    INSERT INTO holdfast.workers AS w (id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, process,
                                       heartbeat, has_session, started_at, last_seen_at, steady_since)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, now.at, now.at, now.at
      FROM (SELECT coalesce($14, clock_timestamp()) AS at) AS now
    ON CONFLICT (id) DO UPDATE SET running = excluded.running, has_session = excluded.has_session,
        last_seen_at = excluded.last_seen_at,
        steady_since = CASE WHEN w.last_seen_at < excluded.last_seen_at - make_interval(secs => 1.25::double precision * w.heartbeat)
                            THEN excluded.last_seen_at ELSE w.steady_since END)
SELECT min(s.seconds) FROM holdfast.worker_silence_v1($14) AS s WHERE s.id <> $1

-- name: worker_remove
-- Told to the others: what it ran to its end before it left has made room that it did not use itself.
WITH gone AS (DELETE FROM holdfast.workers WHERE id = $1 RETURNING id) SELECT pg_notify('holdfast', '') FROM gone

-- name: worker_list
SELECT id, host, pid, machine_id, version, queues, tasks, concurrency, running, draining, process, heartbeat,
       started_at, last_seen_at
  FROM holdfast.workers ORDER BY started_at, id

-- name: worker_prune
DELETE FROM holdfast.workers WHERE id = ANY (ARRAY(SELECT id FROM holdfast.workers WHERE last_seen_at < $1 LIMIT $2))

-- name: wake
SELECT pg_notify('holdfast', '')
