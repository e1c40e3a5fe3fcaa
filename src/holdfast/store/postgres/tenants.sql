-- name: tenant_get
SELECT lane.id, coalesce(t.plan, 'free') AS plan, coalesce(t.max_running, p.max_running) AS "limit",
       coalesce(t.queue_depth, p.queue_depth) AS queue_depth,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs j
          WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND coalesce(j.tenant, '') = lane.id
          LIMIT coalesce(t.max_running, p.max_running)) AS running) AS running,
       t.paused_at, t.paused_by, coalesce(t.timezone, 'UTC') AS timezone
  FROM (SELECT $1::text AS id) AS lane
  LEFT JOIN holdfast.tenants t ON t.id = lane.id
  LEFT JOIN holdfast.plans p ON p.name = coalesce(t.plan, 'free')

-- name: tenant_list
SELECT t.id, t.plan, coalesce(t.max_running, p.max_running) AS "limit", coalesce(t.queue_depth, p.queue_depth) AS queue_depth,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs j
          WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND coalesce(j.tenant, '') = t.id
          LIMIT coalesce(t.max_running, p.max_running)) AS running) AS running,
       t.paused_at, t.paused_by, t.timezone
  FROM holdfast.tenants t JOIN holdfast.plans p ON p.name = t.plan
 WHERE $1::text IS NULL OR t.id > $1 ORDER BY t.id LIMIT $2

-- name: tenant_set
-- Null plan or time zone: as it was. The flags say whether a number is mentioned at all; null is a value (as the plan says).
WITH saved AS (
    INSERT INTO holdfast.tenants AS t (id, plan, max_running, queue_depth, updated_at, timezone)
    VALUES ($1, coalesce($2, 'free'), $4, $6, coalesce($8, clock_timestamp()), coalesce($9, 'UTC'))
    ON CONFLICT (id) DO UPDATE
       SET plan = coalesce($2, t.plan), max_running = CASE WHEN $3 THEN excluded.max_running ELSE t.max_running END,
           queue_depth = CASE WHEN $5 THEN excluded.queue_depth ELSE t.queue_depth END, updated_at = excluded.updated_at,
           timezone = coalesce($9, t.timezone)
    RETURNING t.*
), told AS (
    INSERT INTO holdfast.events (tenant, type, actor, data, at)
    SELECT id, 'tenant.changed', $7,
           jsonb_build_object('plan', plan, 'max_running', max_running, 'queue_depth', queue_depth, 'timezone', timezone), updated_at
      FROM saved
)
SELECT pg_notify('holdfast', '') FROM saved

-- name: tenant_pause
WITH saved AS (
    INSERT INTO holdfast.tenants AS t (id, paused_at, paused_by, updated_at)
    VALUES ($1, CASE WHEN $2 THEN coalesce($4, clock_timestamp()) END, CASE WHEN $2 THEN $3 END, coalesce($4, clock_timestamp()))
    ON CONFLICT (id) DO UPDATE
       SET paused_at = CASE WHEN $2 THEN coalesce(t.paused_at, excluded.paused_at) END,
           paused_by = CASE WHEN $2 THEN coalesce(t.paused_by, excluded.paused_by) END, updated_at = excluded.updated_at
    RETURNING t.*
), told AS (
    INSERT INTO holdfast.events (tenant, type, actor, at)
    SELECT id, CASE WHEN $2 THEN 'tenant.paused' ELSE 'tenant.resumed' END, $3, updated_at FROM saved
)
SELECT pg_notify('holdfast', '') FROM saved

-- name: tenant_depths
-- All that is queued, whatever holds it: a delayed job falls due without asking at the door again.
SELECT lane.id,
       (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.jobs j WHERE j.tenant = lane.id AND j.state = 'queued'
             LIMIT coalesce(t.queue_depth, p.queue_depth)) AS waiting),
       coalesce(t.queue_depth, p.queue_depth)
  FROM jsonb_array_elements_text(CAST($1 AS jsonb)) AS lane (id)
  LEFT JOIN holdfast.tenants t ON t.id = lane.id
  LEFT JOIN holdfast.plans p ON p.name = coalesce(t.plan, 'free')

