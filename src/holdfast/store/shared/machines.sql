-- name: machine_turn_take
-- One decides at a time. Whoever comes while another does leaves word that there is more to decide.
INSERT INTO holdfast.machine_turn AS turn (name, token, until_at) VALUES ('machines', $1, :later($2))
ON CONFLICT (name) DO UPDATE SET
    again = CASE WHEN turn.until_at <= :now OR turn.token = excluded.token THEN 0 ELSE 1 END,
    token = CASE WHEN turn.until_at <= :now THEN excluded.token ELSE turn.token END,
    until_at = CASE WHEN turn.until_at <= :now OR turn.token = excluded.token THEN excluded.until_at ELSE turn.until_at END
RETURNING token, pool, problem, told, vain_job, vain_count, :since(vain_at) AS vain_seconds;

-- name: machine_turn_keep
UPDATE holdfast.machine_turn SET until_at = :later($2) WHERE name = 'machines' AND token = $1 AND until_at > :now RETURNING again;

-- name: machine_turn_leave
-- Not while somebody has left word: no row then, and the turn goes on.
UPDATE holdfast.machine_turn SET until_at = :now WHERE name = 'machines' AND token = $1 AND again = 0 RETURNING token;

-- name: machine_turn_again
UPDATE holdfast.machine_turn SET again = 0, until_at = :later($2) WHERE name = 'machines' AND token = $1 RETURNING token;

-- name: machine_turn_drop
UPDATE holdfast.machine_turn SET until_at = :now, again = 0 WHERE name = 'machines' AND token = $1 RETURNING token;

-- name: machine_turn_tell
UPDATE holdfast.machine_turn SET problem = $1, told = $2 WHERE name = 'machines' RETURNING name;

-- name: machine_turn_vain
UPDATE holdfast.machine_turn SET vain_job = $1, vain_count = $2, vain_at = :now WHERE name = 'machines' RETURNING name;

-- name: machine_turn_look
SELECT pool, problem, told FROM holdfast.machine_turn WHERE name = 'machines';

-- name: machine_scale
INSERT INTO holdfast.machine_turn AS turn (name, token, until_at, pool) VALUES ('machines', '', :now, $1)
ON CONFLICT (name) DO UPDATE SET pool = excluded.pool RETURNING pool;

-- name: machine_list
SELECT name, provider, id, kind, state, region, asked_at, started_at, stop_asked_at, counted_at, seen_at,
    :since(asked_at) AS asked_seconds, :since(started_at) AS up_seconds, :since(stop_asked_at) AS stop_asked_seconds,
    :since(counted_at) AS uncounted_seconds, :since(seen_at) AS unseen_seconds
FROM holdfast.machines WHERE provider = $1 ORDER BY name;

-- name: machine_ask
-- Before the provider is asked: an answer that is lost leaves a machine that we know of.
INSERT INTO holdfast.machines AS m (name, provider, id, kind, state, asked_at, seen_at)
VALUES ($1, $2, $3, $4, 'starting', :now, :now)
ON CONFLICT (name) DO UPDATE SET asked_at = excluded.asked_at, stop_asked_at = NULL, started_at = NULL,
    id = coalesce(excluded.id, m.id)
RETURNING name;

-- name: machine_refused
UPDATE holdfast.machines SET asked_at = NULL WHERE name = $1 RETURNING name;

-- name: machine_stop_asked
UPDATE holdfast.machines SET stop_asked_at = coalesce(stop_asked_at, :now) WHERE name = $1 RETURNING name;

-- name: machine_see
-- What the provider says of it now. Its seconds are counted from here while it is up.
INSERT INTO holdfast.machines AS m (name, provider, id, kind, state, region, started_at, counted_at, seen_at)
VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7 = 1 THEN coalesce(CAST($8 AS timestamptz), :now) END, CASE WHEN $7 = 1 THEN :now END, :now)
ON CONFLICT (name) DO UPDATE SET id = excluded.id, kind = excluded.kind, state = excluded.state, region = excluded.region,
    started_at = CASE WHEN $7 = 1 THEN coalesce(CAST($8 AS timestamptz), m.started_at, excluded.started_at) ELSE m.started_at END,
    stop_asked_at = CASE WHEN $7 = 1 THEN m.stop_asked_at END,
    counted_at = CASE WHEN $7 = 1 THEN :now END, seen_at = :now
RETURNING name;

-- name: machine_forget
DELETE FROM holdfast.machines WHERE name = $1 RETURNING name;

-- name: machine_there
-- Whether one is up or on its way, for those who ask why a job waits.
SELECT name FROM holdfast.machines
WHERE provider = $1 AND (state IN ('running', 'stopping') AND :since(seen_at) < $2 OR :since(asked_at) < $2) LIMIT 1;

-- name: machine_count
INSERT INTO holdfast.machine_usage AS usage (month, subject, n, seconds) VALUES ($1, $2, $3, $4)
ON CONFLICT (month, subject) DO UPDATE SET n = usage.n + excluded.n, seconds = usage.seconds + excluded.seconds
RETURNING n;

-- name: machine_usage
SELECT month, subject, n, seconds FROM holdfast.machine_usage
WHERE month >= $1 AND month <= $2 ORDER BY month DESC, seconds DESC, subject LIMIT 1000;

-- name: machine_usage_of
SELECT month, subject, n, seconds FROM holdfast.machine_usage
WHERE subject = $3 AND month >= $1 AND month <= $2 ORDER BY month DESC LIMIT 1000;

-- name: machine_event
INSERT INTO holdfast.events (job_id, tenant, type, actor, data, at) VALUES ($1, $2, $3, $4, $5, :now)
;

-- name: machine_jobs
SELECT machine_id, id, task, tenant FROM holdfast.jobs
WHERE state = 'running' AND locked_by IS NOT NULL AND machine_id IS NOT NULL LIMIT $1
