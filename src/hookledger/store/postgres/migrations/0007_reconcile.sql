-- Reconciliation: each comparison with a provider's log, and the last repair of each object.

-- slot: the moment it was planned for, where it was; one run for each, whoever begins it.
-- A run that nobody ended is taken up by another when its lease is over; fence tells the two apart.
CREATE TABLE {schema}.reconciliations (
    id           uuid PRIMARY KEY,
    source       text COLLATE "C" NOT NULL CHECK (source <> ''),
    slot         timestamptz,
    since        timestamptz NOT NULL,
    until        timestamptz NOT NULL,
    actor        text NOT NULL CHECK (actor <> ''),
    reason       text NOT NULL CHECK (reason <> ''),
    fence        integer NOT NULL DEFAULT 1 CHECK (fence >= 1),
    started_at   timestamptz NOT NULL,
    leased_until timestamptz,
    finished_at  timestamptz,
    problem      text CHECK (problem <> ''),
    counts       text,
    CONSTRAINT window_has_length CHECK (since < until),
    CONSTRAINT leased_until_finished CHECK ((finished_at IS NULL) = (leased_until IS NOT NULL)),
    CONSTRAINT finished_with_result CHECK (finished_at IS NULL OR problem IS NOT NULL OR counts IS NOT NULL)
);
-- One for each slot. Those that a person asked for have none.
CREATE UNIQUE INDEX reconciliations_planned ON {schema}.reconciliations (source, slot);
CREATE INDEX reconciliations_of_source ON {schema}.reconciliations (source, started_at);

-- One row for each object that was ever to be repaired: who asks locks it, so that one repair is open at a time.
CREATE TABLE {schema}.repairs (
    source    text COLLATE "C" NOT NULL,
    object_id text COLLATE "C" NOT NULL CHECK (length(object_id) BETWEEN 1 AND 255),
    event_id  uuid NOT NULL,
    PRIMARY KEY (source, object_id)
);
