-- The whole schema. No foreign keys: every row is written in the transaction of its parent, history is pruned before
-- identities, and a key check per row would be paid on the ack path. `doctor` proves the balance instead.
-- The same tables as PostgreSQL's. Ids are 16-byte blobs and times are microseconds since 1970: SQLite has no types
-- for them. STRICT, so that a column holds only what it says.

-- ── intake ──

CREATE TABLE sources (
    name TEXT PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
    id          BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    source      TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    query       BLOB NOT NULL,
    headers     BLOB NOT NULL,
    body        BLOB NOT NULL,
    remote      TEXT,
    scheme      TEXT NOT NULL,
    secret      TEXT NOT NULL,
    signed_at   INTEGER,
    emptied_at  INTEGER,
    CONSTRAINT emptied_is_empty
        CHECK (emptied_at IS NULL OR (body = x'' AND headers = x'' AND query = x'' AND remote IS NULL))
) STRICT;

-- Which keys and bodies are taken, by which event. They outlive pruning.
-- With a rowid: identities come in no order, so each is written into a page that holds its neighbours. Such a page
-- holds 22 keys with the rows elsewhere, and 9 with the rows beside them.
CREATE TABLE identities (
    identity    BLOB PRIMARY KEY NOT NULL CHECK (length(identity) = 32),
    kind        TEXT NOT NULL CHECK (kind IN ('key', 'body', 'quarantine')),
    source      TEXT NOT NULL,
    event_id    BLOB NOT NULL,
    fingerprint BLOB NOT NULL
) STRICT;

CREATE TABLE deliveries (
    request_id  BLOB NOT NULL,
    item        INTEGER NOT NULL CHECK (item >= 0),
    event_id    BLOB NOT NULL,
    source      TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    outcome     TEXT NOT NULL
        CHECK (outcome IN ('accepted', 'duplicate', 'conflict', 'same_body', 'invalid', 'reconciled')),
    event_state TEXT,
    delivery_id TEXT,
    fingerprint BLOB NOT NULL,
    retry       TEXT CHECK (length(retry) <= 255),
    PRIMARY KEY (request_id, item)
) STRICT, WITHOUT ROWID;
-- An event names its first delivery itself (request_id, item), so only the later ones need an index.
CREATE INDEX deliveries_repeated ON deliveries (event_id)
    WHERE outcome NOT IN ('accepted', 'invalid', 'reconciled');
CREATE INDEX deliveries_quarantined ON deliveries (source, outcome, request_id, item)
    WHERE outcome IN ('conflict', 'same_body');

-- A bounded sample of rejected requests, and how many there were.
CREATE TABLE rejections (
    id          BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    source      TEXT NOT NULL,
    reason      TEXT NOT NULL CHECK (reason <> ''),
    received_at INTEGER NOT NULL,
    method      TEXT NOT NULL CHECK (length(method) <= 32),
    path        TEXT NOT NULL CHECK (length(path) <= 2048),
    query       BLOB NOT NULL,
    headers     BLOB NOT NULL,
    body        BLOB NOT NULL,
    remote      TEXT CHECK (length(remote) <= 255)
) STRICT;
CREATE INDEX rejections_of_source ON rejections (source, id);
CREATE INDEX rejections_by_reason ON rejections (source, reason, id);

CREATE TABLE rejection_counts (
    source   TEXT NOT NULL,
    reason   TEXT NOT NULL CHECK (reason <> ''),
    count    INTEGER NOT NULL CHECK (count > 0),
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    PRIMARY KEY (source, reason),
    CONSTRAINT first_before_last CHECK (first_at <= last_at)
) STRICT, WITHOUT ROWID;

-- Keys that providers publish and that proved a request, so that a restart needs no fetch.
CREATE TABLE published_keys (
    digest     BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32),
    provider   TEXT NOT NULL,
    url        TEXT NOT NULL CHECK (length(url) <= 1024),
    content    BLOB NOT NULL CHECK (length(content) BETWEEN 1 AND 65536),
    fetched_at INTEGER NOT NULL,
    lifetime   REAL NOT NULL CHECK (lifetime >= 0)
) STRICT;

