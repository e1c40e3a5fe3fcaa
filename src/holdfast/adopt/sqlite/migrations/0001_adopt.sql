-- Tables of the team's own that the reaper looks after, and how their columns are called.
CREATE TABLE holdfast_adopt_tables (
    name        TEXT PRIMARY KEY NOT NULL,
    mapping     TEXT NOT NULL,
    adopted_at  REAL NOT NULL
);

-- Elements of a Redis list that have become jobs: written in the transaction that enqueues them.
CREATE TABLE holdfast_adopt_imported (
    id           TEXT PRIMARY KEY NOT NULL,
    source       TEXT NOT NULL,
    imported_at  REAL NOT NULL
);
