-- SQLite's dialect of retention. ?1 is always the present, as in queries.sql, where a query needs it. Differs because
-- every write runs alone: nothing to lock, so the conditions are in the query that chooses.

-- name: turn
-- Ours, if it is ours or nobody's any more.
INSERT INTO turns AS t (name, holder, until) VALUES ('prune', ?2, ?1 + ?3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE t.holder = excluded.holder OR t.until < ?1
RETURNING holder

-- name: whose_turn
-- Who has it.
SELECT holder, until / 1e6 AS until FROM turns WHERE name = 'prune'

-- name: hold
-- Still ours, in the transaction that takes something away.
UPDATE turns SET until = ?1 + ?3 WHERE name = 'prune' AND holder = ?2 RETURNING holder

-- name: end_turn
-- Nobody's.
DELETE FROM turns WHERE name = 'prune' AND holder = ?1

-- name: position
-- Where a walk goes on; it begins anew when it is old.
INSERT INTO walks AS w (name, position, started_at) VALUES (?2, ?4, ?1)
ON CONFLICT (name) DO UPDATE
SET position = iif(w.started_at < ?1 - ?3, ?4, w.position),
    started_at = iif(w.started_at < ?1 - ?3, ?1, w.started_at)
RETURNING position

-- name: remember
-- How far it has come.
UPDATE walks SET position = ?2 WHERE name = ?1

-- name: window
-- The next events in the order of their ids, which is that of time.
SELECT id, claim, source, state, (?1 - finished_at) / 1e6 AS finished_ago, attention OR alert IS NOT NULL AS open,
       emptied_at IS NOT NULL AS emptied
FROM events WHERE id > ?2 AND id < ?3 ORDER BY id LIMIT ?4

-- name: deliveries_window
-- All deliveries of the next requests.
SELECT d.request_id, d.item, d.source, d.outcome, (?1 - d.received_at) / 1e6 AS received_ago
FROM (SELECT DISTINCT request_id FROM deliveries WHERE request_id > ?2 AND request_id < ?3
      ORDER BY request_id LIMIT ?4) AS next_requests
CROSS JOIN deliveries d ON d.request_id = next_requests.request_id ORDER BY d.request_id, d.item

-- name: still
-- An event that is still as it was chosen, and quiet, with all its effects over.
SELECT id, request_id, item FROM events e
WHERE id = ?2 AND claim = ?3 AND state IN ('processed', 'skipped', 'failed', 'discarded') AND NOT attention
  AND alert IS NULL
  AND NOT EXISTS (SELECT 1 FROM deliveries d
                  WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')
                    AND d.received_at > ?1 - ?4)
  AND NOT EXISTS (SELECT 1 FROM effects f
                  WHERE f.event_id = e.id AND (f.state NOT IN ('done', 'cancelled') OR f.alert IS NOT NULL))

-- name: bury
-- What is left of it.
INSERT INTO pruned (event_id, source, state, pruned_at) SELECT id, source, state, ?1 FROM events WHERE id = ?2

-- name: drop_attempts
-- Its executions.
DELETE FROM attempts WHERE event_id = ?1

-- name: drop_event
-- The event.
DELETE FROM events WHERE id = ?1

-- name: drop_first
-- The delivery that the event named, unless it is another event's too.
DELETE FROM deliveries
WHERE request_id = ?1 AND item = ?2 AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = deliveries.event_id)
RETURNING request_id

-- name: drop_again
-- The later deliveries, unless an event was made of them.
DELETE FROM deliveries
WHERE event_id = ?1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled')
  AND NOT EXISTS (SELECT 1 FROM events a WHERE a.request_id = deliveries.request_id AND a.item = deliveries.item
                    AND a.key_origin = 'admitted')
RETURNING request_id

-- name: drop_request
-- Bytes that no delivery but a duplicate names any more.
DELETE FROM requests
WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.request_id = requests.id AND d.outcome <> 'duplicate')

