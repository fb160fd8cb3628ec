-- The same tables as PostgreSQL's 0001_path. Ids are 16-byte blobs, times are microseconds since 1970.
-- Differs because SQLite has no types for them. STRICT, so that a column holds only what it says.

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
    signed_at   INTEGER
) STRICT;

CREATE TABLE identities (
    identity    BLOB PRIMARY KEY CHECK (length(identity) = 32),
    kind        TEXT NOT NULL CHECK (kind IN ('key', 'body')),
    source      TEXT NOT NULL,
    event_id    BLOB NOT NULL,
    fingerprint BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id                 BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    source             TEXT NOT NULL,
    type               TEXT NOT NULL CHECK (length(type) <= 255),
    key                TEXT NOT NULL CHECK (length(key) <= 255),
    key_origin         TEXT NOT NULL CHECK (key_origin IN ('signed_id', 'unsigned_id', 'composite', 'digest')),
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
    CONSTRAINT due_while_waiting CHECK ((state IN ('pending', 'retrying')) = (due_at IS NOT NULL)),
    CONSTRAINT leased_while_processing CHECK ((state = 'processing') = (leased_until IS NOT NULL)),
    CONSTRAINT claimed_while_processing
        CHECK (state <> 'processing' OR (worker IS NOT NULL AND claimed_at IS NOT NULL AND claim > 0 AND attempts > 0)),
    CONSTRAINT finished_when_final
        CHECK ((state IN ('processed', 'skipped', 'failed', 'discarded')) = (finished_at IS NOT NULL)),
    CONSTRAINT processed_once CHECK (state <> 'processed' OR first_processed_at IS NOT NULL),
    CONSTRAINT reason_given
        CHECK (state NOT IN ('skipped', 'failed', 'needs_review', 'discarded') OR reason IS NOT NULL)
) STRICT;

CREATE INDEX events_waiting ON events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes < 2;
CREATE INDEX events_waiting_alone ON events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes >= 2;
CREATE INDEX events_leased ON events (leased_until) WHERE leased_until IS NOT NULL;

CREATE TABLE deliveries (
    request_id  BLOB NOT NULL,
    item        INTEGER NOT NULL CHECK (item >= 0),
    event_id    BLOB NOT NULL,
    source      TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    outcome     TEXT NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'conflict', 'same_body', 'invalid')),
    event_state TEXT,
    delivery_id TEXT,
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (request_id, item)
) STRICT, WITHOUT ROWID;
-- An event names its first delivery itself (request_id, item), so only the later ones need an index.
CREATE INDEX deliveries_again ON deliveries (event_id) WHERE outcome NOT IN ('accepted', 'invalid');

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
    id         TEXT PRIMARY KEY,
    handles    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE actions (
    id         BLOB PRIMARY KEY,
    at         INTEGER NOT NULL,
    name       TEXT NOT NULL,
    actor      TEXT NOT NULL CHECK (actor <> ''),
    reason     TEXT NOT NULL CHECK (reason <> ''),
    event_id   BLOB NOT NULL,
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX actions_of_event ON actions (event_id, at);

-- One row: what /readyz writes to prove that the database can be written.
CREATE TABLE probe (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    probed_at INTEGER NOT NULL
) STRICT;
INSERT INTO probe VALUES (1, 0);