-- ── events, which are the queue ──

-- alert: why an operator should look at an event, other than its effects. cause: why it fails, without what differs
-- from one event to the next. account: on whose behalf it is, where a source serves several accounts.
CREATE TABLE events (
    id                 BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    source             TEXT NOT NULL,
    type               TEXT NOT NULL CHECK (length(type) <= 255),
    key                TEXT NOT NULL CHECK (length(key) <= 255),
    key_origin         TEXT NOT NULL
        CHECK (key_origin IN ('signed_id', 'unsigned_id', 'composite', 'function', 'digest', 'arrival',
                              'quarantine')),
    provider_id        TEXT,
    object_id          TEXT,
    occurred_at        INTEGER,
    fingerprint        BLOB NOT NULL,
    request_id         BLOB NOT NULL,
    item               INTEGER NOT NULL CHECK (item >= 0),
    received_at        INTEGER NOT NULL,
    state              TEXT NOT NULL
        CHECK (state IN ('pending', 'processing', 'retrying', 'processed', 'skipped', 'failed', 'needs_review',
                         'discarded')),
    reason             TEXT,
    attention          INTEGER NOT NULL DEFAULT 0 CHECK (attention IN (0, 1)),
    run                INTEGER NOT NULL DEFAULT 1 CHECK (run >= 1),
    run_started_at     INTEGER NOT NULL,
    claim              INTEGER NOT NULL DEFAULT 0 CHECK (claim >= 0),
    attempts           INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    snoozes            INTEGER NOT NULL DEFAULT 0 CHECK (snoozes >= 0),
    crashes            INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    due_at             INTEGER,
    leased_until       INTEGER,
    claimed_at         INTEGER,
    worker             TEXT,
    first_processed_at INTEGER,
    finished_at        INTEGER,
    result             TEXT,
    error              TEXT,
    alert              TEXT CHECK (alert <> ''),
    cause              TEXT CHECK (length(cause) BETWEEN 1 AND 200),
    emptied_at         INTEGER,
    account            TEXT CHECK (length(account) <= 255),
    CONSTRAINT due_while_waiting CHECK ((state IN ('pending', 'retrying')) = (due_at IS NOT NULL)),
    CONSTRAINT leased_while_processing CHECK ((state = 'processing') = (leased_until IS NOT NULL)),
    CONSTRAINT claimed_while_processing
        CHECK (state <> 'processing' OR (worker IS NOT NULL AND claimed_at IS NOT NULL AND claim > 0 AND attempts > 0)),
    CONSTRAINT finished_when_final
        CHECK ((state IN ('processed', 'skipped', 'failed', 'discarded')) = (finished_at IS NOT NULL)),
    CONSTRAINT processed_once CHECK (state <> 'processed' OR first_processed_at IS NOT NULL),
    CONSTRAINT reason_given
        CHECK (state NOT IN ('skipped', 'failed', 'needs_review', 'discarded') OR reason IS NOT NULL),
    CONSTRAINT alert_while_open CHECK (alert IS NULL OR state NOT IN ('processed', 'skipped', 'discarded')),
    -- An event whose bytes are deleted can never be claimed again.
    CONSTRAINT emptied_when_final
        CHECK (emptied_at IS NULL OR state IN ('processed', 'skipped', 'failed', 'discarded'))
) STRICT;

CREATE INDEX events_waiting ON events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes < 2;
CREATE INDEX events_waiting_alone ON events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes >= 2;
CREATE INDEX events_leased ON events (leased_until) WHERE leased_until IS NOT NULL;
-- Events that wait for a decision: an effect may become known without one.
CREATE INDEX events_in_review ON events (id) WHERE state = 'needs_review';

