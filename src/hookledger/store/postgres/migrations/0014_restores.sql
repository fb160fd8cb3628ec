-- What a decision replaced, as evidence; and restores from a backup, whose gap an operator closes.

ALTER TABLE {schema}.actions ADD COLUMN replaced bytea;

CREATE TABLE {schema}.restores (
    id          uuid PRIMARY KEY,
    backup_at   timestamptz NOT NULL,
    restored_at timestamptz NOT NULL,
    doubted_at  timestamptz,
    closed_at   timestamptz,
    CONSTRAINT taken_before CHECK (backup_at <= restored_at),
    CONSTRAINT doubted_before_closed CHECK (closed_at IS NULL OR doubted_at IS NOT NULL)
);
-- One gap at a time.
CREATE UNIQUE INDEX restores_open ON {schema}.restores ((true)) WHERE closed_at IS NULL;
