-- PostgreSQL's dialect of what did not plainly become an event; {schema} and {clock} as in queries.sql.

-- name: begin
-- What an operator did is on disk when they are told so; nobody waits long for a lock.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s'

-- name: begin_refuse
-- A stranger's request must not make the disk sync, and nothing is promised about it.
BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '5s'

-- name: begin_audit
-- Several statements that see the same.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: lock_sample
-- One at a time keeps to the budget: two that do not see each other's rows would both stop short of it.
SELECT pg_advisory_xact_lock(hashtextextended('hookledger:rejections', 0))

-- name: count_refusals
-- All of what was refused.
INSERT INTO {schema}.rejection_counts AS c (source, reason, count, first_at, last_at)
SELECT n.source, n.reason, n.count, now, now
FROM {clock} AS clock (now), unnest($1::text[], $2::text[], $3::bigint[]) AS n (source, reason, count)
ON CONFLICT (source, reason) DO UPDATE
SET count = c.count + excluded.count, last_at = greatest(c.last_at, excluded.last_at)

-- name: keep_refusals
-- Some of it.
INSERT INTO {schema}.rejections (id, source, reason, received_at, method, path, query, headers, body, remote)
SELECT r.id, r.source, r.reason, {clock}, r.method, r.path, r.query, r.headers, r.body, r.remote
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[], $9::text[])
  AS r (id, source, reason, method, path, query, headers, body, remote)
ON CONFLICT DO NOTHING

-- name: trim_refusals
-- The oldest over the budget of each of these sources go. Looked up as an array, because the planner expects many of
-- them and would read the whole sample.
DELETE FROM {schema}.rejections WHERE id = ANY(ARRAY(
    SELECT r.id FROM unnest($1::text[]) AS s (source) CROSS JOIN LATERAL (
        SELECT id, row_number() OVER newer AS nth,
               sum(length(query) + length(headers) + length(body)) OVER newer AS bytes
        FROM {schema}.rejections WHERE source = s.source
        WINDOW newer AS (ORDER BY id DESC ROWS UNBOUNDED PRECEDING)
    ) AS r WHERE r.nth > $2 OR r.bytes > $3
))

-- name: refusals
-- The newest first; the id is time-ordered.
SELECT * FROM {schema}.rejections
WHERE ($1::text IS NULL OR source = $1) AND ($2::text IS NULL OR reason = $2) AND id < $3
ORDER BY id DESC LIMIT $4

-- name: refusal_counts
-- Every source and reason.
SELECT c.*, (SELECT count(*) FROM {schema}.rejections AS r WHERE r.source = c.source AND r.reason = c.reason) AS kept
FROM {schema}.rejection_counts AS c ORDER BY c.source, c.reason

-- name: take_refusal
-- Out of the sample, and into the audit of what it became; it stays counted.
WITH taken AS (
    DELETE FROM {schema}.rejections WHERE id = $1 RETURNING id
), noted AS (
    INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
    SELECT e.action, {clock}, 'recheck', $4, $5, e.event_id, taken.id::text, 'refused', 'recorded'
    FROM taken, unnest($2::uuid[], $3::uuid[]) AS e (action, event_id)
)
SELECT id FROM taken

-- name: odd_sources
-- The sources that have odd deliveries: a walk from one to the next along the index.
WITH RECURSIVE walk AS (
    (SELECT source FROM {schema}.deliveries WHERE outcome IN ('conflict', 'same_body') ORDER BY source LIMIT 1)
    UNION ALL
    SELECT n.source FROM walk CROSS JOIN LATERAL (
        SELECT d.source FROM {schema}.deliveries AS d
        WHERE d.outcome IN ('conflict', 'same_body') AND d.source > walk.source ORDER BY d.source LIMIT 1
    ) AS n
)
SELECT source FROM walk

-- name: odd_deliveries
-- The newest of each source and outcome; the deliveries of one request together.
SELECT d.request_id, d.item, d.source, d.outcome, d.event_id, e.key AS event_key, d.event_state, d.delivery_id,
       d.received_at, a.id AS admitted_as
