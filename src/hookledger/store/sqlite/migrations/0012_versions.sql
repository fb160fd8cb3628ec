-- Versions of events that select their handler (decision 0063). PostgreSQL's file describes the columns.
ALTER TABLE events ADD COLUMN version TEXT NOT NULL DEFAULT '' CHECK (length(version) <= 64);

DROP INDEX events_waiting;
DROP INDEX events_waiting_alone;
CREATE INDEX events_waiting ON events (source, type, version, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes < 2;
CREATE INDEX events_waiting_alone ON events (source, type, version, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes >= 2;

ALTER TABLE workers ADD COLUMN versions TEXT NOT NULL DEFAULT '[]';

-- A new table, because SQLite cannot change a primary key.
ALTER TABLE pauses RENAME TO pauses_before;
CREATE TABLE pauses (
    source  TEXT NOT NULL CHECK (source <> ''),
    pattern TEXT NOT NULL CHECK (pattern <> ''),
    since   INTEGER NOT NULL,
    actor   TEXT NOT NULL CHECK (actor <> ''),
    reason  TEXT NOT NULL CHECK (reason <> ''),
    older   INTEGER NOT NULL DEFAULT 0 CHECK (older IN (0, 1)),
    PRIMARY KEY (source, pattern, older)
) STRICT, WITHOUT ROWID;
INSERT INTO pauses (source, pattern, since, actor, reason) SELECT source, pattern, since, actor, reason FROM pauses_before;
DROP TABLE pauses_before;

CREATE TRIGGER keep_older_away AFTER INSERT ON events
WHEN NEW.version <> '' AND NOT EXISTS (SELECT 1 FROM copies WHERE writing) BEGIN
    INSERT OR IGNORE INTO pauses (source, pattern, since, actor, reason, older)
    VALUES (NEW.source, '*', NEW.received_at, 'hookledger', 'its events have versions, which this release does not know', 1);
END;
