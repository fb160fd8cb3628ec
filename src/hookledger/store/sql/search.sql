-- A stream is a range of one index, the newest first: no more than {most} of it, from :low to below :high. {what}: all
-- columns, or the id. Rows are compared, and sorted by, as a whole, because only the index meant can do that: told that
-- columns are equal, PostgreSQL's planner would often rather walk all the ids and pick, which is good for frequent values
-- and bad for rare ones.

-- name: within
-- The ids of a stream.
w.id < :high::uuid AND w.id >= :low::uuid

-- name: newest
-- The newest of it.
ORDER BY w.id DESC LIMIT {most}

-- name: stream_all
SELECT {what} FROM {schema}.events AS w WHERE {within} {newest}

-- name: stream_kind
SELECT {what} FROM {schema}.events AS w {indexed events_of_kind}
WHERE (w.source, w.type, w.id) < (:stream_source::text, :stream_type::text, :high::uuid)
  AND (w.source, w.type, w.id) >= (:stream_source::text, :stream_type::text, :low::uuid)
ORDER BY w.source DESC, w.type DESC, w.id DESC LIMIT {most}

-- name: stream_object
SELECT {what} FROM {schema}.events AS w {indexed events_of_object}
WHERE w.object_id IS NOT NULL AND (w.object_id, w.id) < (:stream_value::text, :high::uuid)
  AND (w.object_id, w.id) >= (:stream_value::text, :low::uuid)
ORDER BY w.object_id DESC, w.id DESC LIMIT {most}

-- name: stream_account
SELECT {what} FROM {schema}.events AS w {indexed events_of_account}
WHERE w.account IS NOT NULL AND (w.account, w.id) < (:stream_value::text, :high::uuid)
  AND (w.account, w.id) >= (:stream_value::text, :low::uuid)
ORDER BY w.account DESC, w.id DESC LIMIT {most}

-- name: stream_cause
SELECT {what} FROM {schema}.events AS w {indexed events_by_cause}
WHERE w.cause IS NOT NULL AND (w.cause, w.id) < (:stream_value::text, :high::uuid)
  AND (w.cause, w.id) >= (:stream_value::text, :low::uuid)
ORDER BY w.cause DESC, w.id DESC LIMIT {most}

-- name: stream_key
-- Of the origins whose identities are not made of the key as it is shown.
SELECT {what} FROM {schema}.events AS w {indexed events_of_key}
WHERE w.key_origin NOT IN ('signed_id', 'unsigned_id')
  AND (w.key, w.id) < (:stream_value::text, :high::uuid) AND (w.key, w.id) >= (:stream_value::text, :low::uuid)
ORDER BY w.key DESC, w.id DESC LIMIT {most}

-- name: stream_state
SELECT {what} FROM {schema}.events AS w
WHERE {in_few_states} AND (w.state, w.id) < (:stream_value::text, :high::uuid)
  AND (w.state, w.id) >= (:stream_value::text, :low::uuid)
ORDER BY w.state DESC, w.id DESC LIMIT {most}

-- name: stream_state (sqlite)
-- Differs because SQLite would look up each of the index's states.
SELECT {what} FROM {schema}.events AS w {indexed events_in_state}
WHERE {in_few_states} AND w.state = :stream_value AND {within} {newest}

-- name: stream_marked
-- Those that `stream_state` does not find as failed or in review.
SELECT {what} FROM {schema}.events AS w {indexed events_marked}
WHERE {marked} AND w.state NOT IN ('failed', 'needs_review') AND {within} {newest}

-- name: stream_id
-- One that an identity led to.
SELECT {what} FROM {schema}.events AS w WHERE w.id = :stream_value::uuid AND {within} {newest}

-- name: stream_stages
-- The stages of one that an identity led to; `stream_key` has those of other origins.
SELECT {what} FROM {schema}.events AS w {indexed events_stages}
WHERE w.parent = :stream_value::uuid AND w.parent IS NOT NULL AND w.key_origin IN ('signed_id', 'unsigned_id')
  AND {within} {newest}

-- name: stream_waiting
-- Sorted, as the index is not by id: asked for only while the queue is short. PostgreSQL's planner would rather walk all
-- the ids until it has met enough that wait.
SELECT {what} FROM (
    SELECT * FROM {schema}.events {indexed events_waiting}
    WHERE state IN ('pending', 'retrying') AND crashes < 2 AND state = 'pending' {offset_0}) AS w
