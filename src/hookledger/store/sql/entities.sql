-- Which event of an entity is first (decision 0051). Each change of an event has left a row in `entity_changes`, by a
-- trigger. Here they are taken, the entities locked in one order, and in later statements, which see everything that
-- was committed before the lock, it is decided which event may be claimed.

-- name: take_changes
-- Those that no other worker has taken.
DELETE FROM {schema}.entity_changes WHERE (event_id, claim, change) IN (
    SELECT event_id, claim, change FROM {schema}.entity_changes ORDER BY event_id, claim, change LIMIT :most)
RETURNING source, entity, settled_at

-- name: take_changes (postgres)
-- Differs because other workers take some at the same time; and by joining, because a list is planned as a hash of
-- the whole table.
WITH taken AS MATERIALIZED (
    SELECT event_id, claim, change FROM {schema}.entity_changes ORDER BY event_id, claim, change
    LIMIT :most FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.entity_changes AS c USING taken AS t
WHERE c.event_id = t.event_id AND c.claim = t.claim AND c.change = t.change
RETURNING c.source, c.entity, c.settled_at

-- name: poll_waiting
-- Ordered events that waited long enough to look again: from now on each takes its turn. Chosen once, because a planner
-- may run a subquery again, which then skips what it has locked and takes more than :most.
WITH ready AS MATERIALIZED (
    SELECT id FROM {schema}.events {indexed events_to_poll}
    WHERE waits_for IS NOT NULL AND order_at IS NOT NULL AND ready_at <= {now}
    ORDER BY ready_at LIMIT :most {lock_free events})
UPDATE {schema}.events SET waits_for = NULL WHERE id IN (SELECT id FROM ready)
RETURNING source, entity

-- name: lock_entities
-- In the order of their names, so that two workers do not deadlock; and when it was seen last that an event of each was
-- settled. Not when it was: a commit takes a while, and an event that is claimed in between does not see its writes.
INSERT INTO {schema}.entities (source, entity, settled_at)
SELECT g.source, g.entity, CASE WHEN g.settled_at IS NOT NULL THEN {now} END
FROM {rows :entities source text, entity text, settled_at timestamptz} AS g
WHERE true ORDER BY g.source, g.entity
ON CONFLICT (source, entity) DO UPDATE SET settled_at = CASE
    WHEN excluded.settled_at > coalesce(entities.settled_at, excluded.settled_at) THEN excluded.settled_at
    ELSE coalesce(entities.settled_at, excluded.settled_at) END

-- name: wake
-- Events that wait for an entity of which one was settled since their claim: an unordered one is due now, an ordered
-- one takes its turn.
UPDATE {schema}.events AS w
SET waits_for = NULL, woken_at = t.last_settled,
    ready_at = CASE WHEN w.order_at IS NULL THEN NULL ELSE {now} END,
    due_at = CASE WHEN w.order_at IS NULL THEN {now} ELSE w.due_at END
FROM (SELECT e.source AS of_source, e.entity AS of_entity, e.settled_at AS last_settled
      FROM {rows :entities source text, entity text, settled_at timestamptz} AS g
      JOIN {schema}.entities AS e ON e.source = g.source AND e.entity = g.entity) AS t
WHERE w.source = t.of_source AND w.waits_for = t.of_entity AND w.state = 'retrying'
  AND t.last_settled >= w.claimed_at AND t.last_settled > coalesce(w.woken_at, w.received_at - {seconds 1})
RETURNING id, claim, source, entity, order_at

-- name: add_woken
-- An ordered event may be of another entity than the one it waited for: that one is looked at next.
INSERT INTO {schema}.entity_changes (event_id, claim, change, source, entity)
SELECT g.id, g.claim, 'woken', g.source, g.entity
FROM {rows :woken id uuid, claim bigint, source text, entity text} AS g WHERE true
ON CONFLICT DO NOTHING

-- name: first_id
-- The event that has the turn of entity `g`. Here and below a subquery for each entity, and counts for EXISTS: PostgreSQL
-- would join with the whole index while there are no statistics.
(SELECT a.id FROM {schema}.events AS a {indexed events_first}
 WHERE a.source = g.source AND a.entity = g.entity AND a.order_at IS NOT NULL
   AND (a.leased_until IS NOT NULL OR a.due_at < {never}) LIMIT 1)

-- name: earliest_id
-- The earliest event of entity `g` that waits for its turn, or has it and is not processing.
(SELECT q.id FROM {schema}.events AS q {indexed events_queued}
 WHERE q.source = g.source AND q.entity = g.entity AND q.order_at IS NOT NULL AND q.due_at IS NOT NULL
   AND q.waits_for IS NULL
 ORDER BY q.order_at, q.id LIMIT 1)

-- name: is_held
-- Whether an earlier event of its entity keeps event `f` waiting: it has failed or is in review, and the source's rule
-- is to hold what follows.
(SELECT count(*) FROM (
    SELECT 1 FROM {schema}.events AS b {indexed events_holding}
    WHERE b.source = f.source AND b.entity = f.entity AND b.hold AND b.state IN ('failed', 'needs_review')
      AND (b.order_at, b.id) < (f.order_at, f.id) LIMIT 1) AS one) > 0

-- name: is_held (sqlite)
-- Differs because SQLite uses a partial index only for its very words.
(SELECT count(*) FROM (
    SELECT 1 FROM {schema}.events AS b {indexed events_holding}
    WHERE b.source = f.source AND b.entity = f.entity AND b.hold = 1 AND b.state IN ('failed', 'needs_review')
      AND (b.order_at, b.id) < (f.order_at, f.id) LIMIT 1) AS one) > 0

-- name: demote
-- A first event that is not processing makes way for an earlier one that has arrived or woken since; and waits where it
-- is held by an earlier one, which has failed at intake.
UPDATE {schema}.events AS a SET ready_at = a.due_at, due_at = {never}
FROM (SELECT {first_id} AS first_id, {earliest_id} AS earliest_id
      FROM {rows :entities source text, entity text, settled_at timestamptz} AS g) AS n
JOIN {schema}.events AS f ON f.id = n.first_id
WHERE a.id = n.first_id AND a.due_at < {never} AND (a.id <> n.earliest_id OR {is_held})

-- name: promote
-- The first of each entity that has none: due when it would have been if it had not had to wait for its turn.
UPDATE {schema}.events AS f SET due_at = coalesce(f.ready_at, {now}), ready_at = NULL
FROM (SELECT {first_id} AS first_id, {earliest_id} AS earliest_id
      FROM {rows :entities source text, entity text, settled_at timestamptz} AS g) AS n
WHERE f.id = n.earliest_id AND n.first_id IS NULL AND f.due_at = {never} AND NOT {is_held}

-- name: locked_entities
-- Of each entity the events that may change below, locked: the first, the earliest, and those that wait for it. Returns
-- the entities of which another session has locked one.
WITH wanted AS MATERIALIZED (
    SELECT g.source, g.entity, {first_id} AS id
    FROM {rows :entities source text, entity text, settled_at timestamptz} AS g
    UNION ALL
    SELECT g.source, g.entity, {earliest_id}
    FROM {rows :entities source text, entity text, settled_at timestamptz} AS g
    UNION ALL
    SELECT g.source, g.entity, w.id
    FROM {rows :entities source text, entity text, settled_at timestamptz} AS g
    CROSS JOIN LATERAL (SELECT id FROM {schema}.events
                        WHERE source = g.source AND waits_for = g.entity AND state = 'retrying' {offset_0}) AS w
), free AS MATERIALIZED (
    SELECT e.id FROM {schema}.events AS e WHERE e.id = ANY(ARRAY(SELECT id FROM wanted)) {lock_free e}
)
SELECT DISTINCT source, entity FROM wanted WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM free)

