-- name: idempotency_reserve
-- One row if the work is ours to do: nobody has begun it, or whoever did has died, or it was so long ago that it is forgotten.
-- Whoever is not alone is told so at once: inside transactions he would wait here until the other one has committed.
INSERT INTO holdfast.idempotency_keys AS known (id, tenant, fingerprint, token, lease_expires_at, expires_at)
SELECT $1, $2, $3, $4, :later($5), :later($6)
WHERE :alone($1)
ON CONFLICT (id) DO UPDATE SET
    fingerprint = excluded.fingerprint, token = excluded.token, response = NULL,
    lease_expires_at = excluded.lease_expires_at, expires_at = excluded.expires_at
WHERE known.expires_at <= :now
   OR (known.response IS NULL AND known.lease_expires_at <= :now AND known.fingerprint = excluded.fingerprint)
RETURNING id;

-- name: idempotency_get
SELECT fingerprint, response FROM holdfast.idempotency_keys WHERE id = $1;

-- name: idempotency_extend
UPDATE holdfast.idempotency_keys SET lease_expires_at = :later($3)
WHERE id = $1 AND token = $2 AND response IS NULL
RETURNING id;

-- name: idempotency_store
UPDATE holdfast.idempotency_keys SET response = $3
WHERE id = $1 AND token = $2 AND response IS NULL
RETURNING id;

-- name: idempotency_release
DELETE FROM holdfast.idempotency_keys WHERE id = $1 AND token = $2 AND response IS NULL RETURNING id;

-- name: idempotency_prune
DELETE FROM holdfast.idempotency_keys
WHERE id IN (SELECT id FROM holdfast.idempotency_keys WHERE expires_at <= :now ORDER BY expires_at LIMIT $1)
RETURNING id;
