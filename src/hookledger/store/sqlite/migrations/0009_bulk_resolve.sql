-- The same as PostgreSQL's 0009_bulk_resolve. Differs because SQLite cannot change a CHECK: the jobs are made anew, in the
-- same transaction.

CREATE TABLE new_jobs (
    id           BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    name         TEXT NOT NULL CHECK (name IN ('retry', 'replay', 'discard', 'resolve')),
    filter       TEXT NOT NULL,
    actor        TEXT NOT NULL CHECK (actor <> ''),
    reason       TEXT NOT NULL CHECK (reason <> ''),
    per_second   REAL NOT NULL CHECK (per_second >= 0),
    state        TEXT NOT NULL CHECK (state IN ('planned', 'running', 'done', 'cancelled')),
    total        INTEGER NOT NULL CHECK (total > 0),
    done         INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
    refused      INTEGER NOT NULL DEFAULT 0 CHECK (refused >= 0),
    upto         BLOB,
    created_at   INTEGER NOT NULL,
    frozen_at    INTEGER,
    started_at   INTEGER,
    finished_at  INTEGER,
    ended_by     TEXT CHECK (ended_by <> ''),
    ended_why    TEXT CHECK (ended_why <> ''),
    fence        INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    worker       TEXT,
    leased_until INTEGER,
    effect       TEXT CHECK (effect <> ''),
    decision     TEXT CHECK (decision IN ('happened', 'did_not_happen')),
    effects      INTEGER CHECK (effects > 0),
    CONSTRAINT no_more_than_frozen CHECK (done + refused <= total),
    CONSTRAINT done_to_the_last CHECK (state <> 'done' OR done + refused = total),
    CONSTRAINT upto_what_was_done CHECK ((upto IS NULL) = (done + refused = 0)),
    CONSTRAINT frozen_before_begun CHECK (started_at IS NULL OR frozen_at IS NOT NULL),
    CONSTRAINT begun_when_running CHECK (
        CASE state WHEN 'planned' THEN started_at IS NULL
                   WHEN 'cancelled' THEN true
                   ELSE started_at IS NOT NULL AND worker IS NOT NULL AND fence > 0 END),
    CONSTRAINT finished_when_over CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT cancelled_by_somebody
        CHECK ((state = 'cancelled') = (ended_by IS NOT NULL) AND (ended_by IS NULL) = (ended_why IS NULL)),
    CONSTRAINT leased_while_running CHECK (leased_until IS NULL OR state = 'running'),
    CONSTRAINT decision_to_resolve
        CHECK ((name = 'resolve') = (decision IS NOT NULL) AND (decision IS NULL) = (effect IS NULL)
               AND (decision IS NULL) = (effects IS NULL)),
    CONSTRAINT an_effect_of_each_event CHECK (effects >= total)
) STRICT;
INSERT INTO new_jobs (id, name, filter, actor, reason, per_second, state, total, done, refused, upto, created_at,
                      frozen_at, started_at, finished_at, ended_by, ended_why, fence, worker, leased_until)
SELECT id, name, filter, actor, reason, per_second, state, total, done, refused, upto, created_at,
       frozen_at, started_at, finished_at, ended_by, ended_why, fence, worker, leased_until
FROM jobs ORDER BY rowid;
DROP TABLE jobs;
ALTER TABLE new_jobs RENAME TO jobs;

CREATE TABLE job_effects (
    job_id   BLOB NOT NULL,
    event_id BLOB NOT NULL,
    identity BLOB NOT NULL CHECK (length(identity) = 32),
    fence    INTEGER NOT NULL CHECK (fence >= 0),
    PRIMARY KEY (job_id, event_id, identity)
) STRICT, WITHOUT ROWID;

CREATE INDEX effects_in_doubt ON effects (name, event_id) WHERE state = 'unknown';