-- name: locked_entities (sqlite)
-- Differs because this transaction is the only one that writes.
SELECT g.source, g.entity FROM {rows :entities source text, entity text, settled_at timestamptz} AS g WHERE false

-- name: keep_changes
-- Entities to look at again. The id is new, so that they come after all others.
INSERT INTO {schema}.entity_changes (event_id, claim, change, source, entity)
SELECT g.id, 0, 'kept', g.source, g.entity FROM {rows :kept id uuid, source text, entity text} AS g WHERE true

-- name: blocked_by
-- Entities in which an event of these kinds has the turn and others wait.
SELECT a.source, a.type, a.version, count(*) AS n, count(*) FILTER (WHERE a.state = 'retrying') AS retrying,
       min(a.received_at) AS since
FROM {rows :kinds source text, type text, version text} AS k
{ordered} JOIN {schema}.events AS a {indexed events_first}
    ON a.source = k.source AND a.type = k.type AND a.version = k.version
WHERE a.order_at IS NOT NULL AND (a.leased_until IS NOT NULL OR a.due_at < {never})
  AND a.state IN ('pending', 'retrying') AND (SELECT count(*) FROM (
    SELECT 1 FROM {schema}.events AS q {indexed events_queued}
    WHERE q.source = a.source AND q.entity = a.entity AND q.order_at IS NOT NULL AND q.due_at IS NOT NULL
      AND q.waits_for IS NULL AND q.id <> a.id LIMIT 1) AS one) > 0
