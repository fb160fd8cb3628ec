-- The same as PostgreSQL's 0008_rehearsal, less the guard: nothing is rehearsed on SQLite, whose writers block the acks.

CREATE TABLE rehearsals (
    id           BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    event_id     BLOB NOT NULL,
    source       TEXT NOT NULL,
    type         TEXT NOT NULL,
    actor        TEXT NOT NULL CHECK (actor <> ''),
    reason       TEXT NOT NULL CHECK (reason <> ''),
    repeat       TEXT NOT NULL CHECK (length(repeat) <= 65536),
    state        TEXT NOT NULL CHECK (state IN ('asked', 'running', 'done', 'failed', 'expired')),
    asked_at     INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    started_at   INTEGER,
    leased_until INTEGER,
    finished_at  INTEGER,
    worker       TEXT CHECK (worker <> ''),
    result       TEXT CHECK (length(result) <= 65536),
    CONSTRAINT expires_later CHECK (expires_at > asked_at),
    CONSTRAINT leased_while_running CHECK ((state = 'running') = (leased_until IS NOT NULL)),
    CONSTRAINT started_by_a_worker CHECK ((started_at IS NULL) = (worker IS NULL)),
    CONSTRAINT started_when_taken CHECK ((state IN ('asked', 'expired')) = (worker IS NULL)),
    CONSTRAINT finished_with_result CHECK ((finished_at IS NULL) = (result IS NULL)),
    CONSTRAINT finished_when_final CHECK ((state IN ('done', 'failed', 'expired')) = (finished_at IS NOT NULL))
) STRICT;
CREATE INDEX rehearsals_open ON rehearsals (id) WHERE state IN ('asked', 'running');
