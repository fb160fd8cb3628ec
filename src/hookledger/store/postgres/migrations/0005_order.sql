-- One entity at a time, and events that wait for an entity (decision 0051).
--
-- entity: what the event is about, if its source has entities. order_at: its place among the events of its entity; null
-- where it is not ordered. Of each entity one ordered event at most is first: it is processing, or due_at says when it
-- may be claimed. The others have due_at in the year 9999, so that no worker claims them, whatever release it runs;
-- ready_at is when they are due once it is their turn. hold: what follows it in its entity waits while it is failed or
-- in review. waits_for: the entity, of the same source, that it waits for; it lets others pass. waiting_since: the first
-- claim that waited; woken_at: the settlement that woke it last.
ALTER TABLE {schema}.events
    ADD COLUMN entity        text COLLATE "C" CHECK (length(entity) BETWEEN 1 AND 255),
    ADD COLUMN order_at      timestamptz,
    ADD COLUMN ready_at      timestamptz,
    ADD COLUMN hold          boolean NOT NULL DEFAULT false,
    ADD COLUMN waits_for     text COLLATE "C" CHECK (length(waits_for) BETWEEN 1 AND 255),
    ADD COLUMN waiting_since timestamptz,
    ADD COLUMN woken_at      timestamptz,
    ADD CONSTRAINT ordered_by_entity CHECK (order_at IS NULL OR entity IS NOT NULL),
    ADD CONSTRAINT ready_in_order CHECK (ready_at IS NULL OR (order_at IS NOT NULL AND due_at IS NOT NULL));

-- One first event for each entity.
CREATE UNIQUE INDEX events_first ON {schema}.events (source, entity)
    WHERE order_at IS NOT NULL AND (leased_until IS NOT NULL OR due_at < '9999-01-01 00:00:00+00');
CREATE INDEX events_queued ON {schema}.events (source, entity, order_at, id)
    WHERE order_at IS NOT NULL AND due_at IS NOT NULL AND waits_for IS NULL;
CREATE INDEX events_holding ON {schema}.events (source, entity, order_at, id)
    WHERE hold AND state IN ('failed', 'needs_review');
CREATE INDEX events_waiting_for ON {schema}.events (source, waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX events_to_poll ON {schema}.events (ready_at) WHERE waits_for IS NOT NULL AND order_at IS NOT NULL;

-- Locked by the worker that decides which event of an entity is first. settled_at: when it was seen
-- last that an event of it had finished.
CREATE TABLE {schema}.entities (
    source     text COLLATE "C" NOT NULL,
    entity     text COLLATE "C" NOT NULL,
    settled_at timestamptz,
    PRIMARY KEY (source, entity)
) WITH (fillfactor = 80);

-- What has happened to an entity since that was decided last: written with each change of an event, by the triggers
-- below, so that no operation can forget it; deleted by the next worker that decides.
CREATE TABLE {schema}.entity_changes (
    event_id   uuid NOT NULL,
    claim      bigint NOT NULL,
    change     text COLLATE "C" NOT NULL,
    source     text COLLATE "C" NOT NULL,
    entity     text COLLATE "C" NOT NULL,
    settled_at timestamptz,
    PRIMARY KEY (event_id, claim, change)
);

-- A copy writes rows as they are.
CREATE FUNCTION {schema}.keep_order() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    never CONSTANT timestamptz := '9999-01-01 00:00:00+00';
    first boolean := false;
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.copies WHERE writing) THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        first := OLD.state = 'processing' OR coalesce(OLD.due_at < never, false);
    END IF;
    IF NEW.due_at IS NULL THEN
        NEW.ready_at := NULL;
        NEW.waits_for := NULL;
    ELSIF NEW.order_at IS NOT NULL AND NEW.due_at < never AND (NOT first OR NEW.waits_for IS NOT NULL) THEN
        NEW.ready_at := NEW.due_at;
        NEW.due_at := never;
    END IF;
    IF NEW.entity IS NOT NULL THEN
        INSERT INTO {schema}.entity_changes (event_id, claim, change, source, entity, settled_at)
        VALUES (NEW.id, NEW.claim, NEW.state, NEW.source, NEW.entity, NEW.finished_at)
        ON CONFLICT DO NOTHING;
    END IF;
    IF NEW.waits_for IS NOT NULL THEN
        INSERT INTO {schema}.entity_changes (event_id, claim, change, source, entity)
        VALUES (NEW.id, NEW.claim, 'waits', NEW.source, NEW.waits_for)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER order_arrivals BEFORE INSERT ON {schema}.events FOR EACH ROW
    WHEN (NEW.order_at IS NOT NULL) EXECUTE FUNCTION {schema}.keep_order();
CREATE TRIGGER order_changes BEFORE UPDATE ON {schema}.events FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND NEW.state <> 'processing' AND (NEW.entity IS NOT NULL OR NEW.waits_for IS NOT NULL))
    EXECUTE FUNCTION {schema}.keep_order();

-- An event that is gone, or has no entity any longer, holds nothing.
CREATE FUNCTION {schema}.let_follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO {schema}.entity_changes (event_id, claim, change, source, entity)
    VALUES (OLD.id, OLD.claim, 'gone', OLD.source, OLD.entity)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER order_pruned AFTER DELETE ON {schema}.events FOR EACH ROW
    WHEN (OLD.hold AND OLD.entity IS NOT NULL) EXECUTE FUNCTION {schema}.let_follow();
CREATE TRIGGER order_erased AFTER UPDATE ON {schema}.events FOR EACH ROW
    WHEN (OLD.hold AND OLD.entity IS NOT NULL AND NEW.entity IS NULL) EXECUTE FUNCTION {schema}.let_follow();

-- One item of a batch: the same as `arrival`, which receivers of the last release use, and its entity. order_at: when it
-- happened, if that is signed.
CREATE TYPE {schema}.arrival_in_order AS (
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
    hold        boolean
);
