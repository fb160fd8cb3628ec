-- Counts over time, for charts (decision 0057). PostgreSQL's file describes the tables.
CREATE TABLE rates (
    step    INTEGER NOT NULL CHECK (step IN (10, 60, 600, 3600)),
    at      INTEGER NOT NULL,
    source  TEXT NOT NULL,
    what    TEXT NOT NULL,
    process TEXT NOT NULL,
    n       INTEGER NOT NULL CHECK (n > 0),
    PRIMARY KEY (step, at, source, what, process)
) STRICT, WITHOUT ROWID;

CREATE TABLE rate_writers (
    process TEXT PRIMARY KEY NOT NULL,
    number  INTEGER NOT NULL CHECK (number > 0),
    seen_at INTEGER NOT NULL
) STRICT;
