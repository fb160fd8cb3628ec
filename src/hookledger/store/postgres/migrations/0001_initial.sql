-- The whole schema. No foreign keys: every row is written in the transaction of its parent, history is pruned before
-- identities, and a key check per row would be paid on the ack path. `doctor` proves the balance instead.
-- A list of texts in a CHECK is one constant (= ANY ('{…}')): PostgreSQL reads a CHECK for each statement, and that
-- takes half as long as IN (…).

-- ── intake ──

CREATE TABLE {schema}.sources (
    name text PRIMARY KEY
);

CREATE TABLE {schema}.requests (
    id          uuid PRIMARY KEY,
    source      text NOT NULL,
    received_at timestamptz NOT NULL,
    query       bytea NOT NULL,
    headers     bytea NOT NULL,
    body        bytea NOT NULL,
    remote      text,
    scheme      text NOT NULL,
    secret      text NOT NULL,
    signed_at   timestamptz,
    emptied_at  timestamptz,
    CONSTRAINT emptied_is_empty
        CHECK (emptied_at IS NULL OR (body = '' AND headers = '' AND query = '' AND remote IS NULL))
);
-- Compressing bodies would cost the ack more CPU than the disk it saves.
ALTER TABLE {schema}.requests ALTER COLUMN body SET STORAGE EXTERNAL;

-- An identity that an arrival would own.
CREATE TYPE {schema}.proposal AS (
    identity    bytea,
    kind        text,
    source      text,
    event_id    uuid,
    fingerprint bytea
);

-- One item of a batch. A single array of these costs the driver far less than an array per column.
CREATE TYPE {schema}.arrival AS (
    request_id  uuid,
    item        integer,
    source      text,
    query       bytea,
    headers     bytea,
    body        bytea,
    remote      text,
    scheme      text,
    secret      text,
    signed_at   float8,
    event_id    uuid,
    type        text,
    key         text,
    key_origin  text,
    provider_id text,
    object_id   text,
    occurred_at float8,
    fingerprint bytea,
    state       text,
    reason      text,
    outcome     text,
    event_state text,
    delivery_id text,
    identity    bytea,
    account     text,
    retry       text
);

-- Which keys and bodies are taken, by which event. They outlive pruning.
CREATE TABLE {schema}.identities (
    identity    bytea PRIMARY KEY CHECK (octet_length(identity) = 32),
    kind        text NOT NULL CHECK (kind = ANY ('{key,body,quarantine}')),
    source      text NOT NULL,
    event_id    uuid NOT NULL,
    fingerprint bytea NOT NULL
);

CREATE TABLE {schema}.deliveries (
    request_id  uuid NOT NULL,
    item        integer NOT NULL CHECK (item >= 0),
    event_id    uuid NOT NULL,
    source      text NOT NULL,
    received_at timestamptz NOT NULL,
    outcome     text NOT NULL
        CHECK (outcome = ANY ('{accepted,duplicate,conflict,same_body,invalid,reconciled}')),
    event_state text,
    delivery_id text,
    fingerprint bytea NOT NULL,
    retry       text CHECK (length(retry) <= 255),
    PRIMARY KEY (request_id, item)
);
-- An event names its first delivery itself (request_id, item), so only the later ones need an index.
CREATE INDEX deliveries_repeated ON {schema}.deliveries (event_id)
    WHERE outcome NOT IN ('accepted', 'invalid', 'reconciled');
CREATE INDEX deliveries_quarantined ON {schema}.deliveries (source, outcome, request_id, item)
    WHERE outcome IN ('conflict', 'same_body');

-- A bounded sample of rejected requests, and how many there were.
CREATE TABLE {schema}.rejections (
    id          uuid PRIMARY KEY,
    source      text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL CHECK (reason <> ''),
    received_at timestamptz NOT NULL,
    method      text NOT NULL CHECK (length(method) <= 32),
    path        text NOT NULL CHECK (length(path) <= 2048),
    query       bytea NOT NULL,
    headers     bytea NOT NULL,
    body        bytea NOT NULL,
    remote      text CHECK (length(remote) <= 255)
);
CREATE INDEX rejections_of_source ON {schema}.rejections (source, id);
CREATE INDEX rejections_by_reason ON {schema}.rejections (source, reason, id);