FROM unnest($1::text[]) AS s (source) CROSS JOIN unnest($2::text[]) AS o (outcome) CROSS JOIN LATERAL (
    SELECT * FROM {schema}.deliveries AS d
    WHERE d.source = s.source AND d.outcome = o.outcome AND d.outcome IN ('conflict', 'same_body')
      AND d.request_id < $3
    ORDER BY d.request_id DESC FETCH FIRST $4 ROWS WITH TIES
) AS d
LEFT JOIN {schema}.events AS e ON e.id = d.event_id
LEFT JOIN {schema}.events AS a ON a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'admitted'

-- name: find_delivery
-- By id, or the beginning of one, of the request.
SELECT request_id, item FROM {schema}.deliveries
WHERE request_id BETWEEN $1 AND $2 AND ($3::integer IS NULL OR item = $3) AND outcome IN ('conflict', 'same_body')
ORDER BY request_id, item LIMIT 10

-- name: lock_delivery
-- One operator at a time. Intake never comes back to a delivery.
SELECT FROM {schema}.deliveries WHERE request_id = $1 AND item = $2 FOR NO KEY UPDATE

-- name: elsewhere
-- The bytes of a known body: the event that has it keeps them, or the first delivery that met it after they were pruned.
SELECT b.body FROM {schema}.events AS e JOIN {schema}.requests AS b ON b.id = e.request_id
WHERE e.id = d.event_id AND e.fingerprint = d.fingerprint AND d.outcome = 'same_body' AND b.emptied_at IS NULL
UNION ALL
SELECT b.body FROM {schema}.deliveries AS k JOIN {schema}.requests AS b ON b.id = k.request_id
WHERE k.event_id = d.event_id AND k.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND k.outcome = 'same_body'
  AND k.fingerprint = d.fingerprint AND d.outcome = 'same_body' AND octet_length(b.body) > 0
LIMIT 1

-- name: bytes
-- Those of a delivery whose request was kept without.
SELECT ({elsewhere}) AS body FROM {schema}.deliveries AS d WHERE d.request_id = $1 AND d.item = 0

-- name: keep_bytes
-- From here on the delivery has its own: it is about to be an event's.
UPDATE {schema}.requests SET body = coalesce((SELECT ({elsewhere}) FROM {schema}.deliveries AS d WHERE d.request_id = $1 AND d.item = 0), body)
WHERE id = $1 AND octet_length(body) = 0 AND emptied_at IS NULL

-- name: odd
-- A delivery that is to be admitted. A statement of its own: the lock's snapshot is older than the lock.
SELECT d.source, d.outcome, d.event_id, EXISTS (
           SELECT FROM {schema}.requests AS r WHERE r.id = d.request_id AND r.emptied_at IS NULL
               AND (octet_length(r.body) > 0 OR EXISTS ({elsewhere}))) AS kept, a.id AS admitted_as
FROM {schema}.deliveries AS d
LEFT JOIN {schema}.events AS a ON a.request_id = d.request_id AND a.item = d.item AND a.key_origin = 'admitted'
WHERE d.request_id = $1 AND d.item = $2 AND d.outcome IN ('conflict', 'same_body')

-- name: take_key
-- The key of an admitted event. It stays with the event that has it, unless that got it from this very delivery, as the
-- owner of a known body ($5). Locked, so that admissions under one key are numbered one after the other.
INSERT INTO {schema}.identities AS i (identity, kind, source, event_id, fingerprint) VALUES ($1, 'key', $2, $3, $4)
ON CONFLICT (identity) DO UPDATE SET event_id = CASE WHEN i.event_id = $5::uuid THEN $3 ELSE i.event_id END

-- name: admit
-- An odd delivery -> pending, with its audit row, under the next number of its key. Counted, not EXISTS, because
-- PostgreSQL may hash the whole table for that.
WITH RECURSIVE tried (n) AS (
    SELECT 2
    UNION ALL
    SELECT n + 1 FROM tried
    WHERE (SELECT count(*) FROM {schema}.events AS e
           WHERE e.key_origin = 'admitted' AND e.source = $4 AND e.key = left($5, 254 - length(n::text)) || '~' || n) > 0
), new AS (
    INSERT INTO {schema}.events (id, source, type, key, key_origin, provider_id, object_id, occurred_at, fingerprint,
                                 request_id, item, received_at, run_started_at, state, due_at, account)
    SELECT $1::uuid, $4::text, $6::text, left($5::text, 254 - length(t.n::text)) || '~' || t.n, 'admitted', $7::text,
           $8::text, to_timestamp($9::float8), $10::bytea, d.request_id, d.item, d.received_at, now, 'pending', now,
           $15::text
    FROM {schema}.deliveries AS d, (SELECT max(n) AS n FROM tried) AS t, {clock} AS clock (now)
    WHERE d.request_id = $2 AND d.item = $3
    RETURNING id, request_id, item, run_started_at
)
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
SELECT $11::uuid, run_started_at, 'admit', $13::text, $14::text, id, request_id::text || ':' || item, $12::text, 'pending'
FROM new