-- Searches, in the order of ids. Each index on all events is paid for three times by each event (recorded, claimed,
-- settled), so there are two of them; the others hold what is rare.
-- Source, type, both or a beginning of a type: walked from kind to kind, then merged.
CREATE INDEX events_of_kind ON events (source, type, id);
CREATE INDEX events_of_object ON events (object_id, id) WHERE object_id IS NOT NULL;
CREATE INDEX events_of_account ON events (account, id) WHERE account IS NOT NULL;
-- Of other origins than these: there the key is the provider's id, and `identities` leads to its event.
CREATE INDEX events_of_key ON events (key, id) WHERE key_origin NOT IN ('signed_id', 'unsigned_id');
-- The states that few events are in. What is pending or processing is in the indexes of the queue.
CREATE INDEX events_in_state ON events (state, id)
    WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded');
CREATE INDEX events_by_cause ON events (cause, id) WHERE cause IS NOT NULL;
CREATE INDEX events_marked ON events (id) WHERE (attention = 1 OR alert IS NOT NULL);
-- No quarantined delivery is accepted twice.
CREATE UNIQUE INDEX events_from_quarantine ON events (request_id, item) WHERE key_origin = 'quarantine';
-- How many events of one key were accepted from quarantine.
CREATE INDEX events_from_quarantine_keys ON events (key, source) WHERE key_origin = 'quarantine';
-- Their ids are younger than they are: a search by time must look for them separately.
CREATE INDEX events_from_quarantine_ids ON events (id) WHERE key_origin = 'quarantine';

CREATE TABLE attempts (
    event_id   BLOB NOT NULL,
    claim      INTEGER NOT NULL,
    run        INTEGER NOT NULL,
    worker     TEXT,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    outcome    TEXT NOT NULL CHECK (outcome IN ('processed', 'skipped', 'retrying', 'waiting', 'failed',
                                                'needs_review', 'crashed')),
    error      TEXT,
    PRIMARY KEY (event_id, claim)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id         TEXT PRIMARY KEY NOT NULL,
    handles    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    stopped_at INTEGER
) STRICT, WITHOUT ROWID;

-- ── effects ──

