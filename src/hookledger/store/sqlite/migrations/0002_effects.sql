-- Effects: what an event brings about, each under its own key; the calls made for it; the circuits they go through.
-- Effects outlive their events: a key that was done once is never done again by accident.

CREATE TABLE effects (
    identity         BLOB PRIMARY KEY CHECK (length(identity) = 32),
    kind             TEXT NOT NULL CHECK (kind IN ('once', 'call', 'later')),
    source           TEXT NOT NULL,
    name             TEXT NOT NULL CHECK (name <> ''),
    key              TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    event_id         BLOB NOT NULL,
    claim            INTEGER NOT NULL,
    arguments        BLOB NOT NULL,
    arguments_digest BLOB NOT NULL,
    repeat           TEXT CHECK (repeat IN ('safe', 'keyed', 'accept', 'never')),
    downstream       TEXT NOT NULL,
    lane             TEXT,
    place            INTEGER,
    state            TEXT NOT NULL CHECK (state IN ('planned', 'started', 'done', 'failed', 'unknown', 'cancelled')),
    generation       INTEGER NOT NULL DEFAULT 1 CHECK (generation >= 1),
    fence            INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    number           INTEGER NOT NULL DEFAULT 0 CHECK (number >= 0),
    tries            INTEGER NOT NULL DEFAULT 0 CHECK (tries >= 0),
    planned_at       INTEGER NOT NULL,
    due_at           INTEGER,
    leased_until     INTEGER,
    worker           TEXT,
    created_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    result           BLOB,
    error            TEXT,
    alert            TEXT,
    decided          TEXT CHECK (decided IN ('happened', 'did_not_happen')),
    decided_number   INTEGER,
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
) STRICT;

CREATE INDEX effects_due ON effects (name, due_at) WHERE due_at IS NOT NULL AND lane IS NULL;
-- Walked from lane to lane: what waits behind an entry that is stuck costs nothing.
CREATE INDEX effects_due_in_lane ON effects (name, lane, place) WHERE due_at IS NOT NULL AND lane IS NOT NULL;
CREATE INDEX effects_leased ON effects (leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX effects_of_event ON effects (event_id);
CREATE INDEX effects_in_lane ON effects (name, lane, place)
    WHERE lane IS NOT NULL AND finished_at IS NULL;

-- Events that wait for a person: what they wait for may become known without one.
CREATE INDEX events_in_review ON events (id) WHERE state = 'needs_review';

-- The next place in each lane. Taken in the handler's transaction, so that places are given in the order of commits.
CREATE TABLE effect_lanes (
    name TEXT NOT NULL,
    lane TEXT NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (name, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect_calls (
    identity   BLOB NOT NULL,
    number     INTEGER NOT NULL CHECK (number >= 1),
    generation INTEGER NOT NULL,
    worker     TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    outcome    TEXT CHECK (outcome IN ('done', 'refused', 'unknown')),
    error      TEXT,
    PRIMARY KEY (identity, number),
    CONSTRAINT ended_with_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE circuits (
    downstream TEXT PRIMARY KEY,
    state      TEXT NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    failures   INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    openings   INTEGER NOT NULL DEFAULT 0 CHECK (openings >= 0),
    retry_at   INTEGER,
    tripped    INTEGER NOT NULL DEFAULT 0 CHECK (tripped IN (0, 1)),
    reason     TEXT,
    changed_at INTEGER NOT NULL,
    CONSTRAINT tripped_is_open CHECK (NOT tripped OR (state = 'open' AND retry_at IS NULL)),
    CONSTRAINT retried_when_not_closed CHECK (state = 'closed' OR tripped OR retry_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- An action may be about an effect of an event, or about a circuit and no event. Differs from PostgreSQL's because
-- SQLite cannot take a NOT NULL back.
CREATE TABLE new_actions (
    id         BLOB PRIMARY KEY,
    at         INTEGER NOT NULL,
    name       TEXT NOT NULL,
    actor      TEXT NOT NULL CHECK (actor <> ''),
    reason     TEXT NOT NULL CHECK (reason <> ''),
    event_id   BLOB,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    subject    TEXT,
    CONSTRAINT about_something CHECK (event_id IS NOT NULL OR subject IS NOT NULL)
) STRICT, WITHOUT ROWID;
INSERT INTO new_actions (id, at, name, actor, reason, event_id, from_state, to_state)
SELECT id, at, name, actor, reason, event_id, from_state, to_state FROM actions;
DROP TABLE actions;
ALTER TABLE new_actions RENAME TO actions;
CREATE INDEX actions_of_event ON actions (event_id, at);
