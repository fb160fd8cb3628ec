-- Requests to run a handler in a transaction that is rolled back, and what came of them.

CREATE TABLE {schema}.rehearsals (
    id           uuid PRIMARY KEY,
    event_id     uuid NOT NULL,
    source       text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    actor        text NOT NULL CHECK (actor <> ''),
    reason       text NOT NULL CHECK (reason <> ''),
    repeat       text NOT NULL CHECK (length(repeat) <= 65536),
    state        text NOT NULL CHECK (state IN ('asked', 'running', 'done', 'failed', 'expired')),
    asked_at     timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    started_at   timestamptz,
    leased_until timestamptz,
    finished_at  timestamptz,
    worker       text CHECK (worker <> ''),
    result       text CHECK (length(result) <= 65536),
    CONSTRAINT expires_later CHECK (expires_at > asked_at),
    CONSTRAINT leased_while_running CHECK ((state = 'running') = (leased_until IS NOT NULL)),
    CONSTRAINT started_by_a_worker CHECK ((started_at IS NULL) = (worker IS NULL)),
    CONSTRAINT started_when_taken CHECK ((state IN ('asked', 'expired')) = (worker IS NULL)),
    CONSTRAINT finished_with_result CHECK ((finished_at IS NULL) = (result IS NULL)),
    CONSTRAINT finished_when_final CHECK ((state IN ('done', 'failed', 'expired')) = (finished_at IS NOT NULL))
);
CREATE INDEX rehearsals_open ON {schema}.rehearsals (id) WHERE state IN ('asked', 'running');

-- Always empty. A rehearsal's transaction holds two equal rows, which its deferred key refuses at a COMMIT: whoever
-- commits a rehearsal is stopped by the database. Only here, because SQLite rehearses nothing. The identity is for
-- publications of all tables, which could not take part in a delete otherwise.
CREATE TABLE {schema}.rehearsal_guard (
    n text COLLATE "C" NOT NULL,
    CONSTRAINT rehearsal_guard_pkey PRIMARY KEY (n) DEFERRABLE INITIALLY DEFERRED
);
ALTER TABLE {schema}.rehearsal_guard REPLICA IDENTITY FULL;
