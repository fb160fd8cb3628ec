-- The same as PostgreSQL's 0004_search.

-- Why an event is in trouble, without what differs from one event to the next.
ALTER TABLE events ADD COLUMN cause TEXT CHECK (length(cause) BETWEEN 1 AND 200);
UPDATE events SET cause = substr(reason, 1, 200)
WHERE state IN ('retrying', 'failed', 'needs_review') AND reason <> '';

CREATE INDEX events_of_kind ON events (source, type, id);
CREATE INDEX events_of_object ON events (object_id, id) WHERE object_id IS NOT NULL;
-- Of other origins than these: there the key is the provider's id, and `identities` leads to its event.
CREATE INDEX events_of_key ON events (key, id) WHERE key_origin NOT IN ('signed_id', 'unsigned_id');
-- The states that few events are in. What is pending or in work is in the indexes of the queue.
CREATE INDEX events_in_state ON events (state, id)
    WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded');
CREATE INDEX events_by_cause ON events (cause, id) WHERE cause IS NOT NULL;
CREATE INDEX events_marked ON events (id) WHERE (attention = 1 OR alert IS NOT NULL);
-- Their ids are younger than they are: a search by time must look for them apart.
CREATE INDEX events_admitted_ids ON events (id) WHERE key_origin = 'admitted';
