-- name: webhook_insert
INSERT INTO holdfast.webhooks (id, tenant, url, events, description, secret, created_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, :now, $7)
RETURNING id, tenant, url, events, description, failures, failing_since_at, retry_at, last_error, disabled_at, disabled_reason,
    old_secret_ends_at, created_at, created_by

-- name: webhook_change
-- What is null stays as it is.
UPDATE holdfast.webhooks
SET url = coalesce($3, url), events = coalesce($4, events), description = coalesce($5, description)
WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2)
RETURNING id, tenant, url, events, description, failures, failing_since_at, retry_at, last_error, disabled_at, disabled_reason,
    old_secret_ends_at, created_at, created_by

-- name: webhook_rotate
UPDATE holdfast.webhooks SET old_secret = secret, old_secret_ends_at = :later($4), secret = $3
WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2)
RETURNING id, tenant, url, events, description, failures, failing_since_at, retry_at, last_error, disabled_at, disabled_reason,
    old_secret_ends_at, created_at, created_by

-- name: webhook_list
SELECT id, tenant, url, events, description, failures, failing_since_at, retry_at, last_error, disabled_at, disabled_reason,
    old_secret_ends_at, created_at, created_by
FROM holdfast.webhooks
WHERE (CAST($1 AS text) IS NULL OR tenant = $1) AND (CAST($2 AS text) IS NULL OR id < $2)
ORDER BY id DESC LIMIT $3

-- name: webhook_get
SELECT id, tenant, url, events, description, failures, failing_since_at, retry_at, last_error, disabled_at, disabled_reason,
    old_secret_ends_at, created_at, created_by
FROM holdfast.webhooks WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2)

-- name: webhook_remove
DELETE FROM holdfast.webhooks WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2) RETURNING id, tenant, url

-- name: webhook_targets
-- Also run on callers' connections, hence one row for each and nothing that is secret.
SELECT id, events FROM holdfast.webhooks WHERE tenant = $1 AND disabled_at IS NULL ORDER BY id

-- name: webhook_for_delivery
SELECT id, tenant, url, secret, failures, disabled_at, disabled_reason, :now AS now_at, -:since(retry_at) AS wait_seconds,
    CASE WHEN old_secret_ends_at > :now THEN old_secret END AS old_secret
FROM holdfast.webhooks WHERE id = $1

-- name: webhook_recovered
UPDATE holdfast.webhooks SET failures = 0, failing_since_at = NULL, retry_at = NULL, last_error = NULL
WHERE id = $1 AND failures > 0 RETURNING id

-- name: webhook_failed
UPDATE holdfast.webhooks
SET failures = failures + 1, failing_since_at = coalesce(failing_since_at, :now), retry_at = :later($2), last_error = $3
WHERE id = $1
RETURNING failures, :since(failing_since_at) AS failing_seconds

-- name: webhook_disable
UPDATE holdfast.webhooks SET disabled_at = :now, disabled_reason = $3
WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2) AND disabled_at IS NULL RETURNING id, tenant

-- name: webhook_enable
UPDATE holdfast.webhooks
SET disabled_at = NULL, disabled_reason = NULL, failures = 0, failing_since_at = NULL, retry_at = NULL, last_error = NULL
WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2) AND disabled_at IS NOT NULL RETURNING id, tenant

-- name: delivery_list
-- Newest first, those before an id. The task is written here and not given, so that jobs_deliveries can be used; sorted is by the
-- column and not by the text that is shown, so that nothing but the page is read.
SELECT CAST(j.id AS text) AS id, CAST(args AS text) AS args, state, hold, attempt,
    cancel_requested_at, CAST(result AS text) AS answer, error_code, error_message, run_at, created_at, finished_at
FROM holdfast.jobs AS j
WHERE task = 'holdfast:deliver' AND project = $1 AND j.id < $2 AND (CAST($4 AS text) IS NULL OR state = $4)
ORDER BY j.id DESC LIMIT $3

-- name: delivery_list_failed
-- The same by jobs_deliveries_failed.
SELECT CAST(j.id AS text) AS id, CAST(args AS text) AS args, state, hold, attempt,
    cancel_requested_at, CAST(result AS text) AS answer, error_code, error_message, run_at, created_at, finished_at
FROM holdfast.jobs AS j
WHERE task = 'holdfast:deliver' AND state = 'failed' AND project = $1 AND j.id < $2 ORDER BY j.id DESC LIMIT $3

-- name: delivery_list_of_state
-- The same for what waits, runs or was cancelled, by jobs_tenant: that is little beside what has completed.
SELECT CAST(j.id AS text) AS id, CAST(args AS text) AS args, state, hold, attempt,
    cancel_requested_at, CAST(result AS text) AS answer, error_code, error_message, run_at, created_at, finished_at
FROM holdfast.jobs AS j
WHERE tenant = $5 AND state = $4 AND task = 'holdfast:deliver' AND project = $1 AND j.id < $2
ORDER BY tenant DESC, state DESC, j.id DESC LIMIT $3

-- name: delivery_get
SELECT CAST(id AS text) AS id, CAST(args AS text) AS args, state, hold, attempt,
    cancel_requested_at, CAST(result AS text) AS answer, error_code, error_message, run_at, created_at, finished_at
FROM holdfast.jobs
WHERE task = 'holdfast:deliver' AND project = $1 AND CAST(id AS text) = $2

-- name: delivery_failed_first
-- Oldest first, as they are to be sent again.
SELECT CAST(j.id AS text) AS id FROM holdfast.jobs AS j
WHERE task = 'holdfast:deliver' AND state = 'failed' AND project = $1 AND j.id > $2 ORDER BY j.id LIMIT $3

-- name: delivery_hasten
-- A receiver that is back is not kept waiting: what was to be tried again later is due now.
UPDATE holdfast.jobs SET run_at = :now
WHERE task = 'holdfast:deliver' AND project = $1 AND state = 'queued' AND hold = 'time' AND run_at > :now

-- name: announce_take
-- Ends that nobody was told of yet, marked as told in the transaction that makes the messages. A job that another process
-- takes at the same moment is not returned: its row is looked at again once that one has committed.
UPDATE holdfast.jobs SET announced = run_no
WHERE id IN (
        SELECT id FROM holdfast.jobs
        WHERE announced < run_no AND state IN ('completed', 'failed', 'cancelled') ORDER BY id LIMIT $1
    )
    AND announced < run_no AND state IN ('completed', 'failed', 'cancelled')
RETURNING CAST(id AS text) AS id, run_no, task, queue, tenant, project, state, attempt, error_code, error_message, created_at,
    started_at, finished_at

-- name: inbound_note
-- One row if this delivery is new. Somebody who is noting the same one right now is waited for.
INSERT INTO holdfast.idempotency_keys AS known (id, tenant, fingerprint, token, lease_expires_at, expires_at)
VALUES ($1, $2, '', $3, :now, :later($4))
ON CONFLICT (id) DO UPDATE SET
    token = excluded.token, response = NULL, lease_expires_at = excluded.lease_expires_at,
    expires_at = excluded.expires_at
WHERE known.expires_at <= :now
RETURNING id

-- name: inbound_keep
UPDATE holdfast.idempotency_keys SET response = $2 WHERE id = $1
