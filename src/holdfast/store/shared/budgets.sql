-- name: budget_look
-- The time, the tenant's time zone, and its cap: its own, or its plan's.
SELECT :now AS now_at, coalesce(t.timezone, 'UTC') AS timezone, own.cents AS own_cents, of_plan.cents AS plan_cents
FROM (SELECT CAST($1 AS text) AS tenant, CAST($2 AS text) AS kind) AS asked
LEFT JOIN holdfast.tenants AS t ON t.id = asked.tenant
LEFT JOIN holdfast.budgets AS own ON own.subject = 'tenant:' || asked.tenant AND own.kind = asked.kind
LEFT JOIN holdfast.budgets AS of_plan
    ON asked.tenant <> '' AND of_plan.subject = 'plan:' || coalesce(t.plan, 'free') AND of_plan.kind = asked.kind;

-- name: budget_used_up
-- For the door: one row if nothing is left this month.
SELECT coalesce(own.cents, of_plan.cents) + coalesce(m.extra, 0) AS cents, coalesce(m.spent, 0) AS spent,
       -:since(m.ends_at) AS seconds
FROM (SELECT CAST($1 AS text) AS tenant, CAST($2 AS text) AS kind) AS asked
LEFT JOIN holdfast.tenants AS t ON t.id = asked.tenant
LEFT JOIN holdfast.budgets AS own ON own.subject = 'tenant:' || asked.tenant AND own.kind = asked.kind
LEFT JOIN holdfast.budgets AS of_plan
    ON asked.tenant <> '' AND of_plan.subject = 'plan:' || coalesce(t.plan, 'free') AND of_plan.kind = asked.kind
LEFT JOIN holdfast.budget_months AS m ON m.tenant = asked.tenant AND m.kind = asked.kind AND m.ends_at > :now
WHERE coalesce(m.spent, 0) >= coalesce(own.cents, of_plan.cents) + coalesce(m.extra, 0) - CAST(0.000001 AS double precision)
ORDER BY m.month DESC LIMIT 1;

-- name: budget_month
SELECT spent, late, extra, warned_at, opened_at FROM holdfast.budget_months WHERE tenant = $1 AND kind = $2 AND month = $3;

-- name: budget_add
-- To what was spent, to what of it was late, and to the month's cap. Adding nothing locks the month: it is locked before any
-- row of budget_runs, always.
INSERT INTO holdfast.budget_months AS m (tenant, kind, month, ends_at, spent, late, extra) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, kind, month) DO UPDATE SET
    spent = m.spent + excluded.spent, late = m.late + excluded.late, extra = m.extra + excluded.extra, ends_at = excluded.ends_at
RETURNING spent, late, extra, warned_at, opened_at;

-- name: budget_mark
UPDATE holdfast.budget_months SET
    warned_at = CASE WHEN $4 THEN coalesce(warned_at, :now) END, opened_at = CASE WHEN $5 THEN coalesce(opened_at, :now) END
WHERE tenant = $1 AND kind = $2 AND month = $3;

-- name: budget_close_ended
UPDATE holdfast.budget_runs AS b SET is_open = false
WHERE b.tenant = $1 AND b.kind = $2 AND b.is_open
  AND NOT EXISTS (SELECT 1 FROM holdfast.jobs AS j WHERE j.id = b.job_id AND j.run_id = b.run_id AND j.state = 'running');

-- name: budget_reserved
-- What runs that hold their job may still spend of what they reserved.
SELECT coalesce(sum(CASE WHEN b.reserved > b.spent THEN b.reserved - b.spent ELSE 0 END), 0) AS cents
FROM holdfast.budget_runs AS b JOIN holdfast.jobs AS j ON j.id = b.job_id AND j.run_id = b.run_id AND j.state = 'running'
WHERE b.tenant = $1 AND b.kind = $2 AND b.is_open;

-- name: budget_reserve
INSERT INTO holdfast.budget_runs (run_id, kind, job_id, tenant, reserved, is_open, created_at)
VALUES ($1, $2, $3, $4, $5, true, :now)
ON CONFLICT (run_id, kind) DO NOTHING;

