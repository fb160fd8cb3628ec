-- Stages: several handlers for one event (decision 0056).
--
-- A stage of an event is a separate row: parent is the event, stage its name, and source is NAME/STAGE, so that kinds,
-- pauses and the order of entities are per stage, and no worker without a handler for it claims it. Its delivery, its
-- bytes and its identity are the event's.
-- One CHECK, because each is read for every statement. It is not validated: no row has a stage yet, and reading all events
-- would hold up the intake.
ALTER TABLE {schema}.events
    ADD COLUMN parent uuid,
    ADD COLUMN stage  text COLLATE "C",
    ADD CONSTRAINT stage_of_event CHECK (CASE WHEN parent IS NULL THEN stage IS NULL
        ELSE coalesce(stage ~ '^[A-Za-z0-9._-]{1,64}$' AND right(source, length(stage) + 1) = '/' || stage, false) END) NOT VALID;

-- Each stage of an event once.
CREATE UNIQUE INDEX events_stages ON {schema}.events (parent, stage) WHERE parent IS NOT NULL;

-- No quarantined delivery is accepted twice; stages of the accepted event name the same delivery.
DROP INDEX {schema}.events_from_quarantine;
CREATE UNIQUE INDEX events_from_quarantine ON {schema}.events (request_id, item)
    WHERE key_origin = 'quarantine' AND parent IS NULL;
