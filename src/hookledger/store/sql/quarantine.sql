-- name: quarantine_sources
-- The sources with quarantined deliveries: a walk from one to the next along the index.
WITH RECURSIVE walk (source) AS (
    SELECT min(source) FROM {schema}.deliveries WHERE outcome IN ('conflict', 'same_body')
    UNION ALL
    SELECT (SELECT min(d.source) FROM {schema}.deliveries AS d
            WHERE d.outcome IN ('conflict', 'same_body') AND d.source > walk.source)
    FROM walk WHERE walk.source IS NOT NULL
)
SELECT source FROM walk WHERE source IS NOT NULL

-- name: list_quarantined
-- The newest of each source and outcome; the deliveries of one request together.
SELECT d.request_id, d.item, d.source, d.outcome, d.event_id, e.key AS event_key, d.event_state, d.delivery_id,
       d.received_at, a.id AS accepted_id
FROM {rows :among source text, outcome text} AS given CROSS JOIN {schema}.deliveries AS d
LEFT JOIN {schema}.events AS e ON e.id = d.event_id
LEFT JOIN {schema}.events AS a
  ON a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'quarantine' AND a.parent IS NULL
WHERE d.source = given.source AND d.outcome = given.outcome AND d.outcome IN ('conflict', 'same_body')
  AND d.request_id < :before AND d.request_id >= (
    SELECT request_id FROM (
        SELECT n.request_id FROM {schema}.deliveries AS n
        WHERE n.source = given.source AND n.outcome = given.outcome AND n.outcome IN ('conflict', 'same_body')
          AND n.request_id < :before
        ORDER BY n.request_id DESC LIMIT :limit
    ) AS newest ORDER BY request_id LIMIT 1)

-- name: find_quarantined
-- By id, or the beginning of one, of the request.
SELECT request_id, item FROM {schema}.deliveries
WHERE request_id BETWEEN :first AND :last AND (:item::integer IS NULL OR item = :item)
  AND outcome IN ('conflict', 'same_body')
ORDER BY request_id, item LIMIT 10

-- name: kept_request
SELECT * FROM {schema}.requests WHERE id = :id

-- name: elsewhere
-- The bytes of a known body: the event that has it keeps them, or the first delivery that met it after they were pruned.
SELECT b.body FROM {schema}.events AS e JOIN {schema}.requests AS b ON b.id = e.request_id
WHERE e.id = d.event_id AND e.fingerprint = d.fingerprint AND d.outcome = 'same_body' AND b.emptied_at IS NULL
UNION ALL
SELECT b.body FROM {schema}.deliveries AS k JOIN {schema}.requests AS b ON b.id = k.request_id
WHERE k.event_id = d.event_id AND k.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND k.outcome = 'same_body'
  AND k.fingerprint = d.fingerprint AND d.outcome = 'same_body' AND length(b.body) > 0
LIMIT 1

-- name: borrowed_body
-- The bytes of a delivery whose request was kept without.
SELECT ({elsewhere}) AS body FROM {schema}.deliveries AS d WHERE d.request_id = :request_id AND d.item = 0

-- name: keep_body
-- From here on the delivery has its own: it is about to be an event's.
UPDATE {schema}.requests SET body = coalesce(({borrowed_body}), body)
WHERE id = :request_id AND length(body) = 0 AND emptied_at IS NULL

-- name: quarantined
-- A delivery to accept. A separate statement: the lock's snapshot is older than the lock.
SELECT d.source, d.outcome, d.event_id, EXISTS (
           SELECT 1 FROM {schema}.requests AS r WHERE r.id = d.request_id AND r.emptied_at IS NULL
               AND (length(r.body) > 0 OR EXISTS ({elsewhere}))) AS kept, a.id AS accepted_id
FROM {schema}.deliveries AS d
LEFT JOIN {schema}.events AS a
  ON a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'quarantine' AND a.parent IS NULL
WHERE d.request_id = :request_id AND d.item = :item AND d.outcome IN ('conflict', 'same_body')

-- name: own_accepted_key
-- The key of an accepted event. It stays with the event that has it, unless that got it from this delivery, as the
-- owner of a known body (:met). Locked, so that accepted events of one key are numbered one after the other.
INSERT INTO {schema}.identities AS i (identity, kind, source, event_id, fingerprint)
VALUES (:identity, 'key', :source, :event_id, :fingerprint)
ON CONFLICT (identity) DO UPDATE SET event_id = CASE WHEN i.event_id = :met::uuid THEN :event_id ELSE i.event_id END

-- name: own_accepted
-- What else it owns. Sorted, as at intake, so that both queue and do not deadlock.
INSERT INTO {schema}.identities (identity, kind, source, event_id, fingerprint)
SELECT given.identity, given.kind, given.source, given.event_id, given.fingerprint
FROM {rows :wanted identity bytea, kind text, source text, event_id uuid, fingerprint bytea} AS given
WHERE true ORDER BY given.identity
ON CONFLICT DO NOTHING
RETURNING identity

-- name: accept
-- A quarantined delivery -> pending, under the next number of its key. Counted, not EXISTS, because PostgreSQL may
-- hash the whole table for that.
INSERT INTO {schema}.events (id, source, type, key, key_origin, provider_id, object_id, occurred_at, fingerprint,
                             request_id, item, received_at, run_started_at, state, due_at, account, entity,
                             order_at, hold, version)
WITH RECURSIVE tried (n) AS (
    SELECT 2
    UNION ALL
    SELECT n + 1 FROM tried
    WHERE (SELECT count(*) FROM {schema}.events AS e
           WHERE e.key_origin = 'quarantine' AND e.source = :source::text
             AND e.key = substr(:key::text, 1, 254 - length(n::text)) || '~' || n) > 0
)
SELECT :id::uuid, :source, :type::text, substr(:key, 1, 254 - length(t.n::text)) || '~' || t.n, 'quarantine',
       :provider_id::text, :object_id::text, :occurred_at::timestamptz, :fingerprint::bytea, d.request_id, d.item,
       d.received_at, clock.now, 'pending', clock.now, :account::text, :entity::text,
       CASE WHEN :ordered::boolean THEN coalesce(:order_at::timestamptz, clock.now) END, :hold::boolean,
       :version::text
FROM {schema}.deliveries AS d, (SELECT max(n) AS n FROM tried) AS t, (SELECT {now} AS now) AS clock
WHERE d.request_id = :request_id AND d.item = :item
