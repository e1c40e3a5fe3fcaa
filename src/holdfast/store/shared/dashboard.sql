-- name: tally_minutes
-- Of all queues, minute by minute; how many rows there are depends on the minutes alone.
SELECT minute, name, label, sum(n) AS n FROM holdfast.tallies
WHERE minute >= $1 AND name IN ('completed', 'failed', 'cancelled', 'retried', 'wait', 'run')
GROUP BY minute, name, label

-- name: tally_hours
-- The same hour by hour, from the newest back to minus $1: at most a week, of all queues together.
SELECT -minute AS hour, name, label, n FROM holdfast.tallies WHERE minute <= $1

-- name: tally_minutes_by_queue
SELECT queue, minute, sum(n) AS n FROM holdfast.tallies
WHERE minute >= $1 AND name IN ('completed', 'failed', 'cancelled')
GROUP BY queue, minute ORDER BY queue, minute LIMIT $2

-- name: job_recent_of_tenant
-- The newest of each way to end, straight from the index of tenants: how long ago each began to wait, to run, and ended.
SELECT * FROM (SELECT state, :since(run_at) AS waited, :since(started_at) AS ran, :since(finished_at) AS ended FROM holdfast.jobs
    WHERE tenant = $1 AND state = 'completed' ORDER BY tenant DESC, state DESC, id DESC LIMIT $2) AS completed
UNION ALL
SELECT * FROM (SELECT state, :since(run_at) AS waited, :since(started_at) AS ran, :since(finished_at) AS ended FROM holdfast.jobs
    WHERE tenant = $1 AND state = 'failed' ORDER BY tenant DESC, state DESC, id DESC LIMIT $2) AS failed
UNION ALL
SELECT * FROM (SELECT state, :since(run_at) AS waited, :since(started_at) AS ran, :since(finished_at) AS ended FROM holdfast.jobs
    WHERE tenant = $1 AND state = 'cancelled' ORDER BY tenant DESC, state DESC, id DESC LIMIT $2) AS cancelled

-- name: step_list
SELECT name, run_id, created_at FROM holdfast.steps WHERE job_id = $1 ORDER BY created_at LIMIT $2

-- name: log_steps
-- When each step of a run spoke first and last, over the first lines of its log.
SELECT step, min(created_at) AS first_at, max(created_at) AS last_at, count(*) AS lines, max(duration_ms) AS duration_ms,
    max(CASE level WHEN 'error' THEN 2 WHEN 'warning' THEN 1 ELSE 0 END) AS worst
FROM (SELECT step, created_at, duration_ms, level FROM holdfast.logs WHERE run_id = $1 ORDER BY no LIMIT $2) AS lines
WHERE step IS NOT NULL GROUP BY step ORDER BY 2 LIMIT 100

-- name: job_newest_bound
-- Of the jobs before an id, where the newest so many of them end; none where there are not so many.
SELECT id FROM holdfast.jobs WHERE id < $1 ORDER BY id DESC LIMIT 1 OFFSET $2

-- name: job_newest_bound_of_tenant
-- The same for one tenant, straight from its index: where the first of its states has had so many.
SELECT id FROM (
    SELECT id FROM (SELECT id FROM holdfast.jobs WHERE tenant = $1 AND state = 'queued' AND id < $2
        ORDER BY tenant DESC, state DESC, id DESC LIMIT 1 OFFSET $3) AS queued
    UNION ALL
    SELECT id FROM (SELECT id FROM holdfast.jobs WHERE tenant = $1 AND state = 'completed' AND id < $2
        ORDER BY tenant DESC, state DESC, id DESC LIMIT 1 OFFSET $3) AS completed
    UNION ALL
    SELECT id FROM (SELECT id FROM holdfast.jobs WHERE tenant = $1 AND state = 'failed' AND id < $2
        ORDER BY tenant DESC, state DESC, id DESC LIMIT 1 OFFSET $3) AS failed
    UNION ALL
    SELECT id FROM (SELECT id FROM holdfast.jobs WHERE tenant = $1 AND state = 'cancelled' AND id < $2
        ORDER BY tenant DESC, state DESC, id DESC LIMIT 1 OFFSET $3) AS cancelled
) AS ends ORDER BY id DESC LIMIT 1

-- name: job_newest_bound_of_state
-- The same for one state of a tenant.
SELECT id FROM holdfast.jobs WHERE tenant = $1 AND state = $4 AND id < $2
ORDER BY tenant DESC, state DESC, id DESC LIMIT 1 OFFSET $3
