-- name: breaker_look
SELECT name, state, failures, reason, opened_at, opened_by, until_at, probe, -:since(until_at) AS seconds,
       -:since(probe_ends_at) AS probe_seconds
FROM holdfast.breakers WHERE name = $1;

-- name: breaker_list
SELECT name, state, failures, reason, opened_at, opened_by, until_at, probe, -:since(until_at) AS seconds,
       -:since(probe_ends_at) AS probe_seconds
FROM holdfast.breakers ORDER BY name;

-- name: breaker_failed
-- One more failure of a closed breaker: window, how many open it, cool-down, reason. No row: it is not closed any more.
INSERT INTO holdfast.breakers AS b (name, state, failures, window_ends_at, reason, opened_at, until_at, updated_at)
VALUES ($1, CASE WHEN CAST($3 AS integer) <= 1 THEN 'open' ELSE 'closed' END, 1, :later($2), $5,
        CASE WHEN CAST($3 AS integer) <= 1 THEN :now END, CASE WHEN CAST($3 AS integer) <= 1 THEN :later($4) END, :now)
ON CONFLICT (name) DO UPDATE SET
    failures = CASE WHEN b.window_ends_at <= :now THEN 1 ELSE b.failures + 1 END,
    window_ends_at = CASE WHEN b.window_ends_at <= :now THEN excluded.window_ends_at ELSE b.window_ends_at END,
    state = CASE WHEN (CASE WHEN b.window_ends_at <= :now THEN 1 ELSE b.failures + 1 END) >= $3 THEN 'open' ELSE 'closed' END,
    opened_at = CASE WHEN (CASE WHEN b.window_ends_at <= :now THEN 1 ELSE b.failures + 1 END) >= $3 THEN :now END,
    until_at = CASE WHEN (CASE WHEN b.window_ends_at <= :now THEN 1 ELSE b.failures + 1 END) >= $3 THEN :later($4) END,
    reason = excluded.reason, updated_at = excluded.updated_at
WHERE b.state = 'closed'
RETURNING state, failures;

-- name: breaker_take_probe
-- One row for exactly one of those who ask: the cool-down is over, or whoever was probing has not been heard of.
UPDATE holdfast.breakers SET state = 'half_open', probe = $2, probe_ends_at = :later($3), updated_at = :now
WHERE name = $1 AND ((state = 'open' AND until_at <= :now) OR (state = 'half_open' AND probe_ends_at <= :now))
RETURNING name;

-- name: breaker_keep_probe
UPDATE holdfast.breakers SET probe_ends_at = :later($3) WHERE name = $1 AND probe = $2 AND state = 'half_open' RETURNING name;

-- name: breaker_probe_worked
UPDATE holdfast.breakers SET
    state = 'closed', failures = 0, window_ends_at = :now, reason = NULL, opened_at = NULL, opened_by = NULL, until_at = NULL,
    probe = NULL, probe_ends_at = NULL, updated_at = :now
WHERE name = $1 AND probe = $2 AND state = 'half_open'
RETURNING name;

-- name: breaker_probe_failed
UPDATE holdfast.breakers SET
    state = 'open', until_at = :later($3), reason = $4, probe = NULL, probe_ends_at = NULL, updated_at = :now
WHERE name = $1 AND probe = $2 AND state = 'half_open'
RETURNING name;

-- name: breaker_give_probe_back
-- It told nothing of the service: the next one who asks may try.
UPDATE holdfast.breakers SET state = 'open', until_at = :now, probe = NULL, probe_ends_at = NULL, updated_at = :now
WHERE name = $1 AND probe = $2 AND state = 'half_open'
RETURNING name;

-- name: breaker_open
INSERT INTO holdfast.breakers (name, state, window_ends_at, reason, opened_at, opened_by, until_at, updated_at)
VALUES ($1, 'open', :now, $3, :now, $4, :later($2), :now)
ON CONFLICT (name) DO UPDATE SET
    state = 'open', failures = 0, reason = excluded.reason, opened_at = excluded.opened_at, opened_by = excluded.opened_by,
    until_at = excluded.until_at, probe = NULL, probe_ends_at = NULL, updated_at = excluded.updated_at;

-- name: breaker_close
INSERT INTO holdfast.breakers (name, state, window_ends_at, updated_at) VALUES ($1, 'closed', :now, :now)
ON CONFLICT (name) DO UPDATE SET
    state = 'closed', failures = 0, window_ends_at = excluded.window_ends_at, reason = NULL, opened_at = NULL, opened_by = NULL,
    until_at = NULL, probe = NULL, probe_ends_at = NULL, updated_at = excluded.updated_at;
