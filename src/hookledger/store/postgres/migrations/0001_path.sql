-- The path of an event: requests and deliveries in, events as the queue, attempts and actions as evidence.
-- No foreign keys: every row is written in the transaction of its parent, history is pruned before
-- identities, and a key check per row would be paid on the ack path. `doctor` proves the balance instead.

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
    signed_at   timestamptz
);
-- Compressing bodies would cost the ack more CPU than the disk it saves.
ALTER TABLE {schema}.requests ALTER COLUMN body SET STORAGE EXTERNAL;

-- An identity that an arrival would like to own.
CREATE TYPE {schema}.proposal AS (
    identity    bytea,
    kind        text,
    source      text,
    event_id    uuid,
    fingerprint bytea
);

-- One item of a batch on its way in. A single array of these costs the driver far less than an array per column.
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
    identity    bytea
);

CREATE TABLE {schema}.identities (
    identity    bytea PRIMARY KEY CHECK (octet_length(identity) = 32),
    kind        text NOT NULL CHECK (kind IN ('key', 'body')),
    source      text NOT NULL,
    event_id    uuid NOT NULL,
    fingerprint bytea NOT NULL
);

CREATE TABLE {schema}.events (
    id                 uuid PRIMARY KEY,
    source             text COLLATE "C" NOT NULL,
    type               text COLLATE "C" NOT NULL CHECK (length(type) <= 255),
    key                text NOT NULL CHECK (length(key) <= 255),
    key_origin         text NOT NULL CHECK (key_origin IN ('signed_id', 'unsigned_id', 'composite', 'digest')),
    provider_id        text,
    object_id          text,
    occurred_at        timestamptz,
    fingerprint        bytea NOT NULL,
    request_id         uuid NOT NULL,
    item               integer NOT NULL CHECK (item >= 0),
    received_at        timestamptz NOT NULL,
    state              text NOT NULL CHECK (state IN ('pending', 'processing', 'retrying', 'processed', 'skipped',
                                                      'failed', 'needs_review', 'discarded')),
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
    CONSTRAINT due_while_waiting CHECK ((state IN ('pending', 'retrying')) = (due_at IS NOT NULL)),
    CONSTRAINT leased_while_processing CHECK ((state = 'processing') = (leased_until IS NOT NULL)),
    CONSTRAINT claimed_while_processing
        CHECK (state <> 'processing' OR (worker IS NOT NULL AND claimed_at IS NOT NULL AND claim > 0 AND attempts > 0)),
    CONSTRAINT finished_when_final
        CHECK ((state IN ('processed', 'skipped', 'failed', 'discarded')) = (finished_at IS NOT NULL)),
    CONSTRAINT processed_once CHECK (state <> 'processed' OR first_processed_at IS NOT NULL),
    CONSTRAINT reason_given
        CHECK (state NOT IN ('skipped', 'failed', 'needs_review', 'discarded') OR reason IS NOT NULL)
) WITH (fillfactor = 80);

CREATE INDEX events_waiting ON {schema}.events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes < 2;
CREATE INDEX events_waiting_alone ON {schema}.events (source, type, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes >= 2;
-- Not WHERE state = 'processing': the fence says that too, and the planner would walk this whole index, which every
-- claim leaves a dead entry in, instead of looking up the id.
CREATE INDEX events_leased ON {schema}.events (leased_until) WHERE leased_until IS NOT NULL;

CREATE TABLE {schema}.deliveries (
    request_id  uuid NOT NULL,
    item        integer NOT NULL CHECK (item >= 0),
    event_id    uuid NOT NULL,
    source      text NOT NULL,
    received_at timestamptz NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('accepted', 'duplicate', 'conflict', 'same_body', 'invalid')),
    event_state text,
    delivery_id text,
    fingerprint bytea NOT NULL,
    PRIMARY KEY (request_id, item)
);
-- An event names its first delivery itself (request_id, item), so only the later ones need an index.
CREATE INDEX deliveries_again ON {schema}.deliveries (event_id) WHERE outcome NOT IN ('accepted', 'invalid');

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
    seen_at    timestamptz NOT NULL
);

CREATE TABLE {schema}.actions (
    id         uuid PRIMARY KEY,
    at         timestamptz NOT NULL,
    name       text NOT NULL,
    actor      text NOT NULL CHECK (actor <> ''),
    reason     text NOT NULL CHECK (reason <> ''),
    event_id   uuid NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL
);
CREATE INDEX actions_of_event ON {schema}.actions (event_id, at);

-- One row: what /readyz writes to prove that the database can be written.
CREATE TABLE {schema}.probe (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    probed_at timestamptz NOT NULL
);
INSERT INTO {schema}.probe (probed_at) VALUES (now());
