-- Pruning skips rows that another transaction has locked: it waits for no worker and no operator, so the usual order
-- of locks does not matter. SQLite has nothing to lock: every write runs alone.
--
-- SQLite does not reorder a CROSS JOIN; another join would read the table, and look each row up in the list.
-- PostgreSQL does not turn a count compared with 0 into a join with the whole table, as it does NOT EXISTS.

-- name: whose_turn
-- Who holds the lease; locked until the commit.
SELECT holder, until FROM {schema}.task_leases WHERE name = 'prune' {lock}

-- name: take_turn
-- Takes the lease if it is ours, or expired.
INSERT INTO {schema}.task_leases AS t (name, holder, until) VALUES ('prune', :holder, {now} + {seconds :lease})
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE t.holder = excluded.holder OR t.until < {now}
RETURNING holder

-- name: hold_turn
-- Renews the lease in the transaction that deletes something.
UPDATE {schema}.task_leases SET until = {now} + {seconds :lease} WHERE name = 'prune' AND holder = :holder RETURNING holder

-- name: end_turn
-- Releases the lease.
DELETE FROM {schema}.task_leases WHERE name = 'prune' AND holder = :holder

-- name: record_pruning
-- What a round has deleted, with this transaction.
INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
VALUES (:id, {now}, 'prune', :actor, :reason, :subject, 'kept', 'pruning')
ON CONFLICT (id) DO UPDATE SET subject = excluded.subject

-- name: close_pruning
-- How a round ended, if that is not known yet.
UPDATE {schema}.actions SET to_state = :how WHERE id = :id AND to_state = 'pruning' RETURNING actor, reason, subject

-- name: begin_walk
-- Where a walk continues; an old walk starts at the beginning.
INSERT INTO {schema}.prune_positions AS w (name, position, started_at) VALUES (:walk, :start, {now})
ON CONFLICT (name) DO UPDATE
SET position = CASE WHEN w.started_at < {now} - {seconds :again} THEN excluded.position ELSE w.position END,
    started_at = CASE WHEN w.started_at < {now} - {seconds :again} THEN excluded.started_at ELSE w.started_at END
RETURNING position AS position_id

-- name: remember_walk
UPDATE {schema}.prune_positions SET position = :position WHERE name = :walk

-- name: window_of_events
-- The next events in the order of their ids, which is that of time.
SELECT id, claim, source, state, {elapsed {now} - finished_at} AS finished_ago, attention OR alert IS NOT NULL AS open,
       emptied_at IS NOT NULL AS emptied, parent
FROM {schema}.events WHERE id > :after AND id < :before ORDER BY id LIMIT :most

-- name: stages_to_prune
-- The stages of some events, in any state.
SELECT id, claim, source, state, {elapsed {now} - finished_at} AS finished_ago, attention OR alert IS NOT NULL AS open,
       emptied_at IS NOT NULL AS emptied, parent
FROM {schema}.events {indexed events_stages} WHERE parent IN {list :events uuid} AND parent IS NOT NULL

-- name: window_of_deliveries
-- All deliveries of the next requests.
SELECT d.request_id, d.item, d.source, d.outcome, {elapsed {now} - d.received_at} AS received_ago
FROM (SELECT DISTINCT request_id FROM {schema}.deliveries WHERE request_id > :after AND request_id < :before
      ORDER BY request_id LIMIT :most) AS next_requests
CROSS JOIN {schema}.deliveries AS d WHERE d.request_id = next_requests.request_id ORDER BY d.request_id, d.item

-- name: lock_events_to_prune
-- Those that are still as they were chosen, and quiet. While a redelivery would get the answer of one, it stays.
SELECT e.id, e.request_id, e.item, e.parent FROM {rows :chosen id uuid, claim bigint} AS c CROSS JOIN {schema}.events AS e
WHERE e.id = c.id AND e.claim = c.claim
  AND e.state IN ('processed', 'skipped', 'failed', 'discarded') AND NOT e.attention AND e.alert IS NULL
  AND (SELECT count(*) FROM {schema}.deliveries AS d
       WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')
         AND d.received_at > {now} - {seconds :quiet}) = 0
  AND (SELECT count(*) FROM {schema}.answers AS n WHERE n.event_id = e.id AND n.expires_at > {now}) = 0
