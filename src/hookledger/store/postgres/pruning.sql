-- PostgreSQL's dialect of retention; {schema} and {clock} as in queries.sql. Whatever is locked is skipped, so that no
-- worker and no operator waits, and nothing here waits for one: the usual order of locks does not matter.

-- name: begin
-- What a crash undoes is done again: no need to wait for the disk.
BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '1s'

-- name: turn
-- Ours, if it is ours or nobody's any more.
INSERT INTO {schema}.turns AS t (name, holder, until)
VALUES ('prune', $1, {clock} + make_interval(secs => $2))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE t.holder = excluded.holder OR t.until < {clock}
RETURNING holder

-- name: whose_turn
-- Who has it; until we are done, nobody else takes it.
SELECT holder, extract(epoch FROM until)::float8 AS until FROM {schema}.turns WHERE name = 'prune' FOR UPDATE

-- name: hold
-- Still ours, in the transaction that takes something away.
UPDATE {schema}.turns SET until = {clock} + make_interval(secs => $2) WHERE name = 'prune' AND holder = $1
RETURNING holder

-- name: end_turn
-- Nobody's.
DELETE FROM {schema}.turns WHERE name = 'prune' AND holder = $1

-- name: position
-- Where a walk goes on; it begins anew when it is old.
INSERT INTO {schema}.walks AS w (name, position, started_at) VALUES ($1, $3, {clock})
ON CONFLICT (name) DO UPDATE
SET position = CASE WHEN w.started_at < {clock} - make_interval(secs => $2) THEN $3 ELSE w.position END,
    started_at = CASE WHEN w.started_at < {clock} - make_interval(secs => $2) THEN {clock} ELSE w.started_at END
RETURNING position

-- name: remember
-- How far it has come.
UPDATE {schema}.walks SET position = $2 WHERE name = $1

-- name: window
-- The next events in the order of their ids, which is that of time.
SELECT id, claim, source, state, extract(epoch FROM {clock} - finished_at)::float8 AS finished_ago,
       attention OR alert IS NOT NULL AS open, emptied_at IS NOT NULL AS emptied
FROM {schema}.events WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3

-- name: deliveries_window
-- All deliveries of the next requests.
SELECT d.request_id, d.item, d.source, d.outcome, extract(epoch FROM {clock} - d.received_at)::float8 AS received_ago
FROM (SELECT DISTINCT request_id FROM {schema}.deliveries
      WHERE request_id > $1 AND request_id < $2 ORDER BY request_id LIMIT $3) AS r
JOIN {schema}.deliveries AS d USING (request_id) ORDER BY d.request_id, d.item

-- name: lock_events
-- Those that are still as they were chosen, and quiet.
SELECT e.id, e.request_id, e.item FROM unnest($1::uuid[], $2::bigint[]) AS c (id, claim)
JOIN {schema}.events AS e ON e.id = c.id AND e.claim = c.claim
WHERE e.state IN ('processed', 'skipped', 'failed', 'discarded') AND NOT e.attention AND e.alert IS NULL
  AND (SELECT count(*) FROM {schema}.deliveries AS d
       WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')
         AND d.received_at > {clock} - make_interval(secs => $3)) = 0
ORDER BY e.id FOR UPDATE OF e SKIP LOCKED

-- name: lock_effects
-- Their effects, as far as nobody holds them, and whether each is over.
SELECT identity, event_id, state IN ('done', 'cancelled') AND alert IS NULL AS over FROM {schema}.effects
WHERE event_id = ANY($1::uuid[]) ORDER BY identity FOR UPDATE SKIP LOCKED

-- name: count_effects
-- How many there are of each event, held by others or not.
SELECT event_id, count(*) AS n FROM {schema}.effects WHERE event_id = ANY($1::uuid[]) GROUP BY event_id

-- name: lock_odd
-- An operator may be admitting one of them: a moment's wait, and the next statement sees what came of it.
SELECT FROM {schema}.deliveries
WHERE event_id = ANY($1::uuid[]) AND outcome NOT IN ('accepted', 'invalid', 'reconciled')
  AND outcome IN ('conflict', 'same_body')
ORDER BY request_id, item FOR UPDATE

-- name: bury
-- What is left of them.
INSERT INTO {schema}.pruned (event_id, source, state, pruned_at)
SELECT id, source, state, {clock} FROM {schema}.events WHERE id = ANY($1::uuid[])

-- name: drop_attempts
-- Their executions.
DELETE FROM {schema}.attempts WHERE event_id = ANY($1::uuid[])

-- name: drop_events
-- The events.
DELETE FROM {schema}.events WHERE id = ANY($1::uuid[])

-- name: drop_first
-- The deliveries that the events named, unless they are another event's too.
DELETE FROM {schema}.deliveries AS d USING unnest($1::uuid[], $2::integer[]) AS n (request_id, item)
WHERE d.request_id = n.request_id AND d.item = n.item
  AND (SELECT count(*) FROM {schema}.events AS e WHERE e.id = d.event_id) = 0
RETURNING d.request_id

-- name: drop_again
-- The later deliveries, unless an event was made of them. What came since the events were found quiet stays: a person
-- may want to see it.
DELETE FROM {schema}.deliveries AS d
WHERE d.event_id = ANY($1::uuid[]) AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')
  AND d.received_at <= {clock} - make_interval(secs => $2)
  AND (SELECT count(*) FROM {schema}.events AS a
       WHERE a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'admitted') = 0
RETURNING d.request_id

-- name: drop_requests
-- Bytes that no delivery but a duplicate names any more.
DELETE FROM {schema}.requests AS r WHERE r.id = ANY($1::uuid[])
  AND (SELECT count(*) FROM {schema}.deliveries AS d WHERE d.request_id = r.id AND d.outcome <> 'duplicate') = 0

