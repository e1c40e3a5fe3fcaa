-- name: size_counts
-- Each counted to a cap.
SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs LIMIT $1) AS t) AS jobs,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.runs LIMIT $1) AS t) AS runs,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.logs LIMIT $1) AS t) AS logs,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.events LIMIT $1) AS t) AS events,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.steps LIMIT $1) AS t) AS steps,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.batches LIMIT $1) AS t) AS batches,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.idempotency_keys LIMIT $1) AS t) AS idempotency_keys,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.rate_buckets LIMIT $1) AS t) AS rate_buckets,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.sessions LIMIT $1) AS t) AS sessions,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.workers LIMIT $1) AS t) AS workers