ORDER BY e.id {lock_free e}

-- name: lock_effects_to_prune
-- Their effects that are not locked, and whether each is finished.
SELECT f.identity, f.event_id, f.state IN ('done', 'cancelled') AND f.alert IS NULL AS over FROM {schema}.effects AS f
WHERE f.event_id IN {list :events uuid} ORDER BY f.identity {lock_free f}

-- name: count_effects
-- How many effects each event has, locked or not.
SELECT event_id, count(*) AS n FROM {schema}.effects WHERE event_id IN {list :events uuid} GROUP BY event_id

-- name: lock_quarantined_to_prune
-- An operator may be accepting one of them: after a short wait the next statement sees the result.
SELECT d.item FROM {schema}.deliveries AS d
WHERE d.event_id IN {list :events uuid} AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')
  AND d.outcome IN ('conflict', 'same_body')
ORDER BY d.request_id, d.item {lock}

-- name: record_pruned
-- What is left of them.
INSERT INTO {schema}.pruned (event_id, source, state, pruned_at)
SELECT id, source, state, {now} FROM {schema}.events WHERE id IN {list :events uuid}

-- name: prune_attempts
DELETE FROM {schema}.attempts WHERE event_id IN {list :events uuid}

-- name: prune_events
DELETE FROM {schema}.events WHERE id IN {list :events uuid}

-- name: prune_first_deliveries
-- The deliveries that the events named, unless they are another event's too.
DELETE FROM {schema}.deliveries AS d
WHERE (d.request_id, d.item) IN (SELECT * FROM {rows :named request_id uuid, item integer} AS n)
  AND (SELECT count(*) FROM {schema}.events AS e WHERE e.id = d.event_id) = 0
RETURNING request_id

-- name: prune_later_deliveries
-- The later deliveries, unless an event was made of them. What came since the events were found quiet stays: an operator
-- may want to see it.
DELETE FROM {schema}.deliveries AS d
WHERE d.event_id IN {list :events uuid} AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')
  AND d.received_at <= {now} - {seconds :quiet}
  AND (SELECT count(*) FROM {schema}.events AS a
       WHERE a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'quarantine'
         AND a.parent IS NULL) = 0
RETURNING request_id

-- name: prune_requests
-- Bytes that only duplicates refer to.
DELETE FROM {schema}.requests AS r WHERE r.id IN {list :requests uuid}
  AND (SELECT count(*) FROM {schema}.deliveries AS d WHERE d.request_id = r.id AND d.outcome <> 'duplicate') = 0

-- name: trim_effects
-- What the ledger does not need in order to skip them: it knows changed arguments by their digest.
UPDATE {schema}.effects SET arguments = :empty, error = NULL
WHERE identity IN {list :identities bytea} AND (arguments <> :empty OR error IS NOT NULL)

-- name: trim_calls
-- Tracebacks of calls.
UPDATE {schema}.effect_calls SET error = NULL WHERE identity IN {list :identities bytea} AND error IS NOT NULL
RETURNING identity

-- name: lock_events_to_empty
-- Every event that came with the requests of these, and whether it is over for long enough.
SELECT e.id, e.request_id,
       e.state IN ('processed', 'skipped', 'discarded') AND NOT e.attention
           AND e.finished_at < {now} - {seconds :older} AS over
FROM {schema}.deliveries AS d JOIN {schema}.events AS e ON e.id = d.event_id
WHERE d.request_id IN (SELECT request_id FROM {schema}.events WHERE id IN {list :events uuid} AND emptied_at IS NULL)
  AND d.outcome IN ('accepted', 'invalid', 'reconciled')
ORDER BY e.id {lock_free e}

-- name: lock_stages_to_empty
-- The same for the stages of events.
SELECT e.id, e.parent,
       e.state IN ('processed', 'skipped', 'discarded') AND NOT e.attention
           AND e.finished_at < {now} - {seconds :older} AS over
FROM {schema}.events AS e {indexed events_stages}
WHERE e.parent IN {list :events uuid} AND e.parent IS NOT NULL ORDER BY e.id {lock_free e}

-- name: count_stages
-- How many stages each event has, locked or not.
SELECT parent, count(*) AS n FROM {schema}.events {indexed events_stages}
WHERE parent IN {list :events uuid} AND parent IS NOT NULL GROUP BY parent

