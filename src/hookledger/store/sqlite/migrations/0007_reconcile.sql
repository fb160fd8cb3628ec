-- The same as PostgreSQL's 0007_reconcile.

CREATE TABLE reconciliations (
    id           BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    source       TEXT NOT NULL CHECK (source <> ''),
    slot         INTEGER,
    since        INTEGER NOT NULL,
    until        INTEGER NOT NULL,
    actor        TEXT NOT NULL CHECK (actor <> ''),
    reason       TEXT NOT NULL CHECK (reason <> ''),
    fence        INTEGER NOT NULL DEFAULT 1 CHECK (fence >= 1),
    started_at   INTEGER NOT NULL,
    leased_until INTEGER,
    finished_at  INTEGER,
    problem      TEXT CHECK (problem <> ''),
    counts       TEXT,
    CONSTRAINT window_has_length CHECK (since < until),
    CONSTRAINT leased_until_finished CHECK ((finished_at IS NULL) = (leased_until IS NOT NULL)),
    CONSTRAINT finished_with_result CHECK (finished_at IS NULL OR problem IS NOT NULL OR counts IS NOT NULL)
) STRICT;
-- One for each slot. Those that a person asked for have none.
CREATE UNIQUE INDEX reconciliations_planned ON reconciliations (source, slot);
CREATE INDEX reconciliations_of_source ON reconciliations (source, started_at);

CREATE TABLE repairs (
    source    TEXT NOT NULL,
    object_id TEXT NOT NULL CHECK (length(object_id) BETWEEN 1 AND 255),
    event_id  BLOB NOT NULL,
    PRIMARY KEY (source, object_id)
) STRICT, WITHOUT ROWID;