-- What an event brings about, each under its own key. Effects outlive their events: a key that was done once is never
-- done again by accident.
CREATE TABLE effects (
    identity         BLOB PRIMARY KEY NOT NULL CHECK (length(identity) = 32),
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
    CONSTRAINT leased_by_worker CHECK (leased_until IS NULL OR state IN ('started', 'unknown')),
    CONSTRAINT due_while_open CHECK (due_at IS NULL OR (kind = 'later' AND state IN ('planned', 'unknown'))),
    CONSTRAINT planned_is_due CHECK (kind <> 'later' OR state <> 'planned' OR due_at IS NOT NULL),
    CONSTRAINT called_before CHECK (state NOT IN ('started', 'unknown') OR number > 0),
    CONSTRAINT finished_when_over CHECK ((state IN ('done', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT placed_in_lane CHECK ((lane IS NULL) = (place IS NULL)),
    -- Later calls are not what the decision was about.
    CONSTRAINT decided_about_calls CHECK ((decided IS NULL) = (decided_number IS NULL))
) STRICT;

CREATE INDEX effects_due ON effects (name, due_at) WHERE due_at IS NOT NULL AND lane IS NULL;
-- Walked from lane to lane: what waits behind a stuck entry costs nothing.
CREATE INDEX effects_due_in_lane ON effects (name, lane, place) WHERE due_at IS NOT NULL AND lane IS NOT NULL;
CREATE INDEX effects_leased ON effects (leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX effects_of_event ON effects (event_id);
CREATE INDEX effects_in_lane ON effects (name, lane, place)
    WHERE lane IS NOT NULL AND finished_at IS NULL;
-- Unknown outcomes by name. Few effects are in it at any time.
CREATE INDEX effects_unknown ON effects (name, event_id) WHERE state = 'unknown';
-- Effects by state, the newest event first. Those that are started are found by their lease.
CREATE INDEX effects_open ON effects (state, event_id, identity)
    WHERE state IN ('planned', 'failed', 'unknown');

-- The next place in each lane. Assigned in the handler's transaction, so that places are given in the order of
-- commits.
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
    downstream TEXT PRIMARY KEY NOT NULL,
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

-- ── operators ──

-- The audit log. An action is about an event, an effect of it, or a subject without an event such as a circuit.
-- replaced: what a decision replaced, as evidence.
CREATE TABLE actions (
    id         BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    at         INTEGER NOT NULL,
    name       TEXT NOT NULL,
    actor      TEXT NOT NULL CHECK (actor <> ''),
    reason     TEXT NOT NULL CHECK (reason <> ''),
    event_id   BLOB,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    subject    TEXT,
    replaced   BLOB,
    CONSTRAINT about_something CHECK (event_id IS NOT NULL OR subject IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX actions_of_event ON actions (event_id, at);

CREATE TABLE pauses (
    source  TEXT NOT NULL CHECK (source <> ''),
    pattern TEXT NOT NULL CHECK (pattern <> ''),
    since   INTEGER NOT NULL,
    actor   TEXT NOT NULL CHECK (actor <> ''),
    reason  TEXT NOT NULL CHECK (reason <> ''),
    PRIMARY KEY (source, pattern)
) STRICT, WITHOUT ROWID;

-- Bulk jobs. effect, decision, effects: for jobs that resolve effects, which, how, and how many.
CREATE TABLE jobs (
    id            BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    name          TEXT NOT NULL CHECK (name IN ('retry', 'replay', 'discard', 'resolve')),
    filter        TEXT NOT NULL,
    actor         TEXT NOT NULL CHECK (actor <> ''),
    reason        TEXT NOT NULL CHECK (reason <> ''),
    per_second    REAL NOT NULL CHECK (per_second >= 0),
    state         TEXT NOT NULL CHECK (state IN ('planned', 'running', 'done', 'cancelled')),
    total         INTEGER NOT NULL CHECK (total > 0),
    done          INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
    not_allowed   INTEGER NOT NULL DEFAULT 0 CHECK (not_allowed >= 0),
    position      BLOB,
    created_at    INTEGER NOT NULL,
    frozen_at     INTEGER,
    started_at    INTEGER,
    finished_at   INTEGER,
    cancelled_by  TEXT CHECK (cancelled_by <> ''),
    cancel_reason TEXT CHECK (cancel_reason <> ''),
    fence         INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    worker        TEXT,
    leased_until  INTEGER,
    effect        TEXT CHECK (effect <> ''),
    decision      TEXT CHECK (decision IN ('happened', 'did_not_happen')),
    effects       INTEGER CHECK (effects > 0),
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
) STRICT;

-- The frozen set: no event twice, in the order of their ids. What is up to jobs.position has an outcome.
CREATE TABLE job_items (
    job_id     BLOB NOT NULL,
    event_id   BLOB NOT NULL,
    seen_state TEXT NOT NULL,
    seen_claim INTEGER NOT NULL,
    outcome    TEXT CHECK (outcome IN ('done', 'not_allowed')),
    cause      TEXT CHECK (cause IN ('state', 'changed', 'decision')),
    reason     TEXT,
    ended_at   INTEGER,
    PRIMARY KEY (job_id, event_id),
    CONSTRAINT ended_with_an_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CONSTRAINT not_allowed_with_reason
        CHECK ((outcome IS NOT NULL AND outcome = 'not_allowed') = (cause IS NOT NULL)
               AND (cause IS NULL) = (reason IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX job_items_not_allowed ON job_items (job_id, event_id) WHERE outcome = 'not_allowed';

-- The effects of the frozen events that are to be decided. Each change of an effect gives it a new fence: what was
-- frozen can never be decided about a later call.
CREATE TABLE job_effects (
    job_id   BLOB NOT NULL,
    event_id BLOB NOT NULL,
    identity BLOB NOT NULL CHECK (length(identity) = 32),
    fence    INTEGER NOT NULL CHECK (fence >= 0),
    PRIMARY KEY (job_id, event_id, identity)
) STRICT, WITHOUT ROWID;

-- Each comparison with a provider's log. slot: the moment it was planned for, where it was; one run for each. An
-- abandoned run is taken up by another worker when its lease is over; fence distinguishes the two.
CREATE TABLE reconciliations (
    id           BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    source       TEXT NOT NULL CHECK (source <> ''),
    slot         INTEGER,
    since        INTEGER NOT NULL,
    until        INTEGER NOT NULL,
    actor        TEXT NOT NULL CHECK (actor <> ''),
    reason       TEXT NOT NULL CHECK (reason <> ''),
    fence        INTEGER NOT NULL DEFAULT 1 CHECK (fence >= 1),
    started_at   INTEGER NOT NULL,
    leased_until INTEGER,
    finished_at  INTEGER,
    problem      TEXT CHECK (problem <> ''),
    counts       TEXT,
    CONSTRAINT window_has_length CHECK (since < until),
    CONSTRAINT leased_until_finished CHECK ((finished_at IS NULL) = (leased_until IS NOT NULL)),
    CONSTRAINT finished_with_result CHECK (finished_at IS NULL OR problem IS NOT NULL OR counts IS NOT NULL)
) STRICT;
-- One for each slot. Those that an operator asked for have none.
CREATE UNIQUE INDEX reconciliations_planned ON reconciliations (source, slot);
CREATE INDEX reconciliations_of_source ON reconciliations (source, started_at);

-- The last repair of each object. A request for one locks the row, so that one repair is open at a time.
CREATE TABLE repairs (
    source    TEXT NOT NULL,
    object_id TEXT NOT NULL CHECK (length(object_id) BETWEEN 1 AND 255),
    event_id  BLOB NOT NULL,
    PRIMARY KEY (source, object_id)
) STRICT, WITHOUT ROWID;

-- Restores from a backup, whose gap an operator closes.
CREATE TABLE restores (
    id          BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    backup_at   INTEGER NOT NULL,
    restored_at INTEGER NOT NULL,
    marked_at   INTEGER,
    closed_at   INTEGER,
    CONSTRAINT taken_before CHECK (backup_at <= restored_at),
    CONSTRAINT marked_before_closed CHECK (closed_at IS NULL OR marked_at IS NOT NULL)
) STRICT;
-- One gap at a time.
CREATE UNIQUE INDEX restores_open ON restores (closed_at IS NULL) WHERE closed_at IS NULL;

-- ── maintenance ──

-- What pruning leaves of an event. Identities and effects stay; a row that points at neither an event nor a row here
-- is a loss, and the consistency check finds it.
CREATE TABLE pruned (
    event_id  BLOB PRIMARY KEY NOT NULL CHECK (length(event_id) = 16),
    source    TEXT NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('processed', 'skipped', 'failed', 'discarded')),
    pruned_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How far each pass of the pruning has come, and when it began.
CREATE TABLE prune_positions (
    name       TEXT PRIMARY KEY NOT NULL,
    position   BLOB NOT NULL,
    started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Tasks that only one process does at a time.
CREATE TABLE task_leases (
    name   TEXT PRIMARY KEY NOT NULL,
    holder TEXT NOT NULL CHECK (holder <> ''),
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The copy that this inbox is the source or the target of: one row at most. `message` is the error of every write
-- while triggers forbid it; they let pass what the transaction writes that set `writing`, which is never committed.
CREATE TABLE copies (
    one        INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    id         BLOB NOT NULL CHECK (length(id) = 16),
    state      TEXT NOT NULL CHECK (state IN ('moving', 'abandoning', 'moved', 'incomplete', 'abandoned', 'complete')),
    other      TEXT NOT NULL,
    message    TEXT NOT NULL,
    target_id  BLOB,
    position   BLOB,
    writing    INTEGER NOT NULL CHECK (writing IN (0, 1)),
    started_at INTEGER NOT NULL,
    CONSTRAINT distinct_target CHECK (target_id IS NOT NULL OR state IN ('moving', 'abandoning'))
) STRICT;

-- One row: what /readyz writes to prove that the database can be written.
CREATE TABLE probe (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    probed_at INTEGER NOT NULL
) STRICT;
INSERT INTO probe VALUES (1, 0);
