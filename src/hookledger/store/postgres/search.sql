-- PostgreSQL's dialect of searching; {schema} and {clock} as in queries.sql. A stream gives events in the order of an
-- index, so that streams can be merged and left early: $1 and $2 are the ids that they stay below and do not pass.

-- name: stream_all
SELECT e.* FROM {schema}.events e WHERE e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_kind
SELECT e.* FROM {schema}.events e
WHERE e.source = {0}::text AND e.type = {1}::text AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_object
SELECT e.* FROM {schema}.events e WHERE e.object_id = {0}::text AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_cause
SELECT e.* FROM {schema}.events e WHERE e.cause = {0}::text AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_marked
SELECT e.* FROM {schema}.events e
WHERE (e.attention OR e.alert IS NOT NULL) AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_id
-- One that its identity led to; those of other origins are in stream_key.
SELECT e.* FROM {schema}.events e
WHERE e.id = {0}::uuid AND e.key_origin IN ('signed_id', 'unsigned_id') AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_effect
-- One that an effect's identity led to.
SELECT e.* FROM {schema}.events e WHERE e.id = {0}::uuid AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_key
SELECT e.* FROM {schema}.events e
WHERE e.key = {0}::text AND e.key_origin NOT IN ('signed_id', 'unsigned_id') AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_state
SELECT e.* FROM {schema}.events e WHERE e.state = {state} AND e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_waiting
-- Sorted, as the index is not by id: asked for only while the queue is short. OFFSET 0, because the planner would
-- rather walk all the ids until it has met enough that wait.
SELECT e.* FROM (SELECT * FROM {schema}.events WHERE state IN ('pending', 'retrying') AND crashes < 2
                 AND state = 'pending' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_waiting_alone
SELECT e.* FROM (SELECT * FROM {schema}.events WHERE state IN ('pending', 'retrying') AND crashes >= 2
                 AND state = 'pending' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_leased
SELECT e.* FROM (SELECT * FROM {schema}.events WHERE leased_until IS NOT NULL AND state = 'processing' OFFSET 0) AS e
WHERE e.id < $1::uuid AND e.id >= $2::uuid

-- name: stream_admitted
-- Admitted events from the id {0} on, which a search by time would pass over.
SELECT e.* FROM {schema}.events e WHERE e.key_origin = 'admitted' AND e.id >= {0}::uuid AND e.id < {1}::uuid

-- name: stretch
-- The newest {wanted} of what is found among the newest {most} of the streams; if there are fewer, `edge` is the last
-- that was looked at, or null when that was all. One row at least. One statement, so that nothing moves between its
-- halves. The numbers are written out: a plan for any number would be one for many, which sorts.
WITH found AS MATERIALIZED (
    SELECT e.*, 1 + (SELECT count(*) FROM {schema}.deliveries d
                     WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries
    FROM ({streams} ORDER BY id DESC LIMIT {most}) AS e
    WHERE {where}
    ORDER BY e.id DESC LIMIT {wanted}
)
SELECT f.*, CASE WHEN (SELECT count(*) FROM found) < {wanted}
                 THEN (SELECT id FROM ({streams}) AS e ORDER BY id DESC OFFSET {most} - 1 LIMIT 1) END AS edge
FROM (SELECT 1) AS one LEFT JOIN found AS f ON true ORDER BY f.id DESC

-- name: count
-- How many there are.
SELECT count(*) AS n FROM ({streams}) AS e WHERE {where}

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

-- name: owners
-- The events of identities.
SELECT event_id FROM {schema}.identities WHERE identity = ANY($1::bytea[]) AND fingerprint <> '' LIMIT 100

-- name: effect_owners
-- The events of effects.
SELECT DISTINCT event_id FROM {schema}.effects WHERE identity = ANY($1::bytea[])

-- name: queue_length
-- How many wait, counted no further than one beyond $1.
SELECT count(*) AS n FROM (
    (SELECT FROM {schema}.events WHERE state IN ('pending', 'retrying') AND crashes < 2 LIMIT $1::integer + 1)
    UNION ALL
    (SELECT FROM {schema}.events WHERE state IN ('pending', 'retrying') AND crashes >= 2 LIMIT $1::integer + 1)
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
