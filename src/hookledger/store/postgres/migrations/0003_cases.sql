-- What did not plainly become an event: a sample of refused requests, odd deliveries and what operators made of them,
-- keys known from elsewhere.

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

-- Why a person should look at an event, apart from its effects.
ALTER TABLE {schema}.events ADD COLUMN alert text CHECK (alert <> '');
ALTER TABLE {schema}.events ADD CONSTRAINT alert_while_open
    CHECK (alert IS NULL OR state NOT IN ('processed', 'skipped', 'discarded'));

ALTER TABLE {schema}.events DROP CONSTRAINT events_key_origin_check;
ALTER TABLE {schema}.events ADD CONSTRAINT events_key_origin_check
    CHECK (key_origin IN ('signed_id', 'unsigned_id', 'composite', 'function', 'digest', 'arrival', 'admitted'));
-- No delivery is admitted twice.
CREATE UNIQUE INDEX events_admitted ON {schema}.events (request_id, item) WHERE key_origin = 'admitted';
-- How many events of one key were admitted.
CREATE INDEX events_admitted_keys ON {schema}.events (key, source) WHERE key_origin = 'admitted';

ALTER TABLE {schema}.identities DROP CONSTRAINT identities_kind_check;
ALTER TABLE {schema}.identities ADD CONSTRAINT identities_kind_check CHECK (kind IN ('key', 'body', 'admitted'));

ALTER TABLE {schema}.deliveries DROP CONSTRAINT deliveries_outcome_check;
ALTER TABLE {schema}.deliveries ADD CONSTRAINT deliveries_outcome_check
    CHECK (outcome IN ('accepted', 'duplicate', 'conflict', 'same_body', 'invalid', 'reconciled'));
-- A reconciled delivery is the first of its event, as an accepted one is.
DROP INDEX {schema}.deliveries_again;
CREATE INDEX deliveries_again ON {schema}.deliveries (event_id)
    WHERE outcome NOT IN ('accepted', 'invalid', 'reconciled');
CREATE INDEX deliveries_odd ON {schema}.deliveries (source, outcome, request_id, item)
    WHERE outcome IN ('conflict', 'same_body');
