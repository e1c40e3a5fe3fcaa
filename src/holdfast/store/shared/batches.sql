-- name: batch_insert
INSERT INTO holdfast.batches (id, tenant, total, then_id, then_job, created_by, created_at)
VALUES ($1, $2, CAST($3 AS integer), $4, $5, $6, :now)
RETURNING id, :tell('batch') AS told

-- name: batch_get
SELECT id, tenant, total, then_id, created_at, created_by, ended_at
FROM holdfast.batches WHERE id = $1 AND (CAST($2 AS text) IS NULL OR tenant = $2)

-- name: batch_list
SELECT id, tenant, total, then_id, created_at, created_by, ended_at FROM holdfast.batches
WHERE (CAST($1 AS text) IS NULL OR tenant = $1) AND (CAST($2 AS text) IS NULL OR id < $2)
ORDER BY id DESC LIMIT $3

-- name: batch_counts
SELECT state, count(*) AS n
FROM (SELECT j.state FROM holdfast.jobs AS j WHERE j.batch IS NOT NULL AND j.batch >= $1 AND j.batch <= $1
      ORDER BY j.batch, j.state, j.id LIMIT $2) AS member
GROUP BY state

-- name: batch_all_ended
-- One look into the index for each open batch, however large: the subquery with its LIMIT cannot become a join, and whole rows
-- are compared and sorted, so that no plan walks through the table, whatever old statistics say of it. Of all states only these
-- two lie between them.
SELECT b.id FROM holdfast.batches AS b
WHERE b.ended_at IS NULL
  AND (SELECT j.id FROM holdfast.jobs AS j
       WHERE j.batch IS NOT NULL AND (j.batch, j.state) >= (b.id, 'queued') AND (j.batch, j.state) <= (b.id, 'running')
       ORDER BY j.batch, j.state, j.id LIMIT 1) IS NULL
ORDER BY b.id LIMIT $1

-- name: batch_end
-- Of all who saw its last job end one gets a row.
UPDATE holdfast.batches SET ended_at = :now
WHERE id = $1 AND ended_at IS NULL
  AND (SELECT j.id FROM holdfast.jobs AS j
       WHERE j.batch IS NOT NULL AND (j.batch, j.state) >= ($1, 'queued') AND (j.batch, j.state) <= ($1, 'running')
       ORDER BY j.batch, j.state, j.id LIMIT 1) IS NULL
RETURNING then_job

-- name: batch_prune
DELETE FROM holdfast.batches
WHERE id IN (SELECT id FROM holdfast.batches WHERE ended_at IS NOT NULL AND :since(ended_at) > $1 ORDER BY ended_at LIMIT $2)
RETURNING id