-- name: plan_set
WITH saved AS (
    INSERT INTO holdfast.plans AS p (name, max_running, queue_depth, weight) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running, queue_depth = excluded.queue_depth, weight = excluded.weight
    RETURNING p.*
), told AS (
    INSERT INTO holdfast.events (type, actor, data, at)
    SELECT 'plan.changed', $5,
           jsonb_build_object('plan', name, 'max_running', max_running, 'queue_depth', queue_depth, 'weight', weight),
           coalesce($6, clock_timestamp())
      FROM saved
)
SELECT pg_notify('holdfast', '') FROM saved

-- name: plan_list
SELECT name, max_running, queue_depth, weight FROM holdfast.plans ORDER BY max_running, name

-- name: queue_get
SELECT asked.name, q.max_running AS "limit",
       CASE WHEN q.max_running IS NULL THEN 0 ELSE
            (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs j
               WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND j.queue = asked.name LIMIT q.max_running) AS running) END AS running,
       q.paused_at, q.paused_by
  FROM (SELECT $1::text AS name) AS asked LEFT JOIN holdfast.queues q ON q.name = asked.name

-- name: queue_list
SELECT q.name, q.max_running AS "limit",
       CASE WHEN q.max_running IS NULL THEN 0 ELSE
            (SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs j
               WHERE j.state = 'running' AND j.locked_by IS NOT NULL AND j.queue = q.name LIMIT q.max_running) AS running) END AS running,
       q.paused_at, q.paused_by
  FROM holdfast.queues q ORDER BY q.name

-- name: queue_set
WITH saved AS (
    INSERT INTO holdfast.queues AS q (name, max_running, updated_at) VALUES ($1, $2, coalesce($4, clock_timestamp()))
    ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running, updated_at = excluded.updated_at
    RETURNING q.*
), told AS (
    INSERT INTO holdfast.events (type, actor, data, at)
    SELECT 'queue.changed', $3, jsonb_build_object('queue', name, 'max_running', max_running), updated_at FROM saved
)
SELECT pg_notify('holdfast', '') FROM saved

-- name: queue_pause
WITH saved AS (
    INSERT INTO holdfast.queues AS q (name, paused_at, paused_by, updated_at)
    VALUES ($1, CASE WHEN $2 THEN coalesce($4, clock_timestamp()) END, CASE WHEN $2 THEN $3 END, coalesce($4, clock_timestamp()))
    ON CONFLICT (name) DO UPDATE
       SET paused_at = CASE WHEN $2 THEN coalesce(q.paused_at, excluded.paused_at) END,
           paused_by = CASE WHEN $2 THEN coalesce(q.paused_by, excluded.paused_by) END, updated_at = excluded.updated_at
    RETURNING q.*
), told AS (
    INSERT INTO holdfast.events (type, actor, data, at)
    SELECT CASE WHEN $2 THEN 'queue.paused' ELSE 'queue.resumed' END, $3, jsonb_build_object('queue', name), updated_at FROM saved
)
SELECT pg_notify('holdfast', '') FROM saved

-- name: tenant_running
SELECT id::text FROM holdfast.jobs
 WHERE state = 'running' AND locked_by IS NOT NULL AND coalesce(tenant, '') = $1 ORDER BY started_at, seq LIMIT $2

-- name: order_ahead
-- Whichever runs, else the oldest.
SELECT o.id::text FROM holdfast.jobs j
  JOIN holdfast.jobs o ON coalesce(o.tenant, '') = coalesce(j.tenant, '') AND o.order_key = j.order_key AND o.id <> j.id
   AND (o.state IN ('queued', 'running') OR (o.state = 'failed' AND o.order_blocks)) AND (o.seq < j.seq OR o.state = 'running')
 WHERE j.id = $1 AND j.order_key IS NOT NULL ORDER BY (o.state = 'running') DESC, o.seq LIMIT 1

-- name: table_list
SELECT 'holdfast.' || c.relname AS name, a.attname::text AS column_name,
       coalesce(array_position(k.conkey, a.attnum), 0) AS place
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
 WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p')
 ORDER BY c.relname, a.attnum
