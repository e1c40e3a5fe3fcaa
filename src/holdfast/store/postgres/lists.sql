-- name: job_matching
-- Newest first. A state is put in by name: under a generic plan the partial indexes could not be used otherwise.
SELECT j.* FROM holdfast.jobs j
 WHERE ($1::text[] IS NULL OR j.state = ANY ($1)) /* state */ AND $4::text IS NULL
   AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.task = $3) AND ($5::text IS NULL OR j.project = $5)
   AND ($6::text IS NULL OR $6 = ANY (j.tags)) AND ($7::timestamptz IS NULL OR j.created_at >= $7)
   AND ($8::timestamptz IS NULL OR j.created_at < $8) AND ($9::uuid IS NULL OR j.id < $9)
   AND j.id >= coalesce($11::uuid, uuid '00000000-0000-0000-0000-000000000000')
 ORDER BY j.id DESC LIMIT $10

-- name: job_matching_of_tenant
-- State by state, each from its own place in jobs_tenant. The rows are compared as a whole, and sorted as a whole, so that
-- no plan walks through the jobs of other tenants by the primary key, whatever the statistics say.
SELECT j.* FROM pg_catalog.unnest(coalesce($1::text[], ARRAY['queued', 'running', 'completed', 'failed', 'cancelled'])) AS s (state)
 CROSS JOIN LATERAL (
    SELECT i.* FROM holdfast.jobs i
     WHERE i.tenant IS NOT NULL
       AND (i.tenant, i.state, i.id) >= ($4::text, s.state, coalesce($11::uuid, uuid '00000000-0000-0000-0000-000000000000'))
       AND (i.tenant, i.state, i.id) < ($4::text, s.state, coalesce($9::uuid, uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
       AND ($2::text IS NULL OR i.queue = $2) AND ($3::text IS NULL OR i.task = $3) AND ($5::text IS NULL OR i.project = $5)
       AND ($6::text IS NULL OR $6 = ANY (i.tags)) AND ($7::timestamptz IS NULL OR i.created_at >= $7)
       AND ($8::timestamptz IS NULL OR i.created_at < $8)
     ORDER BY i.tenant DESC, i.state DESC, i.id DESC LIMIT $10) AS j
 ORDER BY j.id DESC LIMIT $10

-- name: job_list
SELECT id::text, queue, task, state, run_id::text, attempt, max_attempts, run_no, priority, tenant, project, actor, args::text, hold,
       run_at, unique_key, order_key, locked_by, machine_id, lease_expires_at, last_heartbeat_at, deadline,
       expected_seconds AS expected_duration, stage, progress, cancel_requested_at, cancel_requested_by, error_code,
       error_message, result::text AS output, tags, meta::text, enqueued_by, trace_context, batch, created_at, started_at, finished_at,
       updated_at
  FROM (/* matching */) AS found ORDER BY found.id DESC

-- name: job_glances
SELECT id::text, task, queue, tenant, state, hold, attempt, stage, progress, cancel_requested_at, error_code, updated_at
  FROM (/* matching */) AS found ORDER BY found.id DESC

-- name: job_pick
SELECT id::text FROM (/* matching */) AS found ORDER BY found.id DESC

-- name: job_count
SELECT count(*) FROM (/* matching */) AS found

-- name: job_count_of_tenant
-- Where nothing but states is asked for, jobs_tenant tells it alone.
SELECT least($3::bigint, sum(counted.n)) FROM pg_catalog.unnest($2::text[]) AS s (state) CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs i WHERE i.tenant = $1 AND i.state = s.state
         ORDER BY i.tenant DESC, i.state DESC, i.id DESC LIMIT $3::bigint) AS found) AS counted

-- name: job_count_of_all
-- Part by part, each with an index of its own.
SELECT count(*) FROM (SELECT 1 FROM holdfast.jobs j WHERE true /* part */ LIMIT $1) AS found

-- name: job_cancel_many
SELECT id::text FROM holdfast.jobs_cancel_v1($1, $2, $3) AS id

-- name: job_retry_many
SELECT asked.id::text, holdfast.job_retry_v1(asked.id, $2, $3)
  FROM (SELECT id FROM pg_catalog.unnest($1::uuid[]) AS id ORDER BY id) AS asked
