-- Bulk work, and what workers leave alone for now.

CREATE TABLE {schema}.jobs (
    id           uuid PRIMARY KEY,
    name         text NOT NULL CHECK (name IN ('retry', 'replay', 'discard')),
    filter       text NOT NULL,
    actor        text NOT NULL CHECK (actor <> ''),
    reason       text NOT NULL CHECK (reason <> ''),
    per_second   float8 NOT NULL CHECK (per_second >= 0),
    state        text NOT NULL CHECK (state IN ('planned', 'running', 'done', 'cancelled')),
    total        bigint NOT NULL CHECK (total > 0),
    done         bigint NOT NULL DEFAULT 0 CHECK (done >= 0),
    refused      bigint NOT NULL DEFAULT 0 CHECK (refused >= 0),
    upto         uuid,
    created_at   timestamptz NOT NULL,
    frozen_at    timestamptz,
    started_at   timestamptz,
    finished_at  timestamptz,
    ended_by     text CHECK (ended_by <> ''),
    ended_why    text CHECK (ended_why <> ''),
    fence        bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    worker       text,
    leased_until timestamptz,
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
);

-- The frozen set: no event twice, in the order of their ids. What is up to jobs.upto has an outcome, the rest has none.
CREATE TABLE {schema}.job_items (
    job_id     uuid NOT NULL,
    event_id   uuid NOT NULL,
    seen_state text NOT NULL,
    seen_claim bigint NOT NULL,
    outcome    text CHECK (outcome IN ('done', 'refused')),
    cause      text CHECK (cause IN ('state', 'changed', 'decision')),
    words      text,
    ended_at   timestamptz,
    PRIMARY KEY (job_id, event_id),
    CONSTRAINT ended_with_an_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CONSTRAINT refused_with_words
        CHECK ((outcome IS NOT NULL AND outcome = 'refused') = (cause IS NOT NULL)
               AND (cause IS NULL) = (words IS NULL))
);
CREATE INDEX job_items_refused ON {schema}.job_items (job_id, event_id) WHERE outcome = 'refused';

CREATE TABLE {schema}.pauses (
    source  text COLLATE "C" NOT NULL CHECK (source <> ''),
    pattern text COLLATE "C" NOT NULL CHECK (pattern <> ''),
    since   timestamptz NOT NULL,
    actor   text NOT NULL CHECK (actor <> ''),
    reason  text NOT NULL CHECK (reason <> ''),
    PRIMARY KEY (source, pattern)
);
