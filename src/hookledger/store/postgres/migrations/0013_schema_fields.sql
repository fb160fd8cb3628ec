-- Which fields the events of a source have (decision 0062): pointers and JSON types, no values.
--
-- A sender may name its fields as it likes: names that look like values are folded before they come here, the key is
-- a digest, and each source has a limited number of rows. event_id is the event in which a field was first seen; it
-- may be pruned later.
CREATE TABLE {schema}.schema_fields (
    source   text COLLATE "C" NOT NULL,
    identity bytea NOT NULL CHECK (length(identity) = 32),
    type     text COLLATE "C" NOT NULL,
    field    text COLLATE "C" NOT NULL CHECK (length(field) BETWEEN 1 AND 400),
    kind     text COLLATE "C" NOT NULL
             CHECK (kind IN ('null', 'boolean', 'integer', 'number', 'string', 'array', 'object')),
    first_at timestamptz NOT NULL,
    event_id uuid NOT NULL,
    PRIMARY KEY (source, identity)
);

-- How far the events of each source were looked at. full_at: when there was no room for a field, first.
CREATE TABLE {schema}.schema_looks (
    source    text COLLATE "C" PRIMARY KEY,
    last_id     uuid NOT NULL,
    looked_at timestamptz NOT NULL,
    full_at   timestamptz
);
