-- Consistency checks: what each looks at, how far it has come, and what it found (decision 0059).
--
-- slot: the time that it was planned for; null if an operator asked for it. since, until: the arrivals that an
-- incremental check looks at. position: the last row that it has seen, while it runs. A check whose process died is
-- taken up by another when its lease is over; fence distinguishes the two.
CREATE TABLE {schema}.consistency_checks (
    id           uuid PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL CHECK (kind IN ('full', 'incremental')),
    slot         timestamptz,
    since        timestamptz,
    until        timestamptz,
    started_at   timestamptz NOT NULL,
    ended_at     timestamptz,
    fence        bigint NOT NULL DEFAULT 1 CHECK (fence >= 1),
    holder       text NOT NULL CHECK (holder <> ''),
    leased_until timestamptz,
    position     text,
    row_count    bigint NOT NULL DEFAULT 0 CHECK (row_count >= 0),
    problem      text CHECK (problem <> ''),
    CONSTRAINT leased_until_ended CHECK ((ended_at IS NULL) = (leased_until IS NOT NULL)),
    CONSTRAINT place_until_ended CHECK (position IS NULL OR ended_at IS NULL),
    CONSTRAINT window_of_incremental
        CHECK ((kind = 'incremental') = (since IS NOT NULL) AND (since IS NULL) = (until IS NULL) AND since <= until)
);
-- One at a time of each kind, and one for each slot.
CREATE UNIQUE INDEX consistency_checks_open ON {schema}.consistency_checks (kind) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX consistency_checks_planned ON {schema}.consistency_checks (kind, slot);
CREATE INDEX consistency_checks_by_time ON {schema}.consistency_checks (started_at);

-- What each check found, by rule; sample: ids of a few, as a JSON array.
CREATE TABLE {schema}.consistency_violations (
    check_id uuid NOT NULL,
    rule     text COLLATE "C" NOT NULL CHECK (rule <> ''),
    count    bigint NOT NULL CHECK (count > 0),
    sample   text NOT NULL,
    PRIMARY KEY (check_id, rule)
);
