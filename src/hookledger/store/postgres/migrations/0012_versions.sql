-- Versions of events that select their handler (decision 0063).
--
-- version: the tag that the intake read by the source's rule; empty where there is none. Part of what workers claim, so
-- it stands in the indexes of the queue before due_at: events of a version without a handler are not walked. Not null,
-- so that a claim compares it like source and type; varchar, because the length is then checked without a CHECK.
ALTER TABLE {schema}.events ADD COLUMN version varchar(64) COLLATE "C" NOT NULL DEFAULT '';

DROP INDEX {schema}.events_waiting;
DROP INDEX {schema}.events_waiting_alone;
CREATE INDEX events_waiting ON {schema}.events (source, type, version, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes < 2;
CREATE INDEX events_waiting_alone ON {schema}.events (source, type, version, due_at)
    WHERE state IN ('pending', 'retrying') AND crashes >= 2;

-- (source, type pattern, version pattern) of handlers that take some versions only, as JSON. Releases before this one
-- read `handles` alone, whose handlers take all versions.
ALTER TABLE {schema}.workers ADD COLUMN versions text NOT NULL DEFAULT '[]';

-- Workers of releases before this one claim by source and type, and would run an event with the handler of another
-- version. They obey pauses. So the first event with a version pauses its source for them, and only for them.
ALTER TABLE {schema}.pauses ADD COLUMN older boolean NOT NULL DEFAULT false;
ALTER TABLE {schema}.pauses DROP CONSTRAINT pauses_pkey;
ALTER TABLE {schema}.pauses ADD PRIMARY KEY (source, pattern, older);

-- A copy writes rows as they are.
CREATE FUNCTION {schema}.keep_older_away() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.copies WHERE writing) THEN
        INSERT INTO {schema}.pauses (source, pattern, since, actor, reason, older)
        VALUES (NEW.source, '*', clock_timestamp(), 'hookledger', 'its events have versions, which this release does not know',
                true)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER keep_older_away AFTER INSERT ON {schema}.events FOR EACH ROW
    WHEN (NEW.version <> '') EXECUTE FUNCTION {schema}.keep_older_away();

-- One item of a batch: the same as `arrival_in_order`, which receivers of the last release use, with its version
-- and its cause, which `causes.py` makes of the reason.
CREATE TYPE {schema}.arrival_with_version AS (
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
    retry       text,
    entity      text,
    ordered     boolean,
    order_at    float8,
    hold        boolean,
    version     text,
    cause       text
);
