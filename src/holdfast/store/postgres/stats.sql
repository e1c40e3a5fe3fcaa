-- name: job_counts
SELECT state, n FROM holdfast.job_counts_v1($1, $2)

-- name: queue_stats
SELECT kind, queue, n, stuck, slow, oldest FROM holdfast.queue_stats_v2($1, $2, $3, $4, $5)

-- name: tally_add
-- What is older than any question is taken away by the way. Totals stand at minute 0, and what charts of a week are drawn
-- from at minus the hour, of all queues together.
WITH now AS (
    SELECT CAST(floor(extract(epoch FROM coalesce($2, clock_timestamp())) / CAST(60 AS numeric)) AS integer) AS minute
), old AS (
    DELETE FROM holdfast.tallies WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.tallies WHERE minute > 0 AND minute < (SELECT minute FROM now) - 60 LIMIT 1000 FOR UPDATE SKIP LOCKED))
), older AS (
    DELETE FROM holdfast.tallies WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.tallies WHERE minute < 0 AND minute > 170 - (SELECT minute FROM now) / 60
         LIMIT 1000 FOR UPDATE SKIP LOCKED))
), given AS (
    SELECT * FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS a (queue text, name text, label text, n double precision)
)
INSERT INTO holdfast.tallies AS t (minute, queue, name, label, n)
SELECT m.minute, a.queue, a.name, a.label, a.n FROM given AS a CROSS JOIN (SELECT 0 AS minute UNION ALL SELECT minute FROM now) AS m
 UNION ALL
SELECT -(now.minute / 60), 'all', a.name, a.label, sum(a.n) FROM given AS a CROSS JOIN now
 WHERE a.name IN ('completed', 'failed', 'cancelled', 'retried', 'wait', 'run') GROUP BY 1, 3, 4
 ORDER BY 1, 2, 3, 4
ON CONFLICT (minute, queue, name, label) DO UPDATE SET n = t.n + excluded.n

-- name: tally_totals
SELECT name, queue, label, n FROM holdfast.tallies WHERE minute = 0 ORDER BY queue, name, label LIMIT 20000

-- name: tally_recent
WITH now AS (SELECT extract(epoch FROM coalesce($2, clock_timestamp())) AS seconds)
SELECT t.name, t.queue, t.label, sum(t.n), CAST(CAST($1 AS integer) * 60 AS double precision) + CAST(mod((SELECT seconds FROM now), CAST(60 AS numeric)) AS double precision) AS covered
  FROM holdfast.tallies t WHERE t.minute > 0 AND t.minute >= CAST(floor((SELECT seconds FROM now) / CAST(60 AS numeric)) AS integer) - CAST($1 AS integer)
 GROUP BY t.name, t.queue, t.label
