-- name: lanes_after
-- The next distinct tenants with claimable work in a queue, beginning after :after (a number: at the beginning, since
-- every text is greater; jobs without a tenant are the tenant ''). One index probe each, however long their backlogs are.
WITH RECURSIVE hop (tenant, hops) AS (
    SELECT (
        SELECT coalesce(tenant, '') FROM holdfast_jobs
        WHERE queue = :queue AND state = 'queued' AND hold IS NULL AND coalesce(tenant, '') > :after
        ORDER BY coalesce(tenant, '') LIMIT 1), 1
    UNION ALL
    SELECT (
        SELECT coalesce(tenant, '') FROM holdfast_jobs
        WHERE queue = :queue AND state = 'queued' AND hold IS NULL AND coalesce(tenant, '') > hop.tenant
        ORDER BY coalesce(tenant, '') LIMIT 1), hops + 1
    FROM hop WHERE hop.tenant IS NOT NULL AND hops < :most
)
SELECT tenant FROM hop WHERE tenant IS NOT NULL;

-- name: lanes_room
-- How many more jobs each of these tenants may run now (null: no limit), and its weight.
SELECT lane.value AS lane, coalesce(plan.weight, 1) AS weight,
    CASE
        WHEN lane.value = '' THEN NULL
        WHEN tenant.paused_at IS NOT NULL THEN 0
        ELSE max(0, coalesce(tenant.max_running, plan.max_running) - (
            SELECT count(*) FROM holdfast_jobs WHERE state = 'running' AND coalesce(holdfast_jobs.tenant, '') = lane.value))
    END AS room
FROM json_each(:lanes) AS lane
LEFT JOIN holdfast_tenants AS tenant ON tenant.id = lane.value
LEFT JOIN holdfast_plans AS plan ON plan.name = coalesce(tenant.plan, 'free')
ORDER BY lane.key;

-- name: queue_get
SELECT asked.name, queue.max_running AS "limit",
    CASE WHEN queue.max_running IS NULL THEN 0 ELSE (
        SELECT count(*) FROM holdfast_jobs WHERE state = 'running' AND holdfast_jobs.queue = asked.name)
    END AS running, queue.paused_at, queue.paused_by
FROM (SELECT :queue AS name) AS asked LEFT JOIN holdfast_queues AS queue ON queue.name = asked.name;

-- name: queue_list
SELECT name, max_running AS "limit",
    CASE WHEN max_running IS NULL THEN 0 ELSE (
        SELECT count(*) FROM holdfast_jobs WHERE state = 'running' AND queue = holdfast_queues.name)
    END AS running, paused_at, paused_by
FROM holdfast_queues ORDER BY name;

-- name: queue_set
INSERT INTO holdfast_queues (name, max_running, updated_at) VALUES (:queue, :max_running, :now)
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running, updated_at = excluded.updated_at;

-- name: queue_pause
INSERT INTO holdfast_queues (name, paused_at, paused_by, updated_at)
VALUES (:queue, CASE WHEN :paused THEN :now END, CASE WHEN :paused THEN :by END, :now)
ON CONFLICT (name) DO UPDATE SET
    paused_at = CASE WHEN :paused THEN coalesce(paused_at, excluded.paused_at) END,
    paused_by = CASE WHEN :paused THEN coalesce(paused_by, excluded.paused_by) END, updated_at = excluded.updated_at;

-- name: tenant_get
SELECT asked.id, coalesce(tenant.plan, 'free') AS plan, coalesce(tenant.max_running, plan.max_running) AS "limit",
    coalesce(tenant.queue_depth, plan.queue_depth) AS queue_depth,
    (SELECT count(*) FROM holdfast_jobs WHERE state = 'running' AND coalesce(holdfast_jobs.tenant, '') = asked.id) AS running, tenant.paused_at, tenant.paused_by,
    coalesce(tenant.timezone, 'UTC') AS timezone
FROM (SELECT :tenant AS id) AS asked
LEFT JOIN holdfast_tenants AS tenant ON tenant.id = asked.id
LEFT JOIN holdfast_plans AS plan ON plan.name = coalesce(tenant.plan, 'free');

