-- One entity at a time, and events that wait for an entity (decision 0051). PostgreSQL's file describes the columns. The
-- year 9999 is 253370764800000000 here. Triggers run after the write, because only so can SQLite change the row: so
-- the index of first events is not unique, and ready_at has no CHECK. Nothing else is written in between.
ALTER TABLE events ADD COLUMN entity TEXT CHECK (length(entity) BETWEEN 1 AND 255);
ALTER TABLE events ADD COLUMN order_at INTEGER CHECK (order_at IS NULL OR entity IS NOT NULL);
ALTER TABLE events ADD COLUMN ready_at INTEGER;
ALTER TABLE events ADD COLUMN hold INTEGER NOT NULL DEFAULT 0 CHECK (hold IN (0, 1));
ALTER TABLE events ADD COLUMN waits_for TEXT CHECK (length(waits_for) BETWEEN 1 AND 255);
ALTER TABLE events ADD COLUMN waiting_since INTEGER;
ALTER TABLE events ADD COLUMN woken_at INTEGER;

CREATE INDEX events_first ON events (source, entity)
    WHERE order_at IS NOT NULL AND (leased_until IS NOT NULL OR due_at < 253370764800000000);
CREATE INDEX events_queued ON events (source, entity, order_at, id)
    WHERE order_at IS NOT NULL AND due_at IS NOT NULL AND waits_for IS NULL;
CREATE INDEX events_holding ON events (source, entity, order_at, id)
    WHERE hold = 1 AND state IN ('failed', 'needs_review');
CREATE INDEX events_waiting_for ON events (source, waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX events_to_poll ON events (ready_at) WHERE waits_for IS NOT NULL AND order_at IS NOT NULL;

CREATE TABLE entities (
    source     TEXT NOT NULL,
    entity     TEXT NOT NULL,
    settled_at INTEGER,
    PRIMARY KEY (source, entity)
) STRICT, WITHOUT ROWID;

CREATE TABLE entity_changes (
    event_id   BLOB NOT NULL,
    claim      INTEGER NOT NULL,
    change     TEXT NOT NULL,
    source     TEXT NOT NULL,
    entity     TEXT NOT NULL,
    settled_at INTEGER,
    PRIMARY KEY (event_id, claim, change)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER order_arrivals AFTER INSERT ON events
WHEN NEW.order_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM copies WHERE writing) BEGIN
    UPDATE events SET ready_at = due_at, due_at = 253370764800000000 WHERE id = NEW.id AND due_at IS NOT NULL;
    INSERT OR IGNORE INTO entity_changes (event_id, claim, change, source, entity, settled_at)
    VALUES (NEW.id, NEW.claim, NEW.state, NEW.source, NEW.entity, NEW.finished_at);
END;

CREATE TRIGGER order_changes AFTER UPDATE OF state ON events
WHEN OLD.state <> NEW.state AND NEW.state <> 'processing' AND (NEW.entity IS NOT NULL OR NEW.waits_for IS NOT NULL)
     AND NOT EXISTS (SELECT 1 FROM copies WHERE writing) BEGIN
    UPDATE events SET ready_at = NULL, waits_for = NULL WHERE id = NEW.id AND due_at IS NULL;
    UPDATE events SET ready_at = due_at, due_at = 253370764800000000
    WHERE id = NEW.id AND order_at IS NOT NULL AND due_at < 253370764800000000
      AND (waits_for IS NOT NULL
           OR NOT (OLD.state = 'processing' OR coalesce(OLD.due_at < 253370764800000000, 0)));
    INSERT OR IGNORE INTO entity_changes (event_id, claim, change, source, entity, settled_at)
    SELECT NEW.id, NEW.claim, NEW.state, NEW.source, NEW.entity, NEW.finished_at WHERE NEW.entity IS NOT NULL;
    INSERT OR IGNORE INTO entity_changes (event_id, claim, change, source, entity)
    SELECT NEW.id, NEW.claim, 'waits', NEW.source, NEW.waits_for WHERE NEW.waits_for IS NOT NULL AND NEW.due_at IS NOT NULL;
END;

CREATE TRIGGER order_pruned AFTER DELETE ON events WHEN OLD.hold = 1 AND OLD.entity IS NOT NULL BEGIN
    INSERT OR IGNORE INTO entity_changes (event_id, claim, change, source, entity)
    VALUES (OLD.id, OLD.claim, 'gone', OLD.source, OLD.entity);
END;

CREATE TRIGGER order_erased AFTER UPDATE OF entity ON events
WHEN OLD.hold = 1 AND OLD.entity IS NOT NULL AND NEW.entity IS NULL BEGIN
    INSERT OR IGNORE INTO entity_changes (event_id, claim, change, source, entity)
    VALUES (OLD.id, OLD.claim, 'gone', OLD.source, OLD.entity);
END;
