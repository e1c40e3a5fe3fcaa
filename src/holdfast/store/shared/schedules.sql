-- name: clock_read
SELECT :now AS now_at

-- name: agenda_look
-- All that whoever keeps the schedules asks while there is nothing to do: when the next one falls due, and whether a batch is open.
SELECT (SELECT -:since(next_at) FROM holdfast.schedules WHERE paused_at IS NULL AND task IS NOT NULL ORDER BY next_at LIMIT 1) AS seconds,
       EXISTS (SELECT 1 FROM holdfast.batches WHERE ended_at IS NULL) AS batches

-- name: schedule_put
-- One whose times stay as they were keeps its next tick: a program that sets it at each start must not put it off for ever.
INSERT INTO holdfast.schedules AS known
    (name, tenant, task, args, cron, seconds, tz, missed, declared, next_at, created_by, id, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, :now, :now)
ON CONFLICT (coalesce(tenant, ''), name) DO UPDATE SET
    task = excluded.task, args = excluded.args, cron = excluded.cron, seconds = excluded.seconds, tz = excluded.tz,
    missed = excluded.missed, declared = excluded.declared, error = NULL, revision = known.revision + 1, updated_at = :now,
    next_at = CASE WHEN coalesce(known.cron, '') = coalesce(excluded.cron, '') AND known.tz = excluded.tz
                    AND coalesce(known.seconds, 0) = coalesce(excluded.seconds, 0) THEN known.next_at ELSE excluded.next_at END
RETURNING name, :tell('schedule') AS told

-- name: schedule_get
SELECT s.name, s.tenant, s.task, s.args, s.cron, s.seconds, s.tz, s.missed, s.declared, s.revision, s.next_at, s.paused_at, s.paused_by,
       s.last_at, s.last_job_id, s.result, s.error, s.created_at, s.created_by, s.updated_at,
       j.state AS last_state, j.error_message AS last_error
FROM holdfast.schedules AS s LEFT JOIN holdfast.jobs AS j ON j.id = s.last_job_id
WHERE coalesce(s.tenant, '') = $1 AND s.name = $2

-- name: schedule_list
SELECT s.name, s.tenant, s.task, s.args, s.cron, s.seconds, s.tz, s.missed, s.declared, s.revision, s.next_at, s.paused_at, s.paused_by,
       s.last_at, s.last_job_id, s.result, s.error, s.created_at, s.created_by, s.updated_at,
       j.state AS last_state, j.error_message AS last_error
FROM holdfast.schedules AS s LEFT JOIN holdfast.jobs AS j ON j.id = s.last_job_id
WHERE (CAST($1 AS text) IS NULL OR coalesce(s.tenant, '') = $1)
  AND (coalesce(s.tenant, '') > $2 OR (coalesce(s.tenant, '') = $2 AND s.name > $3))
ORDER BY coalesce(s.tenant, ''), s.name LIMIT $4

-- name: schedule_due
SELECT name, tenant, task, args, cron, seconds, tz, missed, declared, revision, next_at, error, :now AS now_at
FROM holdfast.schedules WHERE paused_at IS NULL AND task IS NOT NULL AND next_at <= :now ORDER BY next_at LIMIT $1

-- name: schedule_advance
-- The guard of every tick: of all who saw it fall due one gets a row, the others find another revision.
UPDATE holdfast.schedules
SET next_at = $4, last_at = coalesce($5, last_at), error = $6, revision = revision + 1, updated_at = :now
WHERE coalesce(tenant, '') = $1 AND name = $2 AND revision = $3 AND paused_at IS NULL
RETURNING name

-- name: schedule_made
UPDATE holdfast.schedules SET last_job_id = $3, last_at = coalesce($4, :now) WHERE coalesce(tenant, '') = $1 AND name = $2

-- name: schedule_pause
UPDATE holdfast.schedules SET paused_at = :now, paused_by = $3, revision = revision + 1, updated_at = :now
WHERE coalesce(tenant, '') = $1 AND name = $2 AND paused_at IS NULL
RETURNING name

-- name: schedule_resume
UPDATE holdfast.schedules
SET paused_at = NULL, paused_by = NULL, next_at = $3, revision = revision + 1, updated_at = :now
WHERE coalesce(tenant, '') = $1 AND name = $2 AND paused_at IS NOT NULL
RETURNING name, :tell('schedule') AS told

-- name: schedule_delete
DELETE FROM holdfast.schedules WHERE coalesce(tenant, '') = $1 AND name = $2 AND task IS NOT NULL RETURNING name

-- name: system_take
-- Of all reapers that ask, one does the system's own work of this interval.
UPDATE holdfast.schedules SET next_at = :later($2), last_at = :now, revision = revision + 1, updated_at = :now
WHERE name = $1 AND coalesce(tenant, '') = '' AND task IS NULL AND paused_at IS NULL AND next_at <= :now
RETURNING name

-- name: system_bring_forward
UPDATE holdfast.schedules SET next_at = :now, revision = revision + 1, updated_at = :now
WHERE coalesce(tenant, '') = '' AND name = $1 AND task IS NULL
RETURNING name

-- name: system_result
UPDATE holdfast.schedules SET result = $2, last_at = :now WHERE coalesce(tenant, '') = '' AND name = $1 AND task IS NULL