-- name: trim_effects
-- What the ledger does not need in order to skip them: it knows changed arguments by their digest.
UPDATE {schema}.effects SET arguments = '', error = NULL
WHERE identity = ANY($1::bytea[]) AND (arguments <> '' OR error IS NOT NULL)

-- name: trim_calls
-- Tracebacks of calls.
UPDATE {schema}.effect_calls SET error = NULL WHERE identity = ANY($1::bytea[]) AND error IS NOT NULL
RETURNING identity

-- name: lock_requests_events
-- Every event that came with the requests of these, and whether it is over for long enough.
SELECT e.id, e.request_id,
       e.state IN ('processed', 'skipped', 'discarded') AND NOT e.attention
           AND e.finished_at < {clock} - make_interval(secs => $2) AS over
FROM {schema}.deliveries AS d JOIN {schema}.events AS e ON e.id = d.event_id
WHERE d.request_id IN (SELECT request_id FROM {schema}.events WHERE id = ANY($1::uuid[]) AND emptied_at IS NULL)
  AND d.outcome IN ('accepted', 'invalid', 'reconciled')
ORDER BY e.id FOR UPDATE OF e SKIP LOCKED

-- name: count_items
-- How many events each request brought, and how much that is odd.
SELECT request_id, count(*) FILTER (WHERE outcome IN ('accepted', 'invalid', 'reconciled')) AS made,
       count(*) FILTER (WHERE outcome IN ('conflict', 'same_body')) AS odd
FROM {schema}.deliveries WHERE request_id = ANY($1::uuid[]) GROUP BY request_id

-- name: empty_requests
-- The bytes.
UPDATE {schema}.requests SET body = '', headers = '', query = '', remote = NULL, emptied_at = {clock}
WHERE id = ANY($1::uuid[]) AND emptied_at IS NULL

-- name: empty_events
-- So that nobody sends them round again: in the row that whoever wants to must change.
UPDATE {schema}.events SET emptied_at = {clock} WHERE id = ANY($1::uuid[])

-- name: forget_attempts
-- Tracebacks of attempts, of events that are still as they were chosen.
UPDATE {schema}.attempts AS a SET error = NULL
FROM unnest($1::uuid[], $2::bigint[]) AS c (id, claim) JOIN {schema}.events AS e ON e.id = c.id AND e.claim = c.claim
WHERE a.event_id = e.id AND a.error IS NOT NULL AND e.finished_at IS NOT NULL
RETURNING a.event_id

-- name: remembered
-- Events for which the former, or `trim_calls`, would find something.
SELECT e.id FROM unnest($1::uuid[], $2::bigint[]) AS c (id, claim)
JOIN {schema}.events AS e ON e.id = c.id AND e.claim = c.claim
WHERE e.finished_at IS NOT NULL AND (
    EXISTS (SELECT 1 FROM {schema}.attempts AS a WHERE a.event_id = e.id AND a.error IS NOT NULL)
    OR EXISTS (SELECT 1 FROM {schema}.effects AS f JOIN {schema}.effect_calls AS n USING (identity)
               WHERE f.event_id = e.id AND f.state IN ('done', 'cancelled') AND n.error IS NOT NULL))

-- name: effects_over
-- The effects that are over, of events that are still as they were chosen.
SELECT f.identity, f.event_id FROM unnest($1::uuid[], $2::bigint[]) AS c (id, claim)
JOIN {schema}.events AS e ON e.id = c.id AND e.claim = c.claim JOIN {schema}.effects AS f ON f.event_id = e.id
WHERE f.state IN ('done', 'cancelled') AND e.finished_at IS NOT NULL ORDER BY f.identity

-- name: drop_duplicates
-- Rows of plain duplicates.
DELETE FROM {schema}.deliveries AS d USING unnest($1::uuid[], $2::integer[]) AS n (request_id, item)
WHERE d.request_id = n.request_id AND d.item = n.item AND d.outcome = 'duplicate'
RETURNING d.request_id

-- name: lock_deliveries
-- As `lock_odd`.
SELECT FROM {schema}.deliveries AS d JOIN unnest($1::uuid[], $2::integer[]) AS n (request_id, item)
  ON d.request_id = n.request_id AND d.item = n.item
ORDER BY d.request_id, d.item FOR UPDATE OF d

-- name: orphans
-- Odd deliveries whose event is not here, and that no event was made of.
SELECT d.request_id, d.item FROM unnest($1::uuid[], $2::integer[]) AS n (request_id, item)
JOIN {schema}.deliveries AS d ON d.request_id = n.request_id AND d.item = n.item
WHERE d.outcome IN ('conflict', 'same_body')
  AND (SELECT count(*) FROM {schema}.events AS e WHERE e.id = d.event_id) = 0
  AND (SELECT count(*) FROM {schema}.events AS a
       WHERE a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'admitted') = 0

-- name: drop_odd
-- Those.
DELETE FROM {schema}.deliveries AS d USING unnest($1::uuid[], $2::integer[]) AS n (request_id, item)
WHERE d.request_id = n.request_id AND d.item = n.item AND d.outcome IN ('conflict', 'same_body')

-- name: pruned
-- By id or the beginning of one.
SELECT * FROM {schema}.pruned WHERE event_id BETWEEN $1 AND $2 ORDER BY event_id LIMIT 10

-- name: note
-- What a round has taken away, this transaction's share included.
INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
VALUES ($1, {clock}, 'prune', $2, $3, $4, 'kept', 'pruning')
ON CONFLICT (id) DO UPDATE SET subject = excluded.subject

-- name: close
-- How a round ended, if that is not known yet.
UPDATE {schema}.actions SET to_state = $2 WHERE id = $1 AND to_state = 'pruning' RETURNING actor, reason, subject
