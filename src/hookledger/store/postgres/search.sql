-- PostgreSQL's dialect of searching; {schema} and {clock} as in queries.sql. A stream is a range of one index, the newest
-- first, and no more than {most} of it. $1 and $2 are the ids that it stays below and does not pass. Pairs are compared, and sorted by, as a whole, because only the index meant can do that: told that they are equal, the
-- planner would often rather walk all the ids and pick, which is good for frequent values and bad for rare ones.

-- name: stream_all
SELECT {what} FROM {schema}.events e WHERE e.id < $1::uuid AND e.id >= $2::uuid
ORDER BY e.id DESC LIMIT {most}

-- name: stream_kind
SELECT {what} FROM {schema}.events e
WHERE (e.source, e.type, e.id) < ({0}::text, {1}::text, $1::uuid)
  AND (e.source, e.type, e.id) >= ({0}::text, {1}::text, $2::uuid)
ORDER BY e.source DESC, e.type DESC, e.id DESC LIMIT {most}

-- name: stream_object
SELECT {what} FROM {schema}.events e
WHERE e.object_id IS NOT NULL AND (e.object_id, e.id) < ({0}::text, $1::uuid)
  AND (e.object_id, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.object_id DESC, e.id DESC LIMIT {most}

-- name: stream_account
SELECT {what} FROM {schema}.events e
WHERE e.account IS NOT NULL AND (e.account, e.id) < ({0}::text, $1::uuid)
  AND (e.account, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.account DESC, e.id DESC LIMIT {most}

-- name: stream_cause
SELECT {what} FROM {schema}.events e
WHERE e.cause IS NOT NULL AND (e.cause, e.id) < ({0}::text, $1::uuid) AND (e.cause, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.cause DESC, e.id DESC LIMIT {most}

-- name: stream_marked
-- Those that `stream_state` does not find as failed or in review.
SELECT {what} FROM {schema}.events e
WHERE (e.attention OR e.alert IS NOT NULL) AND e.state NOT IN ('failed', 'needs_review')
  AND e.id < $1::uuid AND e.id >= $2::uuid
ORDER BY e.id DESC LIMIT {most}

-- name: stream_id
-- One that an identity led to.
SELECT {what} FROM {schema}.events e
WHERE e.id = {0}::uuid AND e.id < $1::uuid AND e.id >= $2::uuid LIMIT {most}

-- name: stream_key
-- Of the origins whose identities are not made of the key as it is shown.
SELECT {what} FROM {schema}.events e
WHERE e.key_origin NOT IN ('signed_id', 'unsigned_id')
  AND (e.key, e.id) < ({0}::text, $1::uuid) AND (e.key, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.key DESC, e.id DESC LIMIT {most}

-- name: stream_state
SELECT {what} FROM {schema}.events e
WHERE e.state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded')
  AND (e.state, e.id) < ({0}::text, $1::uuid) AND (e.state, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.state DESC, e.id DESC LIMIT {most}

-- name: stream_waiting
-- Sorted, as the index is not by id: asked for only while the queue is short. OFFSET 0, because the planner would
-- rather walk all the ids until it has met enough that wait.
SELECT {what} FROM (
    SELECT * FROM {schema}.events
    WHERE state IN ('pending', 'retrying') AND crashes < 2 AND state = 'pending' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid ORDER BY e.id DESC LIMIT {most}

-- name: stream_waiting_alone
SELECT {what} FROM (
    SELECT * FROM {schema}.events
    WHERE state IN ('pending', 'retrying') AND crashes >= 2 AND state = 'pending' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid ORDER BY e.id DESC LIMIT {most}

-- name: stream_leased
SELECT {what} FROM (
    SELECT * FROM {schema}.events WHERE leased_until IS NOT NULL AND state = 'processing' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid ORDER BY e.id DESC LIMIT {most}

-- name: stream_admitted
-- Admitted events, which a search by time would pass over.
SELECT {what} FROM {schema}.events e
WHERE e.key_origin = 'admitted' AND e.id < $1::uuid AND e.id >= $2::uuid ORDER BY e.id DESC LIMIT {most}

-- name: one_stream
-- With the place of each in it: the last that a stream may give says that there may be more behind it.
(SELECT s.*, row_number() OVER () AS place FROM ({0}) AS s)

-- name: no_limit
ALL

-- name: page_of_one
-- Those of a stream for which it holds, in its order, no more than $3; and the last it may give, be it one or not.
-- The limit within the stream keeps the condition out of it: it is walked until there are enough, and no further.
SELECT p.*, 1 + (SELECT count(*) FROM {schema}.deliveries d
                 WHERE d.event_id = p.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries
FROM (
    SELECT e.*, ({where}) AS holds, e.place = {most} AS ends, e.place AS looked_at FROM {streams} AS e
    WHERE ({where}) OR e.place = {most} LIMIT $3::integer
) AS p

-- name: page_of_many
-- The same of several streams, which give ids. They are merged, then looked up one by one.
SELECT p.*, 1 + (SELECT count(*) FROM {schema}.deliveries d
                 WHERE d.event_id = p.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries
FROM (
    SELECT e.*, ({where}) AS holds, i.place = {most} AS ends, i.looked_at
    FROM (SELECT m.*, row_number() OVER (ORDER BY m.id DESC) AS looked_at FROM ({streams}) AS m ORDER BY m.id DESC) AS i
    CROSS JOIN LATERAL (SELECT * FROM {schema}.events WHERE id = i.id OFFSET 0) AS e
    WHERE ({where}) OR i.place = {most} ORDER BY i.id DESC LIMIT $3::integer
) AS p

-- name: count
-- How many of the streams there are for which it holds.
SELECT count(*) AS n FROM ({streams}) AS i JOIN {schema}.events AS e ON e.id = i.id WHERE {where}

-- name: count_all
-- The same of all events.
SELECT count(*) AS n FROM {schema}.events AS e WHERE {where}

-- name: kinds
-- Each source and type from one pair to another: a walk from kind to kind along the index.
WITH RECURSIVE kinds AS (
    (SELECT source, type FROM {schema}.events
     WHERE (source, type) >= ($1::text, $2::text) AND (source, type) < ($3::text, $4::text)
     ORDER BY source, type LIMIT 1)
    UNION ALL
    SELECT n.source, n.type FROM kinds k CROSS JOIN LATERAL (
        SELECT source, type FROM {schema}.events
        WHERE (source, type) > (k.source, k.type) AND (source, type) < ($3::text, $4::text)
        ORDER BY source, type LIMIT 1
    ) n
)
SELECT source, type FROM kinds LIMIT $5::integer

-- name: sources
-- All that a receiver served.
SELECT name FROM {schema}.sources

-- name: owners
-- The events of identities.
SELECT event_id FROM {schema}.identities WHERE identity = ANY($1::bytea[]) AND fingerprint <> '' LIMIT 100

-- name: effect_owners
-- The events of effects.
SELECT DISTINCT event_id FROM {schema}.effects WHERE identity = ANY($1::bytea[])

-- name: queue_length
-- How many wait, counted no further than {most}.
SELECT count(*) AS n FROM (
    (SELECT FROM {schema}.events WHERE state IN ('pending', 'retrying') AND crashes < 2 LIMIT {most})
    UNION ALL
    (SELECT FROM {schema}.events WHERE state IN ('pending', 'retrying') AND crashes >= 2 LIMIT {most})
) AS q

-- name: failures
-- What is in trouble, by cause: of the newest $1 that are in each such state, and of those that are marked.
-- The latter by the effect that they are marked for: its state, and what was said of it.
SELECT source, type, cause, effect, effect_state, effect_error, count(*) AS n, min(received_at) AS first_at, max(seen) AS last_at,
       (array_agg(id ORDER BY id DESC))[1] AS sample,
       count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'needs_review') AS needs_review,
       count(*) FILTER (WHERE state = 'retrying') AS retrying,
       count(*) FILTER (WHERE attention OR alert IS NOT NULL) AS marked
FROM (
    SELECT e.id, e.source, e.type, e.state, e.attention, e.alert,
           CASE WHEN f.name IS NULL THEN coalesce(e.cause, left(e.reason, 200), left(e.alert, 200), '') END AS cause,
           f.name AS effect, f.state AS effect_state, f.said AS effect_error,
           e.received_at, coalesce(e.finished_at, e.claimed_at, e.received_at) AS seen
    FROM (
        (SELECT * FROM {schema}.events WHERE state = 'failed' ORDER BY id DESC LIMIT $1::integer)
        UNION ALL
        (SELECT * FROM {schema}.events
         WHERE state = 'needs_review' AND state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded')
         ORDER BY id DESC LIMIT $1::integer)
        UNION ALL
        (SELECT * FROM {schema}.events WHERE state = 'retrying' ORDER BY id DESC LIMIT $1::integer)
        UNION ALL
        (SELECT * FROM {schema}.events WHERE (attention OR alert IS NOT NULL)
         AND state NOT IN ('failed', 'needs_review', 'retrying') ORDER BY id DESC LIMIT $1::integer)
    ) AS e
    LEFT JOIN LATERAL (
        SELECT m.name, m.state, coalesce(m.alert, m.error) AS said FROM {schema}.effects AS m
        WHERE m.event_id = e.id AND e.attention AND e.state NOT IN ('failed', 'needs_review', 'retrying')
          AND (m.alert IS NOT NULL OR m.state = 'unknown' OR (m.kind = 'later' AND m.state = 'failed'))
        ORDER BY m.alert IS NULL, m.state DESC, m.identity LIMIT 1
    ) AS f ON true
    WHERE e.source = coalesce($2::text, e.source)
) AS e
GROUP BY source, type, cause, effect, effect_state, effect_error

-- name: lag
-- What is not settled yet, by kind, from the indexes of the queue.
SELECT source, type, count(*) FILTER (WHERE state = 'pending') AS pending,
       count(*) FILTER (WHERE state = 'retrying') AS retrying,
       count(*) FILTER (WHERE state = 'processing') AS processing,
       extract(epoch FROM {clock} - min(due_at))::float8 AS overdue,
       extract(epoch FROM {clock} - min(received_at))::float8 AS age
FROM (
    SELECT source, type, state, due_at, received_at FROM {schema}.events
    WHERE state IN ('pending', 'retrying') AND crashes < 2
    UNION ALL
    SELECT source, type, state, due_at, received_at FROM {schema}.events
    WHERE state IN ('pending', 'retrying') AND crashes >= 2
    UNION ALL
    SELECT source, type, state, due_at, received_at FROM {schema}.events
    WHERE leased_until IS NOT NULL AND state = 'processing'
) AS q
GROUP BY source, type ORDER BY age DESC

-- name: by_source
-- Events by source and state: reads all of them.
SELECT source, state, count(*) AS n FROM {schema}.events GROUP BY source, state ORDER BY source, state

-- name: begin
-- The server stops what takes longer than the limit, in milliseconds.
BEGIN READ ONLY

-- name: limit
SELECT set_config('statement_timeout', $1, true)
