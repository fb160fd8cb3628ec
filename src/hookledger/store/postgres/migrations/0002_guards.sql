-- Guards with their answers, and which releases work with the schema.

-- One row: a release that knows this version of the schema, or a later one, works with the schema as it is. A migration
-- that takes away what older releases use raises it: UPDATE {schema}.schema_support SET oldest = N.
CREATE TABLE {schema}.schema_support (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    oldest integer NOT NULL CHECK (oldest >= 1)
);
INSERT INTO {schema}.schema_support (oldest) VALUES (1);

-- The newest version that was applied to one projection of one entity, and the event that it is of. position: the version
-- in bytes that compare as it does. Events are ordered by position, rank of the type, received_at and id. tie: what
-- decided between it and the event that it replaced, where both had the same version; ties: how often that was so, or an
-- event was stale at the same version. Guards outlive their events, as effects do.
CREATE TABLE {schema}.guards (
    identity          bytea PRIMARY KEY CHECK (octet_length(identity) = 32),
    source            text NOT NULL,
    name              text COLLATE "C" NOT NULL CHECK (name <> ''),
    key               text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    kind              text NOT NULL CHECK (kind <> ''),
    version           text NOT NULL CHECK (length(version) BETWEEN 1 AND 255),
    position          bytea NOT NULL,
    rank              smallint NOT NULL CHECK (rank BETWEEN 0 AND 2),
    received_at       timestamptz NOT NULL,
    event_id          uuid NOT NULL,
    event_key         text NOT NULL CHECK (length(event_key) <= 255),
    claim             bigint NOT NULL,
    applied_at        timestamptz NOT NULL,
    ties              bigint NOT NULL DEFAULT 0 CHECK (ties >= 0),
    tie               text CHECK (tie IN ('rank', 'arrival', 'id')),
    replaced_version  text,
    replaced_event_id uuid,
    CONSTRAINT replaced_by_another CHECK ((replaced_version IS NULL) = (replaced_event_id IS NULL)),
    CONSTRAINT tie_with_another CHECK (tie IS NULL OR replaced_event_id IS NOT NULL)
) WITH (fillfactor = 80);
CREATE INDEX guards_of_event ON {schema}.guards (event_id);
CREATE INDEX guards_with_ties ON {schema}.guards (applied_at) WHERE ties > 0;

-- What each attempt was answered, in its own transaction. other: the event that the guard was of before.
CREATE TABLE {schema}.guard_answers (
    event_id       uuid NOT NULL,
    claim          bigint NOT NULL,
    identity       bytea NOT NULL CHECK (octet_length(identity) = 32),
    name           text NOT NULL CHECK (name <> ''),
    key            text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    kind           text NOT NULL CHECK (kind <> ''),
    version        text NOT NULL CHECK (length(version) BETWEEN 1 AND 255),
    position       bytea NOT NULL,
    rank           smallint NOT NULL CHECK (rank BETWEEN 0 AND 2),
    applied        boolean NOT NULL,
    tie            text CHECK (tie IN ('rank', 'arrival', 'id')),
    other_version  text,
    other_event_id uuid,
    at             timestamptz NOT NULL,
    PRIMARY KEY (event_id, claim, identity),
    CONSTRAINT other_whole CHECK ((other_version IS NULL) = (other_event_id IS NULL)),
    CONSTRAINT stale_for_another CHECK (applied OR other_event_id IS NOT NULL),
    CONSTRAINT tie_with_another CHECK (tie IS NULL OR other_event_id IS NOT NULL)
);
-- Which events were stale for an event: an erasure of its key looks there.
CREATE INDEX guard_answers_stale ON {schema}.guard_answers (other_event_id) WHERE NOT applied;
