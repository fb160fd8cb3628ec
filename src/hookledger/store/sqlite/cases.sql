-- SQLite's dialect of what did not plainly become an event. ?1 is the present where a query needs it, as in queries.sql.
-- Differs from PostgreSQL's because every write runs alone: one row a statement, and nothing to lock.

-- name: count_refusals
-- All of what was refused.
INSERT INTO rejection_counts AS c (source, reason, count, first_at, last_at) VALUES (?2, ?3, ?4, ?1, ?1)
ON CONFLICT (source, reason) DO UPDATE
SET count = c.count + excluded.count, last_at = max(c.last_at, excluded.last_at)

-- name: keep_refusals
-- Some of it.
INSERT INTO rejections (received_at, id, source, reason, method, path, query, headers, body, remote)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: trim_refusals
-- The oldest over the budget of a source go.
DELETE FROM rejections WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER newer AS nth,
               sum(length(query) + length(headers) + length(body)) OVER newer AS bytes
        FROM rejections WHERE source = ?1
        WINDOW newer AS (ORDER BY id DESC ROWS UNBOUNDED PRECEDING)
    ) WHERE nth > ?2 OR bytes > ?3)

-- name: refusals
-- The newest first; the id is time-ordered.
SELECT * FROM rejections WHERE (?1 IS NULL OR source = ?1) AND (?2 IS NULL OR reason = ?2) AND id < ?3
ORDER BY id DESC LIMIT ?4

-- name: refusal_counts
-- Every source and reason.
SELECT c.*, (SELECT count(*) FROM rejections r WHERE r.source = c.source AND r.reason = c.reason) AS kept
FROM rejection_counts c ORDER BY c.source, c.reason

-- name: forget_refusal
-- Out of the sample; it stays counted.
DELETE FROM rejections WHERE id = ?1 RETURNING id

-- name: odd_sources
-- The sources that have odd deliveries: a walk from one to the next along the index.
WITH RECURSIVE walk (source) AS (
    SELECT min(source) FROM deliveries INDEXED BY deliveries_odd WHERE outcome IN ('conflict', 'same_body')
    UNION ALL
    SELECT (SELECT min(d.source) FROM deliveries d INDEXED BY deliveries_odd
            WHERE d.outcome IN ('conflict', 'same_body') AND d.source > walk.source)
    FROM walk WHERE walk.source IS NOT NULL
)
SELECT source FROM walk WHERE source IS NOT NULL

-- name: odd_deliveries
-- The newest of one source and outcome; the deliveries of one request together.
SELECT d.request_id, d.item, d.source, d.outcome, d.event_id, e.key AS event_key, d.event_state, d.delivery_id,
       d.received_at, a.id AS admitted_as
FROM deliveries d INDEXED BY deliveries_odd
LEFT JOIN events e ON e.id = d.event_id
LEFT JOIN events a ON a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'admitted'
WHERE d.source = ?1 AND d.outcome = ?2 AND d.outcome IN ('conflict', 'same_body') AND d.request_id < ?3
  AND d.request_id >= (
    SELECT min(request_id) FROM (
        SELECT n.request_id FROM deliveries n INDEXED BY deliveries_odd
        WHERE n.source = ?1 AND n.outcome = ?2 AND n.outcome IN ('conflict', 'same_body') AND n.request_id < ?3
        ORDER BY n.request_id DESC LIMIT ?4))

-- name: find_delivery
-- By id, or the beginning of one, of the request.
SELECT request_id, item FROM deliveries
WHERE request_id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR item = ?3) AND outcome IN ('conflict', 'same_body')
ORDER BY request_id, item LIMIT 10

-- name: elsewhere
-- The bytes of a known body: the event that has it keeps them, or the first delivery that met it after they were pruned.
SELECT b.body FROM events e JOIN requests b ON b.id = e.request_id
WHERE e.id = d.event_id AND e.fingerprint = d.fingerprint AND d.outcome = 'same_body' AND b.emptied_at IS NULL
UNION ALL
SELECT b.body FROM deliveries k JOIN requests b ON b.id = k.request_id
WHERE k.event_id = d.event_id AND k.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND k.outcome = 'same_body'
  AND k.fingerprint = d.fingerprint AND d.outcome = 'same_body' AND length(b.body) > 0
LIMIT 1

-- name: bytes
-- Those of a delivery whose request was kept without.
SELECT ({elsewhere}) AS body FROM deliveries d WHERE d.request_id = ?1 AND d.item = 0

-- name: keep_bytes
-- From here on the delivery has its own: it is about to be an event's.
UPDATE requests SET body = coalesce((SELECT ({elsewhere}) FROM deliveries d WHERE d.request_id = ?1 AND d.item = 0), body)
WHERE id = ?1 AND length(body) = 0 AND emptied_at IS NULL

