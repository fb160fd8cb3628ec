-- The same as PostgreSQL's 0005_jobs.

CREATE TABLE jobs (
    id           BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    name         TEXT NOT NULL CHECK (name IN ('retry', 'replay', 'discard')),
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
    CONSTRAINT leased_while_running CHECK (leased_until IS NULL OR state = 'running')
) STRICT;

-- The frozen set: no event twice, in the order of their ids. What is up to jobs.upto has an outcome, the rest has none.
CREATE TABLE job_items (
    job_id     BLOB NOT NULL,
    event_id   BLOB NOT NULL,
    seen_state TEXT NOT NULL,
    seen_claim INTEGER NOT NULL,
    outcome    TEXT CHECK (outcome IN ('done', 'refused')),
    cause      TEXT CHECK (cause IN ('state', 'changed', 'decision')),
    words      TEXT,
    ended_at   INTEGER,
    PRIMARY KEY (job_id, event_id),
    CONSTRAINT ended_with_an_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CONSTRAINT refused_with_words
        CHECK ((outcome IS NOT NULL AND outcome = 'refused') = (cause IS NOT NULL)
               AND (cause IS NULL) = (words IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX job_items_refused ON job_items (job_id, event_id) WHERE outcome = 'refused';

CREATE TABLE pauses (
    source  TEXT NOT NULL CHECK (source <> ''),
    pattern TEXT NOT NULL CHECK (pattern <> ''),
    since   INTEGER NOT NULL,
    actor   TEXT NOT NULL CHECK (actor <> ''),
    reason  TEXT NOT NULL CHECK (reason <> ''),
    PRIMARY KEY (source, pattern)
) STRICT, WITHOUT ROWID;
