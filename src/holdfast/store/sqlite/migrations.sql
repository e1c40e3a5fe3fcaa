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

-- name: tables_of_ours
SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast\_%' ESCAPE '\';
