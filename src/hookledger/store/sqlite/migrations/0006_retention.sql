-- The same as PostgreSQL's 0006_retention.

CREATE TABLE pruned (
    event_id  BLOB PRIMARY KEY NOT NULL CHECK (length(event_id) = 16),
    source    TEXT NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('processed', 'skipped', 'failed', 'discarded')),
    pruned_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE walks (
    name       TEXT PRIMARY KEY NOT NULL,
    position   BLOB NOT NULL,
    started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
    name   TEXT PRIMARY KEY NOT NULL,
    holder TEXT NOT NULL CHECK (holder <> ''),
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE requests ADD COLUMN emptied_at INTEGER CONSTRAINT emptied_is_empty
    CHECK (emptied_at IS NULL OR (body = x'' AND headers = x'' AND query = x'' AND remote IS NULL));
-- An event whose bytes are gone can never be claimed again.
ALTER TABLE events ADD COLUMN emptied_at INTEGER CONSTRAINT emptied_when_final
    CHECK (emptied_at IS NULL OR state IN ('processed', 'skipped', 'failed', 'discarded'));
