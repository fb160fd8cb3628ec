-- Effects: what an event brings about, each under its own key; the calls made for it; the circuits they go through.
-- Effects outlive their events: a key that was done once is never done again by accident.

CREATE TABLE {schema}.effects (
    identity         bytea PRIMARY KEY CHECK (octet_length(identity) = 32),
    kind             text NOT NULL CHECK (kind IN ('once', 'call', 'later')),
    source           text NOT NULL,
    name             text COLLATE "C" NOT NULL CHECK (name <> ''),
    key              text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    event_id         uuid NOT NULL,
    claim            bigint NOT NULL,
    arguments        bytea NOT NULL,
    arguments_digest bytea NOT NULL,
    repeat           text CHECK (repeat IN ('safe', 'keyed', 'accept', 'never')),
    downstream       text NOT NULL,
    lane             text COLLATE "C",
    place            bigint,
    state            text NOT NULL CHECK (state IN ('planned', 'started', 'done', 'failed', 'unknown', 'cancelled')),
    generation       integer NOT NULL DEFAULT 1 CHECK (generation >= 1),
    fence            bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    number           integer NOT NULL DEFAULT 0 CHECK (number >= 0),
    tries            integer NOT NULL DEFAULT 0 CHECK (tries >= 0),
    planned_at       timestamptz NOT NULL,
    due_at           timestamptz,
    leased_until     timestamptz,
    worker           text,
    created_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    result           bytea,
    error            text,
    alert            text,
    decided          text CHECK (decided IN ('happened', 'did_not_happen')),
    decided_number   integer,
    CONSTRAINT once_is_done CHECK (kind <> 'once' OR state = 'done'),
    CONSTRAINT policy_for_calls CHECK ((kind = 'once') = (repeat IS NULL)),
    CONSTRAINT leased_while_started CHECK (state <> 'started' OR (leased_until IS NOT NULL AND worker IS NOT NULL)),
    CONSTRAINT leased_by_someone CHECK (leased_until IS NULL OR state IN ('started', 'unknown')),
    CONSTRAINT due_while_open CHECK (due_at IS NULL OR (kind = 'later' AND state IN ('planned', 'unknown'))),
    CONSTRAINT planned_is_due CHECK (kind <> 'later' OR state <> 'planned' OR due_at IS NOT NULL),
    CONSTRAINT called_before CHECK (state NOT IN ('started', 'unknown') OR number > 0),
    CONSTRAINT finished_when_over CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT placed_in_lane CHECK ((lane IS NULL) = (place IS NULL)),
    -- Later calls are not what the decision was about.
    CONSTRAINT decided_about_calls CHECK ((decided IS NULL) = (decided_number IS NULL))
) WITH (fillfactor = 80);

CREATE INDEX effects_due ON {schema}.effects (name, due_at) WHERE due_at IS NOT NULL AND lane IS NULL;
-- Walked from lane to lane: what waits behind an entry that is stuck costs nothing.
CREATE INDEX effects_due_in_lane ON {schema}.effects (name, lane, place) WHERE due_at IS NOT NULL AND lane IS NOT NULL;
CREATE INDEX effects_leased ON {schema}.effects (leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX effects_of_event ON {schema}.effects (event_id);
CREATE INDEX effects_in_lane ON {schema}.effects (name, lane, place)
    WHERE lane IS NOT NULL AND finished_at IS NULL;

-- Events that wait for a person: what they wait for may become known without one.
CREATE INDEX events_in_review ON {schema}.events (id) WHERE state = 'needs_review';

-- The next place in each lane. Taken in the handler's transaction, so that places are given in the order of commits.
CREATE TABLE {schema}.effect_lanes (
    name text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL,
    next bigint NOT NULL,
    PRIMARY KEY (name, lane)
);

CREATE TABLE {schema}.effect_calls (
    identity   bytea NOT NULL,
    number     integer NOT NULL CHECK (number >= 1),
    generation integer NOT NULL,
    worker     text NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz,
    outcome    text CHECK (outcome IN ('done', 'refused', 'unknown')),
    error      text,
    PRIMARY KEY (identity, number),
    CONSTRAINT ended_with_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

CREATE TABLE {schema}.circuits (
    downstream text PRIMARY KEY,
    state      text NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    failures   integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    openings   integer NOT NULL DEFAULT 0 CHECK (openings >= 0),
    retry_at   timestamptz,
    tripped    boolean NOT NULL DEFAULT false,
    reason     text,
    changed_at timestamptz NOT NULL,
    CONSTRAINT tripped_is_open CHECK (NOT tripped OR (state = 'open' AND retry_at IS NULL)),
    CONSTRAINT retried_when_not_closed CHECK (state = 'closed' OR tripped OR retry_at IS NOT NULL)
);

-- An action may be about an effect of an event, or about a circuit and no event.
ALTER TABLE {schema}.actions ALTER COLUMN event_id DROP NOT NULL;
ALTER TABLE {schema}.actions ADD COLUMN subject text;
ALTER TABLE {schema}.actions ADD CONSTRAINT about_something CHECK (event_id IS NOT NULL OR subject IS NOT NULL);