CREATE TABLE {schema}.rejection_counts (
    source   text COLLATE "C" NOT NULL,
    reason   text COLLATE "C" NOT NULL CHECK (reason <> ''),
    count    bigint NOT NULL CHECK (count > 0),
    first_at timestamptz NOT NULL,
    last_at  timestamptz NOT NULL,
    PRIMARY KEY (source, reason),
    CONSTRAINT first_before_last CHECK (first_at <= last_at)
);

-- Keys that providers publish and that proved a request, so that a restart needs no fetch.
CREATE TABLE {schema}.published_keys (
    digest     bytea PRIMARY KEY CHECK (length(digest) = 32),
    provider   text NOT NULL,
    url        text NOT NULL CHECK (length(url) <= 1024),
    content    bytea NOT NULL CHECK (length(content) BETWEEN 1 AND 65536),
    fetched_at timestamptz NOT NULL,
    lifetime   double precision NOT NULL CHECK (lifetime >= 0)
);

-- ── events, which are the queue ──

-- alert: why an operator should look at an event, other than its effects. cause: why it fails, without what differs
-- from one event to the next. account: on whose behalf it is, where a source serves several accounts.
CREATE TABLE {schema}.events (
    id                 uuid PRIMARY KEY,
    source             text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL CHECK (length(type) <= 255),
    key                text NOT NULL CHECK (length(key) <= 255),
    key_origin         text NOT NULL
        CHECK (key_origin = ANY ('{signed_id,unsigned_id,composite,function,digest,arrival,quarantine}')),
    provider_id        text,
    object_id          text,
    occurred_at        timestamptz,
    fingerprint        bytea NOT NULL,
    request_id         uuid NOT NULL,
    item               integer NOT NULL CHECK (item >= 0),
    received_at        timestamptz NOT NULL,
    state              text NOT NULL
        CHECK (state = ANY ('{pending,processing,retrying,processed,skipped,failed,needs_review,discarded}')),
    reason             text,
    attention          boolean NOT NULL DEFAULT false,
    run                integer NOT NULL DEFAULT 1 CHECK (run >= 1),
    run_started_at     timestamptz NOT NULL,
    claim              bigint NOT NULL DEFAULT 0 CHECK (claim >= 0),
    attempts           integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    snoozes            integer NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    crashes            integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    due_at             timestamptz,
    leased_until       timestamptz,
    claimed_at         timestamptz,
    worker             text,
    first_processed_at timestamptz,
    finished_at        timestamptz,
    result             text,
    error              text,
    alert              text CHECK (alert <> ''),
    cause              text COLLATE "C" CHECK (length(cause) BETWEEN 1 AND 200),
    emptied_at         timestamptz,
    account            text CHECK (length(account) <= 255),
    CONSTRAINT due_while_waiting CHECK ((state = ANY ('{pending,retrying}')) = (due_at IS NOT NULL)),
    CONSTRAINT leased_while_processing CHECK ((state = 'processing') = (leased_until IS NOT NULL)),
    CONSTRAINT claimed_while_processing
        CHECK (state <> 'processing' OR (worker IS NOT NULL AND claimed_at IS NOT NULL AND claim > 0 AND attempts > 0)),
    CONSTRAINT finished_when_final
        CHECK ((state = ANY ('{processed,skipped,failed,discarded}')) = (finished_at IS NOT NULL)),
    CONSTRAINT processed_once CHECK (state <> 'processed' OR first_processed_at IS NOT NULL),
    CONSTRAINT reason_given CHECK (state <> ALL ('{skipped,failed,needs_review,discarded}') OR reason IS NOT NULL),
    CONSTRAINT alert_while_open CHECK (alert IS NULL OR state <> ALL ('{processed,skipped,discarded}')),
    -- An event whose bytes are deleted can never be claimed again.
    CONSTRAINT emptied_when_final
        CHECK (emptied_at IS NULL OR state = ANY ('{processed,skipped,failed,discarded}'))
) WITH (fillfactor = 80);

CREATE INDEX events_waiting ON {schema}.events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes < 2;
CREATE INDEX events_waiting_alone ON {schema}.events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes >= 2;
-- Not WHERE state = 'processing': the fence says that too, and the planner would walk this whole index, which every
-- claim leaves a dead entry in, instead of looking up the id.
CREATE INDEX events_leased ON {schema}.events (leased_until) WHERE leased_until IS NOT NULL;
-- Events that wait for a decision: an effect may become known without one.
CREATE INDEX events_in_review ON {schema}.events (id) WHERE state = 'needs_review';

