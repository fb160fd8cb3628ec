-- PostgreSQL's dialect of erasure; {schema} and {clock} as in queries.sql. Locks in the order of ledger.sql: effects by
-- identity, then events.

-- name: begin
-- What was promised to be gone is gone, whatever crashes.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s'

-- name: requests
-- The requests of events: the first, which the event names itself, and those that were odd.
SELECT request_id FROM {schema}.events WHERE id = ANY($1::uuid[])
UNION
SELECT request_id FROM {schema}.deliveries
WHERE event_id = ANY($1::uuid[]) AND outcome NOT IN ('accepted', 'invalid', 'reconciled') AND outcome <> 'duplicate'

-- name: brought
-- The events that requests brought, and those that were made of what was odd in them.
SELECT e.id FROM {schema}.deliveries AS d JOIN {schema}.events AS e ON e.id = d.event_id
WHERE d.request_id = ANY($1::uuid[]) AND d.outcome IN ('accepted', 'invalid', 'reconciled')
UNION
SELECT e.id FROM {schema}.events AS e WHERE e.request_id = ANY($1::uuid[]) AND e.key_origin = 'admitted'

-- name: met
-- The events that odd deliveries in these requests met.
SELECT DISTINCT e.id FROM {schema}.deliveries AS d JOIN {schema}.events AS e ON e.id = d.event_id
WHERE d.request_id = ANY($1::uuid[]) AND d.outcome IN ('conflict', 'same_body')

-- name: lock_odd
-- An operator may be admitting one: the next statement sees what came of it.
SELECT FROM {schema}.deliveries WHERE request_id = ANY($1::uuid[]) AND outcome IN ('conflict', 'same_body')
ORDER BY request_id, item FOR UPDATE

-- name: lock_effects
-- Their effects.
SELECT identity, event_id, name, key, kind, state, lane FROM {schema}.effects
WHERE event_id = ANY($1::uuid[]) ORDER BY identity FOR UPDATE

-- name: lock_events
-- The events.
SELECT id, state, claim, reason, key FROM {schema}.events WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE

-- name: forget_refused
-- The same body in the sample of what was refused.
DELETE FROM {schema}.rejections AS x USING {schema}.requests AS r
WHERE r.id = ANY($1::uuid[]) AND r.body <> '' AND x.source = r.source AND x.body = r.body

-- name: empty_requests
-- Bytes, headers, query, address.
UPDATE {schema}.requests
SET body = '', headers = '', query = '', remote = NULL, emptied_at = coalesce(emptied_at, {clock})
WHERE id = ANY($1::uuid[])

-- name: empty_event
-- What the event itself says.
UPDATE {schema}.events
SET provider_id = NULL, object_id = NULL, account = NULL, result = NULL, error = NULL, cause = NULL, reason = $2, key = $3,
    emptied_at = coalesce(emptied_at, {clock})
WHERE id = $1

-- name: empty_deliveries
-- The provider's ids of the deliveries.
UPDATE {schema}.deliveries SET delivery_id = NULL
WHERE delivery_id IS NOT NULL
  AND (request_id = ANY($2::uuid[])
       OR (event_id = ANY($1::uuid[]) AND outcome NOT IN ('accepted', 'invalid', 'reconciled')))

-- name: forget_repairs
-- The objects that they repaired. Asked before the events are emptied.
DELETE FROM {schema}.repairs AS r USING {schema}.events AS e
WHERE e.id = ANY($1::uuid[]) AND r.source = e.source AND r.object_id = e.object_id AND r.event_id = e.id

-- name: empty_items
-- Why jobs refused it, in words that may name its effects. There are few jobs, and an index of what they refused.
UPDATE {schema}.job_items AS i SET words = 'erased' FROM {schema}.jobs AS j
WHERE i.job_id = j.id AND i.event_id = ANY($1::uuid[]) AND i.outcome = 'refused'

-- name: empty_attempts
-- Tracebacks.
UPDATE {schema}.attempts SET error = NULL WHERE event_id = ANY($1::uuid[]) AND error IS NOT NULL

-- name: empty_effect
-- What the ledger does not need in order to skip it. A new fence, so that nobody decides about it on what was known.
UPDATE {schema}.effects
SET arguments = '', result = NULL, error = NULL, lane = NULL, place = NULL, key = $2,
    fence = fence + CASE WHEN kind = 'once' THEN 0 ELSE 1 END
WHERE identity = $1

-- name: empty_calls
-- Tracebacks of calls.
UPDATE {schema}.effect_calls SET error = NULL WHERE identity = ANY($1::bytea[]) AND error IS NOT NULL

-- name: keeps_replaced
-- Whether decisions keep the results that they replace: not before schema 11, whose migration made this table, too.
SELECT to_regclass('{schema}.restores') IS NOT NULL AS keeps

-- name: empty_actions
-- The results that decisions replaced.
UPDATE {schema}.actions SET replaced = NULL WHERE event_id = ANY($1::uuid[]) AND replaced IS NOT NULL

-- name: lock_lanes
-- Their lanes, unless somebody takes a place in one at this moment: nobody takes one until we are done.
SELECT l.name, l.lane FROM unnest($1::text[], $2::text[]) AS n (name, lane)
JOIN {schema}.effect_lanes AS l ON l.name = n.name AND l.lane = n.lane
ORDER BY l.name, l.lane FOR UPDATE OF l SKIP LOCKED

-- name: forget_lanes
-- Those, unless something waits in them: then their order is needed. A statement of its own, as the lock's snapshot is
-- older than the lock.
DELETE FROM {schema}.effect_lanes AS l USING unnest($1::text[], $2::text[]) AS n (name, lane)
WHERE l.name = n.name AND l.lane = n.lane
  AND NOT EXISTS (SELECT FROM {schema}.effects AS f
                  WHERE f.name = l.name AND f.lane = l.lane AND f.lane IS NOT NULL AND f.finished_at IS NULL)

-- name: note
-- Who erased, and why; not what.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, from_state, to_state)
VALUES ($1, {clock}, 'erase', $2, $3, $4, $5, $5)

-- name: was
-- The state in which an event was pruned.
SELECT state FROM {schema}.pruned WHERE event_id = $1
