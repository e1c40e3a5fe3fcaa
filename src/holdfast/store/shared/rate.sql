-- name: rate_take_window
-- A fixed window, open from the first one taken; given are how many and its seconds. No row: refused, and nothing is taken.
INSERT INTO holdfast.rate_buckets AS bucket (name, subject, used, taken_at, ends_at)
VALUES ($1, $2, 1, :now, :later($4))
ON CONFLICT (name, subject) DO UPDATE SET
    used = CASE WHEN bucket.ends_at <= excluded.taken_at THEN 1 ELSE bucket.used + CAST(1 AS double precision) END,
    ends_at = CASE WHEN bucket.ends_at <= excluded.taken_at THEN excluded.ends_at ELSE bucket.ends_at END,
    taken_at = excluded.taken_at
WHERE bucket.ends_at <= excluded.taken_at OR bucket.used < CAST($3 AS double precision)
RETURNING used, -:since(ends_at) AS seconds;

-- name: rate_take_smooth
-- The same as a bucket that leaks as many in as many seconds (GCRA): what was taken counts less and less.
INSERT INTO holdfast.rate_buckets AS bucket (name, subject, used, taken_at, ends_at)
VALUES ($1, $2, 1, :now, :later($4))
ON CONFLICT (name, subject) DO UPDATE SET
    used = CAST(1 AS double precision)
         + CASE WHEN bucket.used * CAST($4 AS double precision) > :since(bucket.taken_at) * CAST($3 AS double precision)
                THEN bucket.used - :since(bucket.taken_at) * CAST($3 AS double precision) / CAST($4 AS double precision)
                ELSE CAST(0 AS double precision) END,
    taken_at = :now,
    ends_at = :later($4)
WHERE bucket.used - :since(bucket.taken_at) * CAST($3 AS double precision) / CAST($4 AS double precision)
    <= CAST($3 AS double precision) - CAST(0.999999 AS double precision)
RETURNING used, -:since(ends_at) AS seconds;

-- name: rate_look
SELECT used, :since(taken_at) AS age, -:since(ends_at) AS seconds
FROM holdfast.rate_buckets WHERE name = $1 AND subject = $2;

-- name: rate_prune
DELETE FROM holdfast.rate_buckets
WHERE (name, subject) IN (SELECT name, subject FROM holdfast.rate_buckets WHERE ends_at <= :now ORDER BY ends_at LIMIT $1)
RETURNING name;