-- name: trim_effects
-- What the ledger does not need in order to skip them: it knows changed arguments by their digest.
UPDATE effects SET arguments = x'', error = NULL
WHERE event_id = ?1 AND (arguments <> x'' OR error IS NOT NULL)

-- name: trim_calls
-- Tracebacks of calls for effects that are over.
UPDATE effect_calls SET error = NULL
WHERE error IS NOT NULL
  AND identity IN (SELECT identity FROM effects WHERE event_id = ?1 AND state IN ('done', 'cancelled'))

-- name: beside
-- Every event that came with the request of this one, and whether it is over for long enough.
SELECT e.id, e.request_id,
       e.state IN ('processed', 'skipped', 'discarded') AND NOT e.attention AND e.finished_at < ?1 - ?3 AS over
FROM deliveries d JOIN events e ON e.id = d.event_id
WHERE d.request_id = (SELECT request_id FROM events WHERE id = ?2 AND emptied_at IS NULL)
  AND d.outcome IN ('accepted', 'invalid', 'reconciled')

-- name: count_items
-- How many events a request brought, and how much that is odd.
SELECT count(*) FILTER (WHERE outcome IN ('accepted', 'invalid', 'reconciled')) AS made,
       count(*) FILTER (WHERE outcome IN ('conflict', 'same_body')) AS odd
FROM deliveries WHERE request_id = ?1

-- name: empty_request
-- The bytes.
UPDATE requests SET body = x'', headers = x'', query = x'', remote = NULL, emptied_at = ?1
WHERE id = ?2 AND emptied_at IS NULL

-- name: empty_event
-- So that nobody sends it round again.
UPDATE events SET emptied_at = ?1 WHERE id = ?2

-- name: forget_attempts
-- Tracebacks of attempts.
UPDATE attempts SET error = NULL WHERE event_id = ?1 AND error IS NOT NULL

-- name: remembered
-- Whether the former or `trim_calls` finds something, of an event that is still as it was chosen.
SELECT 1 FROM events e
WHERE e.id = ?1 AND e.claim = ?2 AND e.finished_at IS NOT NULL AND (
    EXISTS (SELECT 1 FROM attempts WHERE event_id = ?1 AND error IS NOT NULL)
    OR EXISTS (SELECT 1 FROM effects f JOIN effect_calls c USING (identity)
               WHERE f.event_id = ?1 AND f.state IN ('done', 'cancelled') AND c.error IS NOT NULL))

-- name: drop_duplicate
-- The row of a plain duplicate.
DELETE FROM deliveries WHERE request_id = ?1 AND item = ?2 AND outcome = 'duplicate' RETURNING request_id

-- name: orphan
-- An odd delivery whose event is not here, and that no event was made of.
SELECT request_id FROM deliveries d
WHERE request_id = ?1 AND item = ?2 AND outcome IN ('conflict', 'same_body')
  AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = d.event_id)
  AND NOT EXISTS (SELECT 1 FROM events a WHERE a.request_id = d.request_id AND a.item = d.item
                    AND a.key_origin = 'admitted')

-- name: drop_odd
-- That.
DELETE FROM deliveries WHERE request_id = ?1 AND item = ?2

-- name: pruned
-- By id or the beginning of one.
SELECT * FROM pruned WHERE event_id BETWEEN ?1 AND ?2 ORDER BY event_id LIMIT 10

-- name: note
-- What a round has taken away, this transaction's share included.
INSERT INTO actions (at, id, name, actor, reason, subject, from_state, to_state)
VALUES (?1, ?2, 'prune', ?3, ?4, ?5, 'kept', 'pruning')
ON CONFLICT (id) DO UPDATE SET subject = excluded.subject

-- name: close
-- How a round ended, if that is not known yet.
UPDATE actions SET to_state = ?2 WHERE id = ?1 AND to_state = 'pruning' RETURNING actor, reason, subject
