-- Consistency checks: what each looks at, how far it has come, and what it found (decision 0059). PostgreSQL's file
-- describes the columns.
CREATE TABLE consistency_checks (
    id           BLOB PRIMARY KEY NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('full', 'incremental')),
    slot         INTEGER,
    since        INTEGER,
    until        INTEGER,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    fence        INTEGER NOT NULL DEFAULT 1 CHECK (fence >= 1),
    holder       TEXT NOT NULL CHECK (holder <> ''),
    leased_until INTEGER,
    position     TEXT,
    row_count    INTEGER NOT NULL DEFAULT 0 CHECK (row_count >= 0),
    problem      TEXT CHECK (problem <> ''),
    CONSTRAINT leased_until_ended CHECK ((ended_at IS NULL) = (leased_until IS NOT NULL)),
    CONSTRAINT place_until_ended CHECK (position IS NULL OR ended_at IS NULL),
    CONSTRAINT window_of_incremental
        CHECK ((kind = 'incremental') = (since IS NOT NULL) AND (since IS NULL) = (until IS NULL) AND since <= until)
) STRICT;
CREATE UNIQUE INDEX consistency_checks_open ON consistency_checks (kind) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX consistency_checks_planned ON consistency_checks (kind, slot);
CREATE INDEX consistency_checks_by_time ON consistency_checks (started_at);

CREATE TABLE consistency_violations (
    check_id BLOB NOT NULL,
    rule     TEXT NOT NULL CHECK (rule <> ''),
    count    INTEGER NOT NULL CHECK (count > 0),
    sample   TEXT NOT NULL,
    PRIMARY KEY (check_id, rule)
) STRICT, WITHOUT ROWID;