GROUP BY a.source, a.type, a.version ORDER BY n DESC, a.source, a.type, a.version

-- name: entity_window
SELECT source, entity FROM {schema}.entities WHERE (source, entity) > (:source::text, :entity::text)
ORDER BY source, entity LIMIT :most

-- name: forget_entities
-- Those of a window that nothing has happened to for so long that no event can still wait for what was settled.
DELETE FROM {schema}.entities WHERE (source, entity) > (:source::text, :entity::text)
  AND (source, entity) <= (:last_source::text, :last_entity::text)
  AND coalesce(settled_at < {now} - {seconds :unsettled_for::float8}, true)
  AND NOT EXISTS (SELECT 1 FROM {schema}.events AS q {indexed events_queued}
                  WHERE q.source = entities.source AND q.entity = entities.entity AND q.order_at IS NOT NULL
                    AND q.due_at IS NOT NULL AND q.waits_for IS NULL)
  AND NOT EXISTS (SELECT 1 FROM {schema}.events AS w {indexed events_waiting_for}
                  WHERE w.source = entities.source AND w.waits_for = entities.entity AND w.waits_for IS NOT NULL)
RETURNING source

-- name: first_of_entity
-- The event that has the turn of an entity.
SELECT a.id, a.key, a.state, a.due_at FROM {schema}.events AS a {indexed events_first}
WHERE a.source = :source AND a.entity = :entity AND a.order_at IS NOT NULL
  AND (a.leased_until IS NOT NULL OR a.due_at < {never}) LIMIT 1

-- name: holding
-- The earliest event of an entity that keeps this one waiting.
SELECT b.id, b.key, b.state FROM {schema}.events AS b {indexed events_holding}
WHERE b.source = :source AND b.entity = :entity AND b.hold AND b.state IN ('failed', 'needs_review')
  AND (b.order_at, b.id) < (:order_at, :id)
ORDER BY b.order_at, b.id LIMIT 1

-- name: holding (sqlite)
-- Differs because SQLite uses a partial index only for its very words.
SELECT b.id, b.key, b.state FROM {schema}.events AS b {indexed events_holding}
WHERE b.source = :source AND b.entity = :entity AND b.hold = 1 AND b.state IN ('failed', 'needs_review')
  AND (b.order_at, b.id) < (:order_at, :id)
ORDER BY b.order_at, b.id LIMIT 1

-- name: held_events
-- How many events are held, by kind, and the one that holds most of them: from the few that hold.
SELECT f.source, f.type, count(*) AS n, min(f.received_at) AS since
FROM (SELECT b.source, b.entity, min(b.order_at) AS order_at FROM {schema}.events AS b {indexed events_holding}
      WHERE b.hold AND b.state IN ('failed', 'needs_review') AND b.entity IS NOT NULL
      GROUP BY b.source, b.entity) AS h
JOIN {schema}.events AS f {indexed events_queued} ON f.source = h.source AND f.entity = h.entity
WHERE f.order_at IS NOT NULL AND f.due_at IS NOT NULL AND f.waits_for IS NULL AND f.order_at >= h.order_at
  AND {is_held}
GROUP BY f.source, f.type ORDER BY n DESC, f.source, f.type

-- name: held_events (sqlite)
-- Differs because SQLite uses a partial index only for its very words.
SELECT f.source, f.type, count(*) AS n, min(f.received_at) AS since
FROM (SELECT b.source, b.entity, min(b.order_at) AS order_at FROM {schema}.events AS b {indexed events_holding}
      WHERE b.hold = 1 AND b.state IN ('failed', 'needs_review') AND b.entity IS NOT NULL
      GROUP BY b.source, b.entity) AS h
CROSS JOIN {schema}.events AS f {indexed events_queued} ON f.source = h.source AND f.entity = h.entity
WHERE f.order_at IS NOT NULL AND f.due_at IS NOT NULL AND f.waits_for IS NULL AND f.order_at >= h.order_at
  AND {is_held}
GROUP BY f.source, f.type ORDER BY n DESC, f.source, f.type