-- Searches, in the order of ids. Each index on all events is paid for three times by each event (recorded, claimed,
-- settled), so there are two of them; the others hold what is rare.
-- Source, type, both or a beginning of a type: walked from kind to kind, then merged.
CREATE INDEX events_of_kind ON {schema}.events (source, type, id);
CREATE INDEX events_of_object ON {schema}.events (object_id, id) WHERE object_id IS NOT NULL;
CREATE INDEX events_of_account ON {schema}.events (account, id) WHERE account IS NOT NULL;
-- Of other origins than these: there the key is the provider's id, and `identities` leads to its event.
CREATE INDEX events_of_key ON {schema}.events (key, id) WHERE key_origin NOT IN ('signed_id', 'unsigned_id');
-- The states that few events are in. What is pending or processing is in the indexes of the queue.
CREATE INDEX events_in_state ON {schema}.events (state, id)
    WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded');
CREATE INDEX events_by_cause ON {schema}.events (cause, id) WHERE cause IS NOT NULL;
CREATE INDEX events_marked ON {schema}.events (id) WHERE attention OR alert IS NOT NULL;
-- No quarantined delivery is accepted twice.
CREATE UNIQUE INDEX events_from_quarantine ON {schema}.events (request_id, item) WHERE key_origin = 'quarantine';
-- How many events of one key were accepted from quarantine.
CREATE INDEX events_from_quarantine_keys ON {schema}.events (key, source) WHERE key_origin = 'quarantine';
-- Their ids are younger than they are: a search by time must look for them separately.
CREATE INDEX events_from_quarantine_ids ON {schema}.events (id) WHERE key_origin = 'quarantine';

CREATE TABLE {schema}.attempts (
    event_id   uuid NOT NULL,
    claim      bigint NOT NULL,
    run        integer NOT NULL,
    worker     text,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    outcome    text NOT NULL CHECK (outcome IN ('processed', 'skipped', 'retrying', 'waiting', 'failed',
                                                'needs_review', 'crashed')),
    error      text,
    PRIMARY KEY (event_id, claim)
);

CREATE TABLE {schema}.workers (
    id         text PRIMARY KEY,
    handles    text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    stopped_at timestamptz
);

-- ── effects ──

-- What an event brings about, each under its own key. Effects outlive their events: a key that was done once is never
-- done again by accident.
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
    CONSTRAINT leased_by_worker CHECK (leased_until IS NULL OR state IN ('started', 'unknown')),
    CONSTRAINT due_while_open CHECK (due_at IS NULL OR (kind = 'later' AND state IN ('planned', 'unknown'))),
    CONSTRAINT planned_is_due CHECK (kind <> 'later' OR state <> 'planned' OR due_at IS NOT NULL),
    CONSTRAINT called_before CHECK (state NOT IN ('started', 'unknown') OR number > 0),
    CONSTRAINT finished_when_over CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT placed_in_lane CHECK ((lane IS NULL) = (place IS NULL)),
    -- Later calls are not what the decision was about.
    CONSTRAINT decided_about_calls CHECK ((decided IS NULL) = (decided_number IS NULL))
) WITH (fillfactor = 80);

