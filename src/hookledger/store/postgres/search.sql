-- PostgreSQL's dialect of searching; {schema} and {clock} as in queries.sql. A stream is a range of one index, the newest
-- first: numbers of it, ids, and no more than {most}. $1 and $2 are the ids that it stays below and does not pass. Pairs
-- are compared, and sorted by, as a whole, because only the index meant can do that: told that they are equal, the
-- planner would often rather walk all the ids and pick, which is good for frequent values and bad for rare ones.

-- name: stream_all
SELECT {n} AS stream, e.id FROM {schema}.events e WHERE e.id < $1::uuid AND e.id >= $2::uuid
ORDER BY e.id DESC LIMIT {most}

-- name: stream_kind
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE (e.source, e.type, e.id) < ({0}::text, {1}::text, $1::uuid)
  AND (e.source, e.type, e.id) >= ({0}::text, {1}::text, $2::uuid)
ORDER BY e.source DESC, e.type DESC, e.id DESC LIMIT {most}

-- name: stream_object
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE e.object_id IS NOT NULL AND (e.object_id, e.id) < ({0}::text, $1::uuid)
  AND (e.object_id, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.object_id DESC, e.id DESC LIMIT {most}

-- name: stream_cause
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE e.cause IS NOT NULL AND (e.cause, e.id) < ({0}::text, $1::uuid) AND (e.cause, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.cause DESC, e.id DESC LIMIT {most}

-- name: stream_marked
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE (e.attention OR e.alert IS NOT NULL) AND e.id < $1::uuid AND e.id >= $2::uuid
ORDER BY e.id DESC LIMIT {most}

-- name: stream_id
-- One that an identity led to.
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE e.id = {0}::uuid AND e.id < $1::uuid AND e.id >= $2::uuid LIMIT {most}

-- name: stream_key
-- Of the origins whose identities are not made of the key as it is shown.
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE e.key_origin NOT IN ('signed_id', 'unsigned_id')
  AND (e.key, e.id) < ({0}::text, $1::uuid) AND (e.key, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.key DESC, e.id DESC LIMIT {most}

-- name: stream_state
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE e.state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded')
  AND (e.state, e.id) < ({0}::text, $1::uuid) AND (e.state, e.id) >= ({0}::text, $2::uuid)
ORDER BY e.state DESC, e.id DESC LIMIT {most}

-- name: stream_waiting
-- Sorted, as the index is not by id: asked for only while the queue is short. OFFSET 0, because the planner would
-- rather walk all the ids until it has met enough that wait.
SELECT {n} AS stream, e.id FROM (
    SELECT id FROM {schema}.events
    WHERE state IN ('pending', 'retrying') AND crashes < 2 AND state = 'pending' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid ORDER BY e.id DESC LIMIT {most}

-- name: stream_waiting_alone
SELECT {n} AS stream, e.id FROM (
    SELECT id FROM {schema}.events
    WHERE state IN ('pending', 'retrying') AND crashes >= 2 AND state = 'pending' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid ORDER BY e.id DESC LIMIT {most}

-- name: stream_leased
SELECT {n} AS stream, e.id FROM (
    SELECT id FROM {schema}.events WHERE leased_until IS NOT NULL AND state = 'processing' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid ORDER BY e.id DESC LIMIT {most}

-- name: stream_admitted
-- Admitted events from the id {0} on, which a search by time would pass over.
SELECT {n} AS stream, e.id FROM {schema}.events e
WHERE e.key_origin = 'admitted' AND e.id >= {0}::uuid AND e.id < {1}::uuid ORDER BY e.id DESC LIMIT {most}

-- name: one_stream
-- In brackets, so that each has its own order and limit.
({0})

-- name: no_limit
ALL

-- name: rows
-- Those of the ids in $1 for which it holds, the newest first, no more than $2.
SELECT e.*, 1 + (SELECT count(*) FROM {schema}.deliveries d
                 WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries
FROM (
    SELECT e.* FROM unnest($1::uuid[]) AS i (id)
    CROSS JOIN LATERAL (SELECT * FROM {schema}.events WHERE id = i.id OFFSET 0) AS e
    WHERE {where}
    ORDER BY e.id DESC LIMIT $2::integer
) AS e ORDER BY e.id DESC

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
SELECT source, type, cause, count(*) AS n, min(seen) AS first_at, max(seen) AS last_at,
       (array_agg(id ORDER BY id DESC))[1] AS sample,
       count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'needs_review') AS needs_review,
       count(*) FILTER (WHERE state = 'retrying') AS retrying,
       count(*) FILTER (WHERE attention OR alert IS NOT NULL) AS marked
FROM (
    SELECT e.id, e.source, e.type, e.state, e.attention, e.alert,
           coalesce(e.cause, left(e.reason, 200),
                    CASE WHEN e.attention THEN 'an effect failed, or may have happened' END, left(e.alert, 200), '')
               AS cause,
           coalesce(e.finished_at, e.claimed_at, e.received_at) AS seen
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
    WHERE e.source = coalesce($2::text, e.source)
) AS e
GROUP BY source, type, cause ORDER BY n DESC, last_at DESC

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