-- name: count_items
-- How many events each request brought, and how many quarantined deliveries.
SELECT request_id, count(*) FILTER (WHERE outcome IN ('accepted', 'invalid', 'reconciled')) AS made,
       count(*) FILTER (WHERE outcome IN ('conflict', 'same_body')) AS quarantined
FROM {schema}.deliveries WHERE request_id IN {list :requests uuid} GROUP BY request_id

-- name: empty_requests
-- Bytes, headers, query and address.
UPDATE {schema}.requests
SET body = :empty, headers = :empty, query = :empty, remote = NULL, emptied_at = coalesce(emptied_at, {now})
WHERE id IN {list :requests uuid}

-- name: empty_events
-- Prevents a replay: in the row that a replay must change.
UPDATE {schema}.events SET emptied_at = {now} WHERE id IN {list :events uuid}

-- name: forget_attempts
-- Tracebacks of attempts, of events that are still as they were chosen.
UPDATE {schema}.attempts SET error = NULL
WHERE error IS NOT NULL AND event_id IN (
    SELECT e.id FROM {rows :chosen id uuid, claim bigint} AS c CROSS JOIN {schema}.events AS e
    WHERE e.id = c.id AND e.claim = c.claim AND e.finished_at IS NOT NULL)
RETURNING event_id

-- name: remembered
-- Events for which the former, or `trim_calls`, would find something.
SELECT e.id FROM {rows :chosen id uuid, claim bigint} AS c CROSS JOIN {schema}.events AS e
WHERE e.id = c.id AND e.claim = c.claim AND e.finished_at IS NOT NULL AND (
    EXISTS (SELECT 1 FROM {schema}.attempts AS a WHERE a.event_id = e.id AND a.error IS NOT NULL)
    OR EXISTS (SELECT 1 FROM {schema}.effects AS f JOIN {schema}.effect_calls AS n ON n.identity = f.identity
               WHERE f.event_id = e.id AND f.state IN ('done', 'cancelled') AND n.error IS NOT NULL))

-- name: effects_over
-- The effects that are over, of events that are still as they were chosen.
SELECT f.identity, f.event_id FROM {rows :chosen id uuid, claim bigint} AS c
CROSS JOIN {schema}.events AS e CROSS JOIN {schema}.effects AS f
WHERE e.id = c.id AND e.claim = c.claim AND f.event_id = e.id AND f.state IN ('done', 'cancelled')
  AND e.finished_at IS NOT NULL ORDER BY f.identity

-- name: prune_deliveries
DELETE FROM {schema}.deliveries AS d
WHERE (d.request_id, d.item) IN (SELECT * FROM {rows :places request_id uuid, item integer} AS n)
  AND d.outcome IN {list :outcomes text}
RETURNING request_id

-- name: lock_deliveries
-- One operator at a time accepts a quarantined delivery, and pruning waits for that. Intake never locks an old
-- delivery.
SELECT d.item FROM {schema}.deliveries AS d
WHERE (d.request_id, d.item) IN (SELECT * FROM {rows :places request_id uuid, item integer} AS n)
ORDER BY d.request_id, d.item {lock}

-- name: orphans
-- Quarantined deliveries whose event is gone and that no operator accepted.
SELECT d.request_id, d.item FROM {schema}.deliveries AS d
WHERE (d.request_id, d.item) IN (SELECT * FROM {rows :places request_id uuid, item integer} AS n)
  AND d.outcome IN ('conflict', 'same_body')
  AND (SELECT count(*) FROM {schema}.events AS e WHERE e.id = d.event_id) = 0
  AND (SELECT count(*) FROM {schema}.events AS a
       WHERE a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'quarantine'
         AND a.parent IS NULL) = 0

-- name: pruned_stages
-- Of one source, in a millisecond.
SELECT * FROM {schema}.pruned
WHERE event_id BETWEEN :first AND :last AND substr(source, 1, length(:prefix::text)) = :prefix::text

-- name: pruned_events
-- By id or the beginning of one.
SELECT * FROM {schema}.pruned WHERE event_id BETWEEN :first AND :last ORDER BY event_id LIMIT 10