WHERE {within} {newest}

-- name: stream_waiting_alone
SELECT {what} FROM (
    SELECT * FROM {schema}.events {indexed events_waiting_alone}
    WHERE state IN ('pending', 'retrying') AND crashes >= 2 AND state = 'pending' {offset_0}) AS w
WHERE {within} {newest}

-- name: stream_leased
SELECT {what} FROM (
    SELECT * FROM {schema}.events {indexed events_leased}
    WHERE leased_until IS NOT NULL AND state = 'processing' {offset_0}) AS w
WHERE {within} {newest}

-- name: stream_accepted
-- Events accepted from quarantine, which a search by time would miss.
SELECT {what} FROM {schema}.events AS w {indexed events_from_quarantine_ids}
WHERE w.key_origin = 'quarantine' AND {within} {newest}

-- name: one_stream
-- With the place of each in it: the last that a stream may give says that there may be more behind it.
SELECT s.*, row_number() OVER () AS place FROM ({stream}) AS s

-- name: page_of_one
-- Those of a stream for which it holds, in its order, no more than :limit; and the last it may give, be it one or not.
-- The limit within the stream keeps the condition out of it: it is walked until there are enough, and no further.
SELECT e.*, {deliveries} FROM (
    SELECT e.*, ({where}) AS holds, e.place = {most} AS ends, e.place AS looked FROM ({streams}) AS e
    WHERE ({where}) OR e.place = {most} LIMIT :limit::integer
) AS e

-- name: each_event
-- The events of streams, looked up one by one.
CROSS JOIN LATERAL (SELECT * FROM {schema}.events WHERE id = i.id OFFSET 0) AS e

-- name: each_event (sqlite)
-- Differs because SQLite keeps the order of a CROSS JOIN, and has no LATERAL.
CROSS JOIN {schema}.events AS e ON e.id = i.id

-- name: page_of_many
-- The same of several streams, which give ids.
SELECT e.*, {deliveries} FROM (
    SELECT e.*, ({where}) AS holds, i.place = {most} AS ends, i.looked
    FROM (SELECT m.*, row_number() OVER (ORDER BY m.id DESC) AS looked FROM ({streams}) AS m ORDER BY m.id DESC) AS i
    {each_event}
    WHERE ({where}) OR i.place = {most} ORDER BY i.id DESC LIMIT :limit::integer
) AS e

-- name: count_of_streams
-- How many there are for which it holds.
SELECT count(*) AS n FROM ({streams}) AS i {ordered} JOIN {schema}.events AS e ON e.id = i.id WHERE {where}

-- name: kinds_between
-- Each source and type from one pair to another: a walk from kind to kind along the index.
WITH RECURSIVE kinds (source, type) AS (
    SELECT * FROM (
        SELECT source, type FROM {schema}.events {indexed events_of_kind}
        WHERE (source, type) >= (:source::text, :type::text) AND (source, type) < (:last_source::text, :last_type::text)
        ORDER BY source, type LIMIT 1) AS first
    UNION ALL
    SELECT n.source, n.type FROM kinds AS k JOIN {schema}.events AS n ON n.id = (
        SELECT id FROM {schema}.events {indexed events_of_kind}
        WHERE {later_type} AND (source, type) < (:last_source::text, :last_type::text)
        ORDER BY source, type LIMIT 1)
)
SELECT source, type FROM kinds LIMIT :limit::integer

-- name: sources
-- Every source that was ever served.
SELECT name FROM {schema}.sources ORDER BY name

-- name: owners_of_keys
-- The events of identities; nothing for a key that came from elsewhere.
SELECT event_id FROM {schema}.identities
WHERE identity IN {list :identities bytea} AND fingerprint <> :nothing::bytea LIMIT :limit

-- name: owners_of_effects
SELECT DISTINCT event_id FROM {schema}.effects WHERE identity IN {list :identities bytea}

-- name: queue_length
-- How many wait, counted no further than {most}.
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM {schema}.events {indexed events_waiting}
            WHERE state IN ('pending', 'retrying') AND crashes < 2 LIMIT {most}) AS q)
     + (SELECT count(*) FROM (
            SELECT 1 FROM {schema}.events {indexed events_waiting_alone}
            WHERE state IN ('pending', 'retrying') AND crashes >= 2 LIMIT {most}) AS q) AS n

