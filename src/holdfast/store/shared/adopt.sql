-- name: adopt_in_use
-- The tables below exist only where somebody has adopted or imported something.
SELECT 1 AS found FROM holdfast.migrations WHERE component = 'adopt'

-- name: adopt_list
SELECT name, mapping FROM holdfast.adopt_tables ORDER BY name

-- name: adopt_save
INSERT INTO holdfast.adopt_tables (name, mapping, adopted_at) VALUES ($1, $2, :now)
ON CONFLICT (name) DO UPDATE SET mapping = excluded.mapping

-- name: adopt_forget
DELETE FROM holdfast.adopt_tables WHERE name = $1 RETURNING name

-- name: adopt_now
SELECT :now AS now_at

-- name: adopt_import
INSERT INTO holdfast.adopt_imported (id, source, imported_at) VALUES ($1, $2, :now) ON CONFLICT (id) DO NOTHING RETURNING id

-- name: adopt_import_prune
DELETE FROM holdfast.adopt_imported WHERE imported_at < :later($1)
