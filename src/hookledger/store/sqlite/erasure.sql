-- SQLite's dialect of erasure. ?1 is always the present, as in queries.sql, where a query needs it. Differs because it
-- works on one row at a time, and nothing needs locking.

-- name: requests
-- The requests of an event: the first, which the event names itself, and those that were odd.
SELECT request_id FROM events WHERE id = ?1
UNION
SELECT request_id FROM deliveries
WHERE event_id = ?1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled') AND outcome <> 'duplicate'

-- name: brought
-- The events that a request brought, and those that were made of what was odd in it.
SELECT e.id FROM deliveries d JOIN events e ON e.id = d.event_id
WHERE d.request_id = ?1 AND d.outcome IN ('accepted', 'invalid', 'reconciled')
UNION
SELECT e.id FROM events e WHERE e.request_id = ?1 AND e.key_origin = 'admitted'

-- name: met
-- The events that odd deliveries in this request met.
SELECT DISTINCT e.id FROM deliveries d JOIN events e ON e.id = d.event_id
WHERE d.request_id = ?1 AND d.outcome IN ('conflict', 'same_body')

-- name: effects
-- Its effects.
SELECT identity, event_id, name, key, kind, state, lane FROM effects WHERE event_id = ?1

-- name: event
-- The event.
SELECT id, state, claim, reason, key FROM events WHERE id = ?1

-- name: forget_refused
-- The same body in the sample of what was refused.
DELETE FROM rejections
WHERE EXISTS (SELECT 1 FROM requests r WHERE r.id = ?1 AND r.body <> x'' AND r.source = rejections.source
                AND r.body = rejections.body)

-- name: empty_request
-- Bytes, headers, query, address.
UPDATE requests SET body = x'', headers = x'', query = x'', remote = NULL, emptied_at = coalesce(emptied_at, ?1)
WHERE id = ?2

-- name: empty_event
-- What the event itself says.
UPDATE events
SET provider_id = NULL, object_id = NULL, account = NULL, result = NULL, error = NULL, cause = NULL, reason = ?3, key = ?4,
    emptied_at = coalesce(emptied_at, ?1)
WHERE id = ?2

-- name: empty_deliveries
-- The provider's ids of the deliveries of one request.
UPDATE deliveries SET delivery_id = NULL WHERE delivery_id IS NOT NULL AND request_id = ?1

-- name: empty_again
-- Those of the later deliveries of one event.
UPDATE deliveries SET delivery_id = NULL
WHERE delivery_id IS NOT NULL AND event_id = ?1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled')

-- name: forget_repair
-- The object that it repaired. Asked before the event is emptied.
DELETE FROM repairs
WHERE event_id = ?1 AND (source, object_id) = (SELECT source, object_id FROM events WHERE id = ?1)

-- name: empty_items
-- Why jobs refused it, in words that may name its effects.
UPDATE job_items SET words = 'erased'
WHERE job_id IN (SELECT id FROM jobs) AND event_id = ?1 AND outcome = 'refused'

-- name: empty_attempts
-- Tracebacks.
UPDATE attempts SET error = NULL WHERE event_id = ?1 AND error IS NOT NULL RETURNING claim

-- name: empty_effect
-- What the ledger does not need in order to skip it. A new fence, so that nobody decides about it on what was known.
UPDATE effects
SET arguments = x'', result = NULL, error = NULL, lane = NULL, place = NULL, key = ?2, fence = fence + (kind <> 'once')
WHERE identity = ?1

-- name: empty_calls
-- Tracebacks of calls.
UPDATE effect_calls SET error = NULL WHERE identity = ?1 AND error IS NOT NULL

-- name: keeps_replaced
-- Whether decisions keep the results that they replace: not before schema 11, whose migration made this table, too.
SELECT 1 FROM sqlite_schema WHERE name = 'restores'

-- name: empty_actions
-- The results that decisions replaced.
UPDATE actions SET replaced = NULL WHERE event_id = ?1 AND replaced IS NOT NULL

-- name: forget_lane
-- The lane itself, unless something waits in it: then its order is needed.
DELETE FROM effect_lanes
WHERE name = ?1 AND lane = ?2
  AND NOT EXISTS (SELECT 1 FROM effects f WHERE f.name = ?1 AND f.lane = ?2 AND f.finished_at IS NULL)

-- name: note
-- Who erased, and why; not what.
INSERT INTO actions (at, id, name, actor, reason, event_id, from_state, to_state)
VALUES (?1, ?2, 'erase', ?3, ?4, ?5, ?6, ?6)

-- name: was
-- The state in which an event was pruned.
SELECT state FROM pruned WHERE event_id = ?1