-- name: again
-- Deliveries after the first of each event, counted no further than 1,000.
SELECT i.id, d.n FROM unnest($1::uuid[]) AS i (id) CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM {schema}.deliveries AS d
        WHERE d.event_id = i.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled') LIMIT 1000
    ) AS d
) AS d

-- name: alert
-- A mark for a person, with its audit row.
WITH marked AS (
    UPDATE {schema}.events SET alert = $2
    WHERE id = $1 AND state IN ('failed', 'retrying', 'processing', 'needs_review') AND alert IS NULL
    RETURNING id, state
)
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, from_state, to_state)
SELECT $3, {clock}, 'alert', 'hookledger', $2, id, state, state FROM marked
RETURNING event_id

-- name: warn
-- The same for a quarantined delivery: only the audit row, because the event may be over or pruned.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, from_state, to_state)
SELECT $3, {clock}, 'alert', 'hookledger', $2, w.id, coalesce(e.state, 'pruned'), coalesce(e.state, 'pruned')
FROM (SELECT $1::uuid AS id) AS w LEFT JOIN {schema}.events AS e ON e.id = w.id
WHERE NOT EXISTS (SELECT FROM {schema}.actions AS a WHERE a.event_id = $1 AND a.name = 'alert' AND a.reason = $2)
RETURNING event_id

-- name: note_import
-- The action that imported keys belong to.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
VALUES ($1, {clock}, 'import-keys', $3, $4, $1, $2, 'absent', 'known')

-- name: import_keys
-- Keys whose events were processed elsewhere. Sorted, as at intake, so that both queue and do not deadlock.
INSERT INTO {schema}.identities (identity, kind, source, event_id, fingerprint)
SELECT identity, 'key', $2, $3, '' FROM unnest($1::bytea[]) AS i (identity) ORDER BY identity
ON CONFLICT DO NOTHING
RETURNING identity

-- name: known_keys
-- Those that are taken.
SELECT identity FROM {schema}.identities WHERE identity = ANY($1::bytea[])

-- name: looked
-- The last events of a source.
SELECT id, type, key, key_origin, fingerprint FROM {schema}.events WHERE source = $1 ORDER BY id DESC LIMIT $2

-- name: audit_origins
-- What their keys were made from.
SELECT e.key_origin, count(*) AS n FROM ({looked}) AS e GROUP BY e.key_origin

-- name: audit_again
-- Their deliveries after the first.
SELECT d.outcome, count(*) AS n FROM ({looked}) AS e JOIN {schema}.deliveries AS d ON d.event_id = e.id
WHERE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') GROUP BY d.outcome

-- name: audit_contents
-- Events that share type and content; `total` is over all groups, not only those that are shown.
SELECT '' AS key, e.fingerprint, e.type, count(*) AS n, (array_agg(e.id ORDER BY e.id DESC))[1:3] AS sample,
       sum(count(*)) OVER ()::bigint AS total
FROM ({looked}) AS e WHERE e.key_origin <> 'arrival'
GROUP BY e.type, e.fingerprint HAVING count(*) > 1 ORDER BY n DESC, e.fingerprint, e.type LIMIT 20

-- name: audit_odd
-- The events that the most deliveries of one outcome met.
SELECT e.key, e.fingerprint, e.type, count(*) AS n, ARRAY[e.id] AS sample
FROM ({looked}) AS e JOIN {schema}.deliveries AS d ON d.event_id = e.id
WHERE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND d.outcome = $3
GROUP BY e.id, e.key, e.fingerprint, e.type ORDER BY n DESC, e.id LIMIT 20
