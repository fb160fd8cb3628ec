-- Guards with their answers, and which releases work with the schema.

-- One row: a release that knows this version of the schema, or a later one, works with the schema as it is. A migration
-- that takes away what older releases use raises it: UPDATE schema_support SET oldest = N.
CREATE TABLE schema_support (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    oldest INTEGER NOT NULL CHECK (oldest >= 1)
) STRICT;
INSERT INTO schema_support VALUES (1, 1);

-- The newest version that was applied to one projection of one entity, and the event that it is of. position: the version
-- in bytes that compare as it does. Events are ordered by position, rank of the type, received_at and id. tie: what
-- decided between it and the event that it replaced, where both had the same version; ties: how often that was so, or an
-- event was stale at the same version. Guards outlive their events, as effects do.
CREATE TABLE guards (
    identity          BLOB PRIMARY KEY NOT NULL CHECK (length(identity) = 32),
    source            TEXT NOT NULL,
    name              TEXT NOT NULL CHECK (name <> ''),
    key               TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    kind              TEXT NOT NULL CHECK (kind <> ''),
    version           TEXT NOT NULL CHECK (length(version) BETWEEN 1 AND 255),
    position          BLOB NOT NULL,
    rank              INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 2),
    received_at       INTEGER NOT NULL,
    event_id          BLOB NOT NULL,
    event_key         TEXT NOT NULL CHECK (length(event_key) <= 255),
    claim             INTEGER NOT NULL,
    applied_at        INTEGER NOT NULL,
    ties              INTEGER NOT NULL DEFAULT 0 CHECK (ties >= 0),
    tie               TEXT CHECK (tie IN ('rank', 'arrival', 'id')),
    replaced_version  TEXT,
    replaced_event_id BLOB,
    CONSTRAINT replaced_by_another CHECK ((replaced_version IS NULL) = (replaced_event_id IS NULL)),
    CONSTRAINT tie_with_another CHECK (tie IS NULL OR replaced_event_id IS NOT NULL)
) STRICT;
CREATE INDEX guards_of_event ON guards (event_id);
CREATE INDEX guards_with_ties ON guards (applied_at) WHERE ties > 0;

-- What each attempt was answered, in its own transaction. other: the event that the guard was of before.
CREATE TABLE guard_answers (
    event_id       BLOB NOT NULL,
    claim          INTEGER NOT NULL,
    identity       BLOB NOT NULL CHECK (length(identity) = 32),
    name           TEXT NOT NULL CHECK (name <> ''),
    key            TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    kind           TEXT NOT NULL CHECK (kind <> ''),
    version        TEXT NOT NULL CHECK (length(version) BETWEEN 1 AND 255),
    position       BLOB NOT NULL,
    rank           INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 2),
    applied        INTEGER NOT NULL CHECK (applied IN (0, 1)),
    tie            TEXT CHECK (tie IN ('rank', 'arrival', 'id')),
    other_version  TEXT,
    other_event_id BLOB,
    at             INTEGER NOT NULL,
    PRIMARY KEY (event_id, claim, identity),
    CONSTRAINT other_whole CHECK ((other_version IS NULL) = (other_event_id IS NULL)),
    CONSTRAINT stale_for_another CHECK (applied OR other_event_id IS NOT NULL),
    CONSTRAINT tie_with_another CHECK (tie IS NULL OR other_event_id IS NOT NULL)
) STRICT, WITHOUT ROWID;
-- Which events were stale for an event: an erasure of its key looks there.
CREATE INDEX guard_answers_stale ON guard_answers (other_event_id) WHERE NOT applied;