-- name: budget_held
-- Whether this run has its job, or has completed it.
SELECT id FROM holdfast.jobs WHERE id = $1 AND run_id = $2 AND state IN ('running', 'completed');

-- name: budget_spend
INSERT INTO holdfast.budget_runs AS b (run_id, kind, job_id, tenant, spent, late, is_open, created_at)
VALUES ($1, $2, $3, $4, $5, $6, false, :now)
ON CONFLICT (run_id, kind) DO UPDATE SET spent = b.spent + excluded.spent, late = b.late + excluded.late
RETURNING reserved, spent;

-- name: budget_once
-- One row the first time. Its key is in the transaction of the money: a caller that asks again after a lost answer finds it.
INSERT INTO holdfast.idempotency_keys (id, tenant, fingerprint, token, response, lease_expires_at, expires_at)
VALUES ($1, $2, '', '', '', :now, :later($3))
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: budget_runs
SELECT CAST(job_id AS text) AS job_id, CAST(run_id AS text) AS run_id, kind, reserved, spent, late, created_at
FROM holdfast.budget_runs WHERE tenant = $1 AND kind = $2 ORDER BY created_at DESC LIMIT $3;

-- name: budget_set
INSERT INTO holdfast.budgets (subject, kind, cents, updated_at, updated_by) VALUES ($1, $2, $3, :now, $4)
ON CONFLICT (subject, kind) DO UPDATE
SET cents = excluded.cents, updated_at = excluded.updated_at, updated_by = excluded.updated_by;

-- name: budget_unset
DELETE FROM holdfast.budgets WHERE subject = $1 AND kind = $2;

-- name: budget_plans
SELECT substr(subject, 6) AS plan, kind, cents FROM holdfast.budgets WHERE subject LIKE 'plan:%' ORDER BY subject, kind;

-- name: budget_names
-- Whose budgets there are to tell of: those with a cap of their own, and those who spent something this month.
SELECT tenant, kind FROM (
    SELECT substr(subject, 8) AS tenant, kind FROM holdfast.budgets WHERE subject LIKE 'tenant:%'
    UNION
    SELECT tenant, kind FROM holdfast.budget_months WHERE ends_at > :now
    UNION
    SELECT t.id, b.kind FROM holdfast.tenants AS t JOIN holdfast.budgets AS b ON b.subject = 'plan:' || t.plan
) AS known
WHERE (CAST($1 AS text) IS NULL OR tenant = $1) AND (CAST($2 AS text) IS NULL OR (tenant, kind) > (CAST($2 AS text), CAST($3 AS text)))
ORDER BY tenant, kind LIMIT $4;

-- name: budget_release
-- Held jobs may ask again: the cap was raised.
UPDATE holdfast.jobs SET run_at = :now
WHERE state = 'queued' AND hold = 'time' AND error_code = 'budget_exhausted' AND run_at > :now AND coalesce(tenant, '') = $1
RETURNING id;

-- name: budget_release_all
UPDATE holdfast.jobs SET run_at = :now
WHERE state = 'queued' AND hold = 'time' AND error_code = 'budget_exhausted' AND run_at > :now
RETURNING id;

-- name: budget_totals
-- Over all tenants, for metrics.
SELECT kind, sum(spent) AS spent, sum(late) AS late, sum(CASE WHEN opened_at IS NULL THEN 0 ELSE 1 END) AS used_up
FROM holdfast.budget_months WHERE ends_at > :now GROUP BY kind ORDER BY kind;

-- name: budget_prune_runs
DELETE FROM holdfast.budget_runs
WHERE (run_id, kind) IN (
    SELECT run_id, kind FROM holdfast.budget_runs WHERE :since(created_at) > $1 AND NOT is_open ORDER BY created_at LIMIT $2)
RETURNING kind;

-- name: budget_prune_months
DELETE FROM holdfast.budget_months
WHERE (tenant, kind, month) IN (
    SELECT tenant, kind, month FROM holdfast.budget_months WHERE :since(ends_at) > $1 ORDER BY ends_at LIMIT $2)
RETURNING kind;
