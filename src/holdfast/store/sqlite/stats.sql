-- name: job_counts
-- All from indexes alone, but for the few that wait for their turn.
SELECT 'completed' AS state, count(*) AS n FROM (
    SELECT 1 FROM holdfast_jobs WHERE state = 'completed' AND state IN ('completed', 'cancelled') LIMIT :cap)
UNION ALL SELECT 'failed', count(*) FROM (SELECT 1 FROM holdfast_jobs WHERE state = 'failed' LIMIT :cap)
UNION ALL SELECT 'cancelled', count(*) FROM (
    SELECT 1 FROM holdfast_jobs WHERE state = 'cancelled' AND state IN ('completed', 'cancelled') LIMIT :cap)
UNION ALL SELECT 'running', count(*) FROM (
    SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_running WHERE state = 'running' LIMIT :cap)
UNION ALL SELECT 'queued', count(*) FROM (
    SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_claimable WHERE state = 'queued' AND hold IS NULL LIMIT :cap)
UNION ALL SELECT 'queued', count(*) FROM (
    SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_scheduled WHERE state = 'queued' AND hold = 'time' LIMIT :cap)
UNION ALL SELECT 'queued', count(*) FROM (
    SELECT hold FROM holdfast_jobs INDEXED BY holdfast_jobs_order_key
    WHERE order_key IS NOT NULL AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks)) LIMIT :cap)
    WHERE hold = 'order';

-- name: job_counts_of
SELECT each.value AS state, (
    SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_tenant
                          WHERE tenant = :tenant AND state = each.value LIMIT :cap)) AS n
FROM json_each('["queued", "running", "completed", "failed", "cancelled"]') AS each;

-- name: queue_stats_waiting
SELECT 'waiting' AS kind, :queue AS queue, count(*) AS n, 0 AS stuck, 0 AS slow, :now - min(run_at) AS oldest
FROM (SELECT run_at FROM holdfast_jobs WHERE state = 'queued' AND hold IS NULL AND queue = :queue LIMIT :cap);

-- name: queue_stats_waiting_of
SELECT 'waiting' AS kind, :queue AS queue, count(*) AS n, 0 AS stuck, 0 AS slow, :now - min(run_at) AS oldest
FROM (SELECT run_at FROM holdfast_jobs
      WHERE state = 'queued' AND hold IS NULL AND queue = :queue AND coalesce(tenant, '') = :tenant LIMIT :cap);

-- name: queue_stats_held
SELECT CASE WHEN run_at > :now THEN 'scheduled' ELSE 'waiting' END AS kind, queue, count(*) AS n, 0 AS stuck, 0 AS slow,
    :now - min(run_at) AS oldest
FROM (SELECT queue, run_at, tenant FROM holdfast_jobs WHERE state = 'queued' AND hold = 'time' ORDER BY run_at LIMIT :cap)
WHERE :tenant IS NULL OR tenant = :tenant
GROUP BY 1, 2
UNION ALL
SELECT 'ordered', queue, count(*), 0, 0, NULL
FROM (SELECT queue, hold, tenant FROM holdfast_jobs INDEXED BY holdfast_jobs_order_key
      WHERE order_key IS NOT NULL AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks)) LIMIT :cap)
WHERE hold = 'order' AND (:tenant IS NULL OR tenant = :tenant)
GROUP BY 2;

-- name: queue_stats_running
-- How many run is told by the index. Whether they have a lease is told by their rows, which lie scattered over the table.
SELECT 'running' AS kind, counted.queue AS queue, n, coalesce(stuck, 0) AS stuck, coalesce(slow, 0) AS slow, NULL AS oldest
FROM (SELECT queue, count(*) AS n
      FROM (SELECT queue FROM holdfast_jobs INDEXED BY holdfast_jobs_running WHERE state = 'running' /* tenant */ LIMIT :cap)
      GROUP BY queue) AS counted
LEFT JOIN (SELECT queue, sum(lease_expires_at < :now OR coalesce(deadline < :now - :grace, 0)) AS stuck,
               sum(started_at < :now - coalesce(expected_seconds, 300)) AS slow
           FROM (SELECT queue, lease_expires_at, deadline, started_at, expected_seconds
                 FROM holdfast_jobs INDEXED BY holdfast_jobs_running WHERE state = 'running' /* tenant */ LIMIT :look_at)
           GROUP BY queue) AS seen ON seen.queue = counted.queue;

-- name: tally_add
-- Totals stand at minute 0, and what charts of a week are drawn from at minus the hour, of all queues together.
INSERT INTO holdfast_tallies (minute, queue, name, label, n)
SELECT m.minute, a.value ->> '$.queue', a.value ->> '$.name', a.value ->> '$.label', a.value ->> '$.n'
FROM json_each(:tallies) AS a, (SELECT 0 AS minute UNION ALL SELECT CAST(:now / 60 AS INTEGER)) AS m
UNION ALL
SELECT -CAST(:now / 3600 AS INTEGER), 'all', value ->> '$.name', value ->> '$.label', sum(value ->> '$.n')
FROM json_each(:tallies) WHERE value ->> '$.name' IN ('completed', 'failed', 'cancelled', 'retried', 'wait', 'run') GROUP BY 3, 4
ON CONFLICT (minute, queue, name, label) DO UPDATE SET n = n + excluded.n;

-- name: tally_forget
DELETE FROM holdfast_tallies
WHERE (minute > 0 AND minute < CAST(:now / 60 AS INTEGER) - 60) OR (minute < 0 AND minute > 170 - CAST(:now / 3600 AS INTEGER));

-- name: tally_totals
SELECT name, queue, label, n FROM holdfast_tallies WHERE minute = 0 ORDER BY queue, name, label LIMIT 20000;

-- name: tally_recent
SELECT name, queue, label, sum(n), :minutes * 60 + (:now - 60 * CAST(:now / 60 AS INTEGER)) AS covered
FROM holdfast_tallies WHERE minute > 0 AND minute >= CAST(:now / 60 AS INTEGER) - :minutes
GROUP BY name, queue, label;
