-- Counters of all processes.

CREATE TABLE holdfast_tallies (
    minute INTEGER NOT NULL,
    queue  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    label  TEXT    NOT NULL,
    n      REAL    NOT NULL,
    PRIMARY KEY (minute, queue, name, label)
) WITHOUT ROWID;
