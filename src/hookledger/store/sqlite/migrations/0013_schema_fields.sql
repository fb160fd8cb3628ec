-- Which fields the events of a source have (decision 0062). PostgreSQL's file describes the tables.
CREATE TABLE schema_fields (
    source   TEXT NOT NULL,
    identity BLOB NOT NULL CHECK (length(identity) = 32),
    type     TEXT NOT NULL,
    field    TEXT NOT NULL CHECK (length(field) BETWEEN 1 AND 400),
    kind     TEXT NOT NULL CHECK (kind IN ('null', 'boolean', 'integer', 'number', 'string', 'array', 'object')),
    first_at INTEGER NOT NULL,
    event_id BLOB NOT NULL CHECK (length(event_id) = 16),
    PRIMARY KEY (source, identity)
) STRICT, WITHOUT ROWID;

CREATE TABLE schema_looks (
    source    TEXT PRIMARY KEY NOT NULL,
    last_id   BLOB NOT NULL CHECK (length(last_id) = 16),
    looked_at INTEGER NOT NULL,
    full_at   INTEGER
) STRICT;
