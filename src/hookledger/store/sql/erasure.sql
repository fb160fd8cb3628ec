-- Locks in the order of the ledger: effects by identity, then events.

-- name: requests_to_erase
-- The requests of events: the first, which the event names itself, and the quarantined ones.
SELECT request_id FROM {schema}.events WHERE id IN {list :events uuid}
UNION
SELECT request_id FROM {schema}.deliveries
WHERE event_id IN {list :events uuid} AND outcome NOT IN ('accepted', 'invalid', 'reconciled') AND outcome <> 'duplicate'

-- name: events_brought
-- The events that requests brought, and those accepted from quarantine.
SELECT e.id FROM {schema}.deliveries AS d JOIN {schema}.events AS e ON e.id = d.event_id
WHERE d.request_id IN {list :requests uuid} AND d.outcome IN ('accepted', 'invalid', 'reconciled')
UNION
SELECT e.id FROM {schema}.events AS e
WHERE e.request_id IN {list :requests uuid} AND e.key_origin = 'quarantine' AND e.parent IS NULL

-- name: events_met
-- The events that quarantined deliveries in these requests met.
SELECT DISTINCT e.id FROM {schema}.deliveries AS d JOIN {schema}.events AS e ON e.id = d.event_id
WHERE d.request_id IN {list :requests uuid} AND d.outcome IN ('conflict', 'same_body')

-- name: lock_quarantined_to_erase
-- An operator may be accepting one: the next statement sees the result.
SELECT d.item FROM {schema}.deliveries AS d
WHERE d.request_id IN {list :requests uuid} AND d.outcome IN ('conflict', 'same_body')
ORDER BY d.request_id, d.item {lock}

-- name: lock_effects_to_erase
SELECT identity, event_id, name, key, kind, state, lane FROM {schema}.effects
WHERE event_id IN {list :events uuid} ORDER BY identity {lock}

-- name: lock_events_to_erase
SELECT id, state, claim, reason, key, stage FROM {schema}.events WHERE id IN {list :events uuid} ORDER BY id {lock}

-- name: erase_rejections
-- The same body in the sample of what was rejected.
DELETE FROM {schema}.rejections WHERE id IN (
    SELECT x.id FROM {schema}.requests AS r JOIN {schema}.rejections AS x ON x.source = r.source AND x.body = r.body
    WHERE r.id IN {list :requests uuid} AND r.body <> :empty)

-- name: erase_event
-- What the event itself says.
UPDATE {schema}.events
SET provider_id = NULL, object_id = NULL, account = NULL, entity = NULL, order_at = NULL, result = NULL, error = NULL, cause = NULL, reason = :reason,
    key = :key, emptied_at = coalesce(emptied_at, {now})
WHERE id = :id

-- name: erase_delivery_ids
-- The provider's ids of the deliveries in these requests.
UPDATE {schema}.deliveries SET delivery_id = NULL
WHERE delivery_id IS NOT NULL AND request_id IN {list :requests uuid}

-- name: erase_later_delivery_ids
-- Those of the later deliveries of these events.
UPDATE {schema}.deliveries SET delivery_id = NULL
WHERE delivery_id IS NOT NULL AND event_id IN {list :events uuid} AND outcome NOT IN ('accepted', 'invalid', 'reconciled')

-- name: erase_repairs
-- The objects that they repaired. Asked before the events are emptied.
DELETE FROM {schema}.repairs WHERE (source, object_id, event_id) IN (
    SELECT source, object_id, id FROM {schema}.events WHERE id IN {list :events uuid})

-- name: erase_job_items
-- Why jobs were not allowed to act on them, which may name their effects. There are few jobs, and an index.
UPDATE {schema}.job_items SET reason = 'erased'
WHERE job_id IN (SELECT id FROM {schema}.jobs) AND event_id IN {list :events uuid} AND outcome = 'not_allowed'

-- name: erase_job_items (postgres)
-- Differs because PostgreSQL would read all that was ever not allowed, and not look the events up.
UPDATE {schema}.job_items AS i SET reason = 'erased' FROM {schema}.jobs AS j
WHERE i.job_id = j.id AND i.event_id = ANY(:events::uuid[]) AND i.outcome = 'not_allowed'

-- name: erase_attempts
-- Tracebacks.
UPDATE {schema}.attempts SET error = NULL WHERE event_id IN {list :events uuid} AND error IS NOT NULL RETURNING claim

-- name: erase_effect
-- Everything that the ledger does not need in order to skip it. A new fence, so that a decision based on the old row
-- fails.
UPDATE {schema}.effects
SET arguments = :empty, result = NULL, error = NULL, lane = NULL, place = NULL, key = :key,
    correlation_id = NULL,
    fence = fence + CASE WHEN kind = 'once' THEN 0 ELSE 1 END
WHERE identity = :identity

-- name: erase_replaced
-- The results that decisions replaced, and the reviews that they answered.
UPDATE {schema}.actions SET replaced = NULL WHERE event_id IN {list :events uuid} AND replaced IS NOT NULL

-- name: lock_lanes_to_erase
-- Their lanes, except those that another transaction has locked; our locks prevent new places until the commit.
SELECT l.name, l.lane FROM {rows :lanes name text, lane text} AS n
JOIN {schema}.effect_lanes AS l ON l.name = n.name AND l.lane = n.lane
ORDER BY l.name, l.lane {lock_free l}

-- name: erase_lanes
-- Those, unless an effect waits in them: then their order is needed. A separate statement, because the lock's
-- snapshot is older than the lock.
DELETE FROM {schema}.effect_lanes AS l
WHERE (l.name, l.lane) IN (SELECT n.name, n.lane FROM {rows :lanes name text, lane text} AS n)
  AND NOT EXISTS (SELECT 1 FROM {schema}.effects AS f
                  WHERE f.name = l.name AND f.lane = l.lane AND f.lane IS NOT NULL AND f.finished_at IS NULL)