-- name: newest_failures
-- Of the newest events in a state of trouble: no more than :most of each.
ORDER BY id DESC LIMIT :most::integer

-- name: effect_marked_for
-- The effect that an event `x` is marked for.
SELECT m.identity FROM {schema}.effects AS m {indexed effects_of_event}
WHERE m.event_id = x.id AND x.attention AND x.state NOT IN ('failed', 'needs_review', 'retrying')
  AND (m.alert IS NOT NULL OR m.state = 'unknown' OR (m.kind = 'later' AND m.state = 'failed'))
ORDER BY m.alert IS NULL, m.state DESC, m.identity LIMIT 1

-- name: join_effect_marked_for
LEFT JOIN LATERAL (SELECT * FROM {schema}.effects WHERE identity = ({effect_marked_for}) OFFSET 0) AS f ON true

-- name: join_effect_marked_for (sqlite)
-- Differs because SQLite has no LATERAL, without which PostgreSQL may join the whole table.
LEFT JOIN {schema}.effects AS f ON f.identity = ({effect_marked_for})

-- name: failures
-- Failing and marked events, by cause. Events that are only marked are grouped by the effect that they are marked
-- for: its state and error.
SELECT source, type, cause, effect, effect_state, effect_error, count(*) AS n, min(received_at) AS first_at,
       max(seen_at) AS last_at, max(id::text)::uuid AS sample_id,
       count(*) FILTER (WHERE state = 'failed') AS failed,
       count(*) FILTER (WHERE state = 'needs_review') AS needs_review,
       count(*) FILTER (WHERE state = 'retrying') AS retrying,
       count(*) FILTER (WHERE {marked}) AS marked
FROM (
    SELECT x.id, x.source, x.type, x.state, x.attention, x.alert,
           CASE WHEN f.name IS NULL
                THEN coalesce(x.cause, substr(x.reason, 1, 200), substr(x.alert, 1, 200), '') END AS cause,
           f.name AS effect, f.state AS effect_state, coalesce(f.alert, f.error) AS effect_error,
           x.received_at, coalesce(x.finished_at, x.claimed_at, x.received_at) AS seen_at
    FROM (
        SELECT * FROM (SELECT * FROM {schema}.events {indexed events_in_state}
                       WHERE {in_few_states} AND state = 'failed' {newest_failures}) AS a
        UNION ALL
        SELECT * FROM (SELECT * FROM {schema}.events {indexed events_in_state}
                       WHERE {in_few_states} AND state = 'needs_review' {newest_failures}) AS b
        UNION ALL
        SELECT * FROM (SELECT * FROM {schema}.events {indexed events_in_state}
                       WHERE {in_few_states} AND state = 'retrying' {newest_failures}) AS c
        UNION ALL
        SELECT * FROM (SELECT * FROM {schema}.events {indexed events_marked}
                       WHERE {marked} AND state NOT IN ('failed', 'needs_review', 'retrying') {newest_failures}) AS d
    ) AS x
    {join_effect_marked_for}
    WHERE x.source = coalesce(:source::text, x.source)
) AS e
GROUP BY source, type, cause, effect, effect_state, effect_error

-- name: lag
-- What is not settled yet, by kind, from the indexes of the queue.
SELECT source, type, version, count(*) FILTER (WHERE state = 'pending') AS pending,
       count(*) FILTER (WHERE state = 'retrying') AS retrying,
       count(*) FILTER (WHERE state = 'processing') AS processing,
       {elapsed {now} - min(CASE WHEN due_at < {never} THEN due_at END)} AS overdue, {elapsed {now} - min(received_at)} AS age
FROM (
    SELECT source, type, version, state, due_at, received_at FROM {schema}.events {indexed events_waiting}
    WHERE state IN ('pending', 'retrying') AND crashes < 2
    UNION ALL
    SELECT source, type, version, state, due_at, received_at FROM {schema}.events {indexed events_waiting_alone}
    WHERE state IN ('pending', 'retrying') AND crashes >= 2
    UNION ALL
    SELECT source, type, version, state, due_at, received_at FROM {schema}.events {indexed events_leased}
    WHERE leased_until IS NOT NULL AND state = 'processing'
) AS q
GROUP BY source, type, version ORDER BY age DESC

-- name: count_by_source
-- Events by source and state: reads all of them.
SELECT source, state, count(*) AS n FROM {schema}.events GROUP BY source, state ORDER BY source, state
