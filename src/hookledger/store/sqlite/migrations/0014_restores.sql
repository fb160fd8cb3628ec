-- The same as PostgreSQL's 0014_restores.

ALTER TABLE actions ADD COLUMN replaced BLOB;

CREATE TABLE restores (
    id          BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    backup_at   INTEGER NOT NULL,
    restored_at INTEGER NOT NULL,
    doubted_at  INTEGER,
    closed_at   INTEGER,
    CONSTRAINT taken_before CHECK (backup_at <= restored_at),
    CONSTRAINT doubted_before_closed CHECK (closed_at IS NULL OR doubted_at IS NOT NULL)
) STRICT;
-- One gap at a time.
CREATE UNIQUE INDEX restores_open ON restores (closed_at IS NULL) WHERE closed_at IS NULL;