CREATE INDEX effects_due ON {schema}.effects (name, due_at) WHERE due_at IS NOT NULL AND lane IS NULL;
-- Walked from lane to lane: what waits behind a stuck entry costs nothing.
CREATE INDEX effects_due_in_lane ON {schema}.effects (name, lane, place) WHERE due_at IS NOT NULL AND lane IS NOT NULL;
CREATE INDEX effects_leased ON {schema}.effects (leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX effects_of_event ON {schema}.effects (event_id);
CREATE INDEX effects_in_lane ON {schema}.effects (name, lane, place)
    WHERE lane IS NOT NULL AND finished_at IS NULL;
-- Unknown outcomes by name. Few effects are in it at any time.
CREATE INDEX effects_unknown ON {schema}.effects (name, event_id) WHERE state = 'unknown';
-- Effects by state, the newest event first. Those that are started are found by their lease.
CREATE INDEX effects_open ON {schema}.effects (state, event_id, identity)
    WHERE state IN ('planned', 'failed', 'unknown');

-- The next place in each lane. Assigned in the handler's transaction, so that places are given in the order of
-- commits.
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

-- ── operators ──

-- The audit log. An action is about an event, an effect of it, or a subject without an event such as a circuit.
-- replaced: what a decision replaced, as evidence.
CREATE TABLE {schema}.actions (
    id         uuid PRIMARY KEY,
    at         timestamptz NOT NULL,
    name       text NOT NULL,
    actor      text NOT NULL CHECK (actor <> ''),
    reason     text NOT NULL CHECK (reason <> ''),
    event_id   uuid,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    subject    text,
    replaced   bytea,
    CONSTRAINT about_something CHECK (event_id IS NOT NULL OR subject IS NOT NULL)
);
CREATE INDEX actions_of_event ON {schema}.actions (event_id, at);

CREATE TABLE {schema}.pauses (
    source  text COLLATE "C" NOT NULL CHECK (source <> ''),
    pattern text COLLATE "C" NOT NULL CHECK (pattern <> ''),
    since   timestamptz NOT NULL,
    actor   text NOT NULL CHECK (actor <> ''),
    reason  text NOT NULL CHECK (reason <> ''),
    PRIMARY KEY (source, pattern)
);

-- Bulk jobs. effect, decision, effects: for jobs that resolve effects, which, how, and how many.
CREATE TABLE {schema}.jobs (
    id            uuid PRIMARY KEY,
    name          text NOT NULL CHECK (name IN ('retry', 'replay', 'discard', 'resolve')),
    filter        text NOT NULL,
    actor         text NOT NULL CHECK (actor <> ''),
    reason        text NOT NULL CHECK (reason <> ''),
    per_second    float8 NOT NULL CHECK (per_second >= 0),
    state         text NOT NULL CHECK (state IN ('planned', 'running', 'done', 'cancelled')),
    total         bigint NOT NULL CHECK (total > 0),
    done          bigint NOT NULL DEFAULT 0 CHECK (done >= 0),
    not_allowed   bigint NOT NULL DEFAULT 0 CHECK (not_allowed >= 0),
    position      uuid,
    created_at    timestamptz NOT NULL,
    frozen_at     timestamptz,
    started_at    timestamptz,
    finished_at   timestamptz,
    cancelled_by  text CHECK (cancelled_by <> ''),
    cancel_reason text CHECK (cancel_reason <> ''),
    fence         bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    worker        text,
    leased_until  timestamptz,
    effect        text CHECK (effect <> ''),
    decision      text CHECK (decision IN ('happened', 'did_not_happen')),
    effects       bigint CHECK (effects > 0),
    CONSTRAINT no_more_than_frozen CHECK (done + not_allowed <= total),
    CONSTRAINT done_to_the_last CHECK (state <> 'done' OR done + not_allowed = total),
    CONSTRAINT position_of_the_last CHECK ((position IS NULL) = (done + not_allowed = 0)),
    CONSTRAINT frozen_before_begun CHECK (started_at IS NULL OR frozen_at IS NOT NULL),
    CONSTRAINT begun_when_running CHECK (
        CASE state WHEN 'planned' THEN started_at IS NULL
                   WHEN 'cancelled' THEN true
                   ELSE started_at IS NOT NULL AND worker IS NOT NULL AND fence > 0 END),
    CONSTRAINT finished_when_over CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT cancelled_by_operator
        CHECK ((state = 'cancelled') = (cancelled_by IS NOT NULL)
               AND (cancelled_by IS NULL) = (cancel_reason IS NULL)),
    CONSTRAINT leased_while_running CHECK (leased_until IS NULL OR state = 'running'),
    CONSTRAINT decision_to_resolve
        CHECK ((name = 'resolve') = (decision IS NOT NULL) AND (decision IS NULL) = (effect IS NULL)
               AND (decision IS NULL) = (effects IS NULL)),
    CONSTRAINT an_effect_of_each_event CHECK (effects >= total)
);

-- The frozen set: no event twice, in the order of their ids. What is up to jobs.position has an outcome.
CREATE TABLE {schema}.job_items (
    job_id     uuid NOT NULL,
    event_id   uuid NOT NULL,
    seen_state text NOT NULL,
    seen_claim bigint NOT NULL,
    outcome    text CHECK (outcome IN ('done', 'not_allowed')),
    cause      text CHECK (cause IN ('state', 'changed', 'decision')),
    reason     text,
    ended_at   timestamptz,
    PRIMARY KEY (job_id, event_id),
    CONSTRAINT ended_with_an_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CONSTRAINT not_allowed_with_reason
        CHECK ((outcome IS NOT NULL AND outcome = 'not_allowed') = (cause IS NOT NULL)
               AND (cause IS NULL) = (reason IS NULL))
);
CREATE INDEX job_items_not_allowed ON {schema}.job_items (job_id, event_id) WHERE outcome = 'not_allowed';

-- The effects of the frozen events that are to be decided. Each change of an effect gives it a new fence: what was
-- frozen can never be decided about a later call.
CREATE TABLE {schema}.job_effects (
    job_id   uuid NOT NULL,
    event_id uuid NOT NULL,
    identity bytea NOT NULL CHECK (octet_length(identity) = 32),
    fence    bigint NOT NULL CHECK (fence >= 0),
    PRIMARY KEY (job_id, event_id, identity)
);

-- Each comparison with a provider's log. slot: the moment it was planned for, where it was; one run for each. An
-- abandoned run is taken up by another worker when its lease is over; fence distinguishes the two.
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
-- One for each slot. Those that an operator asked for have none.
CREATE UNIQUE INDEX reconciliations_planned ON {schema}.reconciliations (source, slot);
CREATE INDEX reconciliations_of_source ON {schema}.reconciliations (source, started_at);

-- The last repair of each object. A request for one locks the row, so that one repair is open at a time.
CREATE TABLE {schema}.repairs (
    source    text COLLATE "C" NOT NULL,
    object_id text COLLATE "C" NOT NULL CHECK (length(object_id) BETWEEN 1 AND 255),
    event_id  uuid NOT NULL,
    PRIMARY KEY (source, object_id)
);

-- Restores from a backup, whose gap an operator closes.
CREATE TABLE {schema}.restores (
    id          uuid PRIMARY KEY,
    backup_at   timestamptz NOT NULL,
    restored_at timestamptz NOT NULL,
    marked_at   timestamptz,
    closed_at   timestamptz,
    CONSTRAINT taken_before CHECK (backup_at <= restored_at),
    CONSTRAINT marked_before_closed CHECK (closed_at IS NULL OR marked_at IS NOT NULL)
);
-- One gap at a time.
CREATE UNIQUE INDEX restores_open ON {schema}.restores ((true)) WHERE closed_at IS NULL;

-- ── maintenance ──

-- What pruning leaves of an event. Identities and effects stay; a row that points at neither an event nor a row here
-- is a loss, and the consistency check finds it.
CREATE TABLE {schema}.pruned (
    event_id  uuid PRIMARY KEY,
    source    text COLLATE "C" NOT NULL,
    state     text COLLATE "C" NOT NULL CHECK (state IN ('processed', 'skipped', 'failed', 'discarded')),
    pruned_at timestamptz NOT NULL
);

-- How far each pass of the pruning has come, and when it began.
CREATE TABLE {schema}.prune_positions (
    name       text COLLATE "C" PRIMARY KEY,
    position   uuid NOT NULL,
    started_at timestamptz NOT NULL
);

-- Tasks that only one process does at a time.
CREATE TABLE {schema}.task_leases (
    name   text COLLATE "C" PRIMARY KEY,
    holder text NOT NULL CHECK (holder <> ''),
    until  timestamptz NOT NULL
);

-- The copy that this inbox is the source or the target of: one row at most. `message` is the error of every write
-- while triggers forbid it; they let pass what the transaction writes that set `writing`, which is never committed.
CREATE TABLE {schema}.copies (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    id         uuid NOT NULL,
    state      text NOT NULL CHECK (state IN ('moving', 'abandoning', 'moved', 'incomplete', 'abandoned', 'complete')),
    other      text NOT NULL,
    message    text NOT NULL,
    target_id  uuid,
    position   bytea,
    writing    boolean NOT NULL,
    started_at timestamptz NOT NULL,
    CONSTRAINT distinct_target CHECK (target_id IS NOT NULL OR state IN ('moving', 'abandoning'))
);

-- One row: what /readyz writes to prove that the database can be written.
CREATE TABLE {schema}.probe (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    probed_at timestamptz NOT NULL
);
INSERT INTO {schema}.probe (probed_at) VALUES (now());
