-- The same as PostgreSQL's 0003_cases. Differs because SQLite cannot change a CHECK: the tables whose words grow are
-- made anew, in the same transaction.

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

-- alert: why a person should look at an event, apart from its effects.
CREATE TABLE new_events (
    id                 BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    source             TEXT NOT NULL,
    type               TEXT NOT NULL CHECK (length(type) <= 255),
    key                TEXT NOT NULL CHECK (length(key) <= 255),
    key_origin         TEXT NOT NULL CHECK (key_origin IN ('signed_id', 'unsigned_id', 'composite', 'function',
                                                           'digest', 'arrival', 'admitted')),
    provider_id        TEXT,
    object_id          TEXT,
    occurred_at        INTEGER,
    fingerprint        BLOB NOT NULL,
    request_id         BLOB NOT NULL,
    item               INTEGER NOT NULL CHECK (item >= 0),
    received_at        INTEGER NOT NULL,
    state              TEXT NOT NULL CHECK (state IN ('pending', 'processing', 'retrying', 'processed', 'skipped',
                                                      'failed', 'needs_review', 'discarded')),
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
    CONSTRAINT due_while_waiting CHECK ((state IN ('pending', 'retrying')) = (due_at IS NOT NULL)),
    CONSTRAINT leased_while_processing CHECK ((state = 'processing') = (leased_until IS NOT NULL)),
    CONSTRAINT claimed_while_processing
        CHECK (state <> 'processing' OR (worker IS NOT NULL AND claimed_at IS NOT NULL AND claim > 0 AND attempts > 0)),
    CONSTRAINT finished_when_final
        CHECK ((state IN ('processed', 'skipped', 'failed', 'discarded')) = (finished_at IS NOT NULL)),
    CONSTRAINT processed_once CHECK (state <> 'processed' OR first_processed_at IS NOT NULL),
    CONSTRAINT reason_given
        CHECK (state NOT IN ('skipped', 'failed', 'needs_review', 'discarded') OR reason IS NOT NULL),
    CONSTRAINT alert_while_open CHECK (alert IS NULL OR state NOT IN ('processed', 'skipped', 'discarded'))
) STRICT;
INSERT INTO new_events (id, source, type, key, key_origin, provider_id, object_id, occurred_at, fingerprint,
                        request_id, item, received_at, state, reason, attention, run, run_started_at, claim, attempts,
                        snoozes, crashes, due_at, leased_until, claimed_at, worker, first_processed_at, finished_at,
                        result, error)
SELECT id, source, type, key, key_origin, provider_id, object_id, occurred_at, fingerprint, request_id, item,
       received_at, state, reason, attention, run, run_started_at, claim, attempts, snoozes, crashes, due_at,
       leased_until, claimed_at, worker, first_processed_at, finished_at, result, error
FROM events ORDER BY rowid;
DROP TABLE events;
ALTER TABLE new_events RENAME TO events;
CREATE INDEX events_waiting ON events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes < 2;
CREATE INDEX events_waiting_alone ON events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes >= 2;
CREATE INDEX events_leased ON events (leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX events_in_review ON events (id) WHERE state = 'needs_review';
-- No delivery is admitted twice.
CREATE UNIQUE INDEX events_admitted ON events (request_id, item) WHERE key_origin = 'admitted';
-- How many events of one key were admitted.
CREATE INDEX events_admitted_keys ON events (key, source) WHERE key_origin = 'admitted';

CREATE TABLE new_identities (
    identity    BLOB PRIMARY KEY CHECK (length(identity) = 32),
    kind        TEXT NOT NULL CHECK (kind IN ('key', 'body', 'admitted')),
    source      TEXT NOT NULL,
    event_id    BLOB NOT NULL,
    fingerprint BLOB NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO new_identities (identity, kind, source, event_id, fingerprint)
SELECT identity, kind, source, event_id, fingerprint
FROM identities;
DROP TABLE identities;
ALTER TABLE new_identities RENAME TO identities;

CREATE TABLE new_deliveries (
    request_id  BLOB NOT NULL,
    item        INTEGER NOT NULL CHECK (item >= 0),
    event_id    BLOB NOT NULL,
    source      TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    outcome     TEXT NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'conflict', 'same_body', 'invalid',
                                                 'reconciled')),
    event_state TEXT,
    delivery_id TEXT,
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (request_id, item)
) STRICT, WITHOUT ROWID;
INSERT INTO new_deliveries (request_id, item, event_id, source, received_at, outcome, event_state, delivery_id,
                            fingerprint)
SELECT request_id, item, event_id, source, received_at, outcome, event_state, delivery_id, fingerprint
FROM deliveries;
DROP TABLE deliveries;
ALTER TABLE new_deliveries RENAME TO deliveries;
-- A reconciled delivery is the first of its event, as an accepted one is.
CREATE INDEX deliveries_again ON deliveries (event_id) WHERE outcome NOT IN ('accepted', 'invalid', 'reconciled');
CREATE INDEX deliveries_odd ON deliveries (source, outcome, request_id, item)
    WHERE outcome IN ('conflict', 'same_body');
