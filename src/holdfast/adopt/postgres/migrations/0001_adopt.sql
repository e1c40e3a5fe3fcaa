-- Tables of the team's own that the reaper looks after, and how their columns are called.
CREATE TABLE holdfast.adopt_tables (
    name        text        PRIMARY KEY,
    mapping     text        NOT NULL,
    adopted_at  timestamptz NOT NULL
);

-- Elements of a Redis list that have become jobs: written in the transaction that enqueues them.
CREATE TABLE holdfast.adopt_imported (
    id           text        PRIMARY KEY,
    source       text        NOT NULL,
    imported_at  timestamptz NOT NULL
);