-- name: odd
-- A delivery that is to be admitted.
SELECT d.source, d.outcome, d.event_id, EXISTS (
           SELECT 1 FROM requests r WHERE r.id = d.request_id AND r.emptied_at IS NULL
               AND (length(r.body) > 0 OR EXISTS ({elsewhere}))) AS kept, a.id AS admitted_as
FROM deliveries d
LEFT JOIN events a ON a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'admitted'
WHERE d.request_id = ?1 AND d.item = ?2 AND d.outcome IN ('conflict', 'same_body')

-- name: take_key
-- The key of an admitted event. It stays with the event that has it, unless that got it from this very delivery, as the
-- owner of a known body (?5).
INSERT INTO identities AS i (identity, kind, source, event_id, fingerprint) VALUES (?1, 'key', ?2, ?3, ?4)
ON CONFLICT (identity) DO UPDATE SET event_id = iif(i.event_id = ?5, ?3, i.event_id)

-- name: admit
-- An odd delivery -> pending, under the next number of its key.
INSERT INTO events (id, source, type, key, key_origin, provider_id, object_id, occurred_at, fingerprint, request_id, item,
                    received_at, run_started_at, state, due_at, account)
WITH RECURSIVE tried (n) AS (
    SELECT 2
    UNION ALL
    SELECT n + 1 FROM tried
    WHERE EXISTS (SELECT 1 FROM events e
                  WHERE e.key_origin = 'admitted' AND e.source = ?5 AND e.key = substr(?6, 1, 254 - length(n)) || '~' || n)
)
SELECT ?2, ?5, ?7, substr(?6, 1, 254 - length(t.n)) || '~' || t.n, 'admitted', ?8, ?9, ?10, ?11, d.request_id, d.item,
       d.received_at, ?1, 'pending', ?1, ?12
FROM deliveries d, (SELECT max(n) AS n FROM tried) t WHERE d.request_id = ?3 AND d.item = ?4

-- name: note_action
-- What was done, by whom and why.
INSERT INTO actions (at, name, id, event_id, subject, from_state, to_state, actor, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: again
-- Deliveries after the first of an event, counted no further than 1,000.
SELECT count(*) FROM (
    SELECT 1 FROM deliveries WHERE event_id = ?1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled') LIMIT 1000)

-- name: alert
-- A mark for a person.
UPDATE events SET alert = ?2
WHERE id = ?1 AND state IN ('failed', 'retrying', 'processing', 'needs_review') AND alert IS NULL
RETURNING state

-- name: unwarned
-- The state of an event that a quarantined delivery met, unless its audit has these words.
SELECT coalesce((SELECT state FROM events WHERE id = ?1), 'pruned')
WHERE NOT EXISTS (SELECT 1 FROM actions WHERE event_id = ?1 AND name = 'alert' AND reason = ?2)

-- name: known_keys
-- Those that are taken.
WITH wanted (identity) AS (VALUES (?))
SELECT i.identity FROM wanted CROSS JOIN identities i ON i.identity = wanted.identity

-- name: looked
-- The last events of a source.
SELECT id, type, key, key_origin, fingerprint FROM events WHERE source = ?1 ORDER BY id DESC LIMIT ?2

-- name: audit_origins
-- What their keys were made from.
SELECT key_origin, count(*) AS n FROM ({looked}) GROUP BY key_origin

-- name: audit_again
-- Their deliveries after the first.
SELECT d.outcome, count(*) AS n FROM ({looked}) e CROSS JOIN deliveries d ON d.event_id = e.id
WHERE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') GROUP BY d.outcome

-- name: audit_contents
-- Events that share type and content; `total` is over all groups, not only those that are shown.
SELECT '' AS key, fingerprint, type, count(*) AS n, group_concat(hex(id)) FILTER (WHERE nth <= 3) AS sample,
       sum(count(*)) OVER () AS total
FROM (
    SELECT *, row_number() OVER (PARTITION BY type, fingerprint ORDER BY id DESC) AS nth
    FROM ({looked}) WHERE key_origin <> 'arrival'
)
GROUP BY type, fingerprint HAVING count(*) > 1 ORDER BY n DESC, fingerprint, type LIMIT 20

-- name: audit_odd
-- The events that the most deliveries of one outcome met.
SELECT e.key, e.fingerprint, e.type, count(*) AS n, hex(e.id) AS sample
FROM ({looked}) e CROSS JOIN deliveries d ON d.event_id = e.id
WHERE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND d.outcome = ?3
GROUP BY e.id ORDER BY n DESC, e.id LIMIT 20