-- name: tenant_list
-- The plus takes the type of a column away, with which no index of an expression is used: all that runs was read for each.
SELECT tenant.id, tenant.plan, coalesce(tenant.max_running, plan.max_running) AS "limit",
    coalesce(tenant.queue_depth, plan.queue_depth) AS queue_depth,
    (SELECT count(*) FROM holdfast_jobs
     WHERE state = 'running' AND coalesce(holdfast_jobs.tenant, '') = +tenant.id) AS running, tenant.paused_at, tenant.paused_by,
    tenant.timezone
FROM holdfast_tenants AS tenant JOIN holdfast_plans AS plan ON plan.name = tenant.plan
WHERE :after IS NULL OR tenant.id > :after ORDER BY tenant.id LIMIT :limit;

-- name: tenant_set
-- Null plan or time zone: as it was. The flags say whether a number is mentioned at all; null is a value (as the plan says).
INSERT INTO holdfast_tenants (id, plan, max_running, queue_depth, updated_at, timezone)
VALUES (:tenant, coalesce(:plan, 'free'), :max_running, :queue_depth, :now, coalesce(:timezone, 'UTC'))
ON CONFLICT (id) DO UPDATE SET
    plan = coalesce(:plan, plan), max_running = CASE WHEN :set_max_running THEN excluded.max_running ELSE max_running END,
    queue_depth = CASE WHEN :set_queue_depth THEN excluded.queue_depth ELSE queue_depth END, updated_at = excluded.updated_at,
    timezone = coalesce(:timezone, timezone)
RETURNING plan, max_running, queue_depth, timezone;

-- name: tenant_pause
INSERT INTO holdfast_tenants (id, paused_at, paused_by, updated_at)
VALUES (:tenant, CASE WHEN :paused THEN :now END, CASE WHEN :paused THEN :by END, :now)
ON CONFLICT (id) DO UPDATE SET
    paused_at = CASE WHEN :paused THEN coalesce(paused_at, excluded.paused_at) END,
    paused_by = CASE WHEN :paused THEN coalesce(paused_by, excluded.paused_by) END, updated_at = excluded.updated_at;

-- name: tenant_depths
-- All that is queued, whatever holds it: a delayed job falls due without asking at the door again.
SELECT lane.value AS id,
    (SELECT count(*) FROM holdfast_jobs AS job WHERE job.tenant = lane.value AND job.state = 'queued') AS queued,
    coalesce(tenant.queue_depth, plan.queue_depth) AS most
FROM json_each($1) AS lane
LEFT JOIN holdfast_tenants AS tenant ON tenant.id = lane.value
LEFT JOIN holdfast_plans AS plan ON plan.name = coalesce(tenant.plan, 'free');

-- name: tenant_running
SELECT id FROM holdfast_jobs WHERE state = 'running' AND coalesce(tenant, '') = :tenant ORDER BY started_at, seq LIMIT :limit;

-- name: plan_set
INSERT INTO holdfast_plans (name, max_running, queue_depth, weight) VALUES (:name, :max_running, :queue_depth, :weight)
ON CONFLICT (name) DO UPDATE
SET max_running = excluded.max_running, queue_depth = excluded.queue_depth, weight = excluded.weight;

-- name: plan_list
SELECT name, max_running, queue_depth, weight FROM holdfast_plans ORDER BY max_running, name;

-- name: order_ahead
-- Whichever runs, else the oldest.
SELECT other.id FROM holdfast_jobs AS job
JOIN holdfast_jobs AS other ON coalesce(other.tenant, '') = coalesce(job.tenant, '') AND other.order_key = job.order_key
    AND other.id <> job.id AND (other.state IN ('queued', 'running') OR (other.state = 'failed' AND other.order_blocks))
    AND (other.seq < job.seq OR other.state = 'running')
WHERE job.id = :id AND job.order_key IS NOT NULL ORDER BY (other.state = 'running') DESC, other.seq LIMIT 1;
