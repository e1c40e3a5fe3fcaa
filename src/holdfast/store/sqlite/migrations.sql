-- name: migrations_create
CREATE TABLE IF NOT EXISTS holdfast_migrations (
    component  TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    applied_at REAL    NOT NULL,
    PRIMARY KEY (component, version)
);

-- name: migrations_applied
SELECT version FROM holdfast_migrations WHERE component = :component;

-- name: migrations_record
INSERT INTO holdfast_migrations (component, version, name, applied_at) VALUES (:component, :version, :name, :now);

-- name: table_list
SELECT m.name AS name, c.name AS column_name, c.pk AS place
  FROM sqlite_master m JOIN pragma_table_info(m.name) c
 WHERE m.type = 'table' AND m.name LIKE 'holdfast\_%' ESCAPE '\' ORDER BY m.name, c.cid;

-- name: tables_of_ours
SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast\_%' ESCAPE '\';
