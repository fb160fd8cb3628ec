-- Finding events among a million, in the order of their ids. Each index on all events is paid for three times by each
-- event (recorded, claimed, settled), so there are two of them; the others hold what is rare.

-- Why an event is in trouble, without what differs from one event to the next.
ALTER TABLE {schema}.events ADD COLUMN cause text COLLATE "C" CHECK (length(cause) BETWEEN 1 AND 200);
UPDATE {schema}.events SET cause = left(reason, 200)
WHERE state IN ('retrying', 'failed', 'needs_review') AND reason <> '';

-- Source, type, both or a beginning of a type: walked from kind to kind, then merged.
CREATE INDEX events_of_kind ON {schema}.events (source, type, id);
CREATE INDEX events_of_object ON {schema}.events (object_id, id) WHERE object_id IS NOT NULL;
-- Of other origins than these: there the key is the provider's id, and `identities` leads to its event.
CREATE INDEX events_of_key ON {schema}.events (key, id) WHERE key_origin NOT IN ('signed_id', 'unsigned_id');
-- The states that few events are in. What is pending or in work is in the indexes of the queue.
CREATE INDEX events_in_state ON {schema}.events (state, id)
    WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded');
CREATE INDEX events_by_cause ON {schema}.events (cause, id) WHERE cause IS NOT NULL;
CREATE INDEX events_marked ON {schema}.events (id) WHERE attention OR alert IS NOT NULL;
-- Their ids are younger than they are: a search by time must look for them apart.
CREATE INDEX events_admitted_ids ON {schema}.events (id) WHERE key_origin = 'admitted';
