-- SQLite's dialect of searching. A stream is a range of one index, the newest first, and no more than {most} of it. ?1 and ?2 are the ids that it stays below and does not pass.
-- Differs from PostgreSQL's because SQLite is told which index to use: it keeps no statistics of its own accord.

-- name: stream_all
SELECT {what} FROM events w
WHERE w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_kind
SELECT {what} FROM events w INDEXED BY events_of_kind
WHERE w.source = {0} AND w.type = {1} AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_object
SELECT {what} FROM events w INDEXED BY events_of_object
WHERE w.object_id = {0} AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_account
SELECT {what} FROM events w INDEXED BY events_of_account
WHERE w.account = {0} AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_cause
SELECT {what} FROM events w INDEXED BY events_by_cause
WHERE w.cause = {0} AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_marked
-- Those that `stream_state` does not find as failed or in review.
SELECT {what} FROM events w INDEXED BY events_marked
WHERE (w.attention = 1 OR w.alert IS NOT NULL) AND w.state NOT IN ('failed', 'needs_review') AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_id
-- One that an identity led to.
SELECT {what} FROM events w
WHERE w.id = {0} AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_key
-- Of the origins whose identities are not made of the key as it is shown.
SELECT {what} FROM events w INDEXED BY events_of_key
WHERE w.key = {0} AND w.key_origin NOT IN ('signed_id', 'unsigned_id') AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_state
SELECT {what} FROM events w INDEXED BY events_in_state
WHERE w.state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded') AND w.state = {0}
  AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_waiting
-- Sorted, as the index is not by id: asked for only while the queue is short.
SELECT {what} FROM events w INDEXED BY events_waiting
WHERE w.state IN ('pending', 'retrying') AND w.crashes < 2 AND w.state = 'pending' AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_waiting_alone
SELECT {what} FROM events w INDEXED BY events_waiting_alone
WHERE w.state IN ('pending', 'retrying') AND w.crashes >= 2 AND w.state = 'pending' AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_leased
SELECT {what} FROM events w INDEXED BY events_leased
WHERE w.leased_until IS NOT NULL AND w.state = 'processing' AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: stream_admitted
-- Admitted events, which a search by time would pass over.
SELECT {what} FROM events w INDEXED BY events_admitted_ids
WHERE w.key_origin = 'admitted' AND w.id < ?1 AND w.id >= ?2
ORDER BY w.id DESC LIMIT {most}

-- name: one_stream
-- With the place of each in it: the last that a stream may give says that there may be more behind it.
SELECT s.*, row_number() OVER () AS place FROM ({0}) AS s

-- name: no_limit
-1

-- name: page_of_one
-- Those of a stream for which it holds, in its order, no more than ?3; and the last it may give, be it one or not.
SELECT p.*, 1 + (SELECT count(*) FROM deliveries d
                 WHERE d.event_id = p.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries
FROM (
    SELECT e.*, ({where}) AS holds, e.place = {most} AS ends, e.place AS looked_at FROM ({streams}) AS e
    WHERE ({where}) OR e.place = {most} LIMIT ?3
) AS p

-- name: page_of_many
-- The same of several streams, which give ids. They are merged, then looked up one by one.
SELECT p.*, 1 + (SELECT count(*) FROM deliveries d
                 WHERE d.event_id = p.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries
FROM (
    SELECT e.*, ({where}) AS holds, i.place = {most} AS ends, i.looked_at
    FROM (SELECT m.*, row_number() OVER (ORDER BY m.id DESC) AS looked_at FROM ({streams}) AS m) AS i
    CROSS JOIN events AS e ON e.id = i.id
    WHERE ({where}) OR i.place = {most} ORDER BY i.id DESC LIMIT ?3
) AS p

-- name: count
-- How many of the streams there are for which it holds.
SELECT count(*) AS n FROM ({streams}) AS i CROSS JOIN events AS e ON e.id = i.id WHERE {where}

-- name: count_all
-- The same of all events.
SELECT count(*) AS n FROM events AS e WHERE {where}

-- name: kinds
-- Each source and type from one pair to another: a walk from kind to kind along the index.
WITH RECURSIVE kinds (source, type) AS (
    SELECT * FROM (SELECT source, type FROM events INDEXED BY events_of_kind
                   WHERE (source, type) >= (?1, ?2) AND (source, type) < (?3, ?4) ORDER BY source, type LIMIT 1)
    UNION ALL
    SELECT n.source, n.type FROM kinds k JOIN events n ON n.rowid = (
        SELECT rowid FROM events INDEXED BY events_of_kind
        WHERE (source, type) > (k.source, k.type) AND (source, type) < (?3, ?4) ORDER BY source, type LIMIT 1)
)
SELECT source, type FROM kinds LIMIT ?5

-- name: sources
-- All that a receiver served.
SELECT name FROM sources

-- name: owners
-- The event of an identity.
SELECT event_id FROM identities WHERE identity = ?1 AND fingerprint <> x''

-- name: effect_owners
-- The event of an effect.
SELECT event_id FROM effects WHERE identity = ?1

-- name: queue_length
-- How many wait, counted no further than {most}.
SELECT (SELECT count(*) FROM (SELECT 1 FROM events INDEXED BY events_waiting
                              WHERE state IN ('pending', 'retrying') AND crashes < 2 LIMIT {most}))
     + (SELECT count(*) FROM (SELECT 1 FROM events INDEXED BY events_waiting_alone
                              WHERE state IN ('pending', 'retrying') AND crashes >= 2 LIMIT {most})) AS n

-- name: failures
-- What is in trouble, by cause: of the newest ?1 that are in each such state, and of those that are marked.
-- The latter by the effect that they are marked for: its state, and what was said of it.
SELECT source, type, cause, effect, effect_state, effect_error, count(*) AS n, min(received_at) AS first_at, max(seen) AS last_at,
       max(id) AS sample,
       sum(state = 'failed') AS failed, sum(state = 'needs_review') AS needs_review,
       sum(state = 'retrying') AS retrying, sum(attention = 1 OR alert IS NOT NULL) AS marked
FROM (
    SELECT x.id, x.source, x.type, x.state, x.attention, x.alert,
           iif(f.name IS NULL, coalesce(x.cause, substr(x.reason, 1, 200), substr(x.alert, 1, 200), ''), NULL) AS cause,
           f.name AS effect, f.state AS effect_state, coalesce(f.alert, f.error) AS effect_error,
           x.received_at, coalesce(x.finished_at, x.claimed_at, x.received_at) AS seen
    FROM (
        SELECT * FROM (SELECT * FROM events INDEXED BY events_in_state
            WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded') AND state = 'failed'
            ORDER BY id DESC LIMIT ?1)
        UNION ALL
        SELECT * FROM (SELECT * FROM events INDEXED BY events_in_state
            WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded') AND state = 'needs_review'
            ORDER BY id DESC LIMIT ?1)
        UNION ALL
        SELECT * FROM (SELECT * FROM events INDEXED BY events_in_state
            WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded') AND state = 'retrying'
            ORDER BY id DESC LIMIT ?1)
        UNION ALL
        SELECT * FROM (SELECT * FROM events INDEXED BY events_marked
            WHERE (attention = 1 OR alert IS NOT NULL) AND state NOT IN ('failed', 'needs_review', 'retrying')
            ORDER BY id DESC LIMIT ?1)
    ) AS x
    LEFT JOIN effects f ON f.identity = (
        SELECT m.identity FROM effects m INDEXED BY effects_of_event
        WHERE m.event_id = x.id AND x.attention = 1 AND x.state NOT IN ('failed', 'needs_review', 'retrying')
          AND (m.alert IS NOT NULL OR m.state = 'unknown' OR (m.kind = 'later' AND m.state = 'failed'))
        ORDER BY m.alert IS NULL, m.state DESC, m.identity LIMIT 1)
    WHERE x.source = coalesce(?2, x.source)
) AS e
GROUP BY source, type, cause, effect, effect_state, effect_error

-- name: lag
-- What is not settled yet, by kind, from the indexes of the queue; ?1 is the present.
SELECT source, type, sum(state = 'pending') AS pending, sum(state = 'retrying') AS retrying,
       sum(state = 'processing') AS processing,
       (?1 - min(due_at)) / 1e6 AS overdue, (?1 - min(received_at)) / 1e6 AS age
FROM (
    SELECT source, type, state, due_at, received_at FROM events INDEXED BY events_waiting
    WHERE state IN ('pending', 'retrying') AND crashes < 2
    UNION ALL
    SELECT source, type, state, due_at, received_at FROM events INDEXED BY events_waiting_alone
    WHERE state IN ('pending', 'retrying') AND crashes >= 2
    UNION ALL
    SELECT source, type, state, due_at, received_at FROM events INDEXED BY events_leased
    WHERE leased_until IS NOT NULL AND state = 'processing'
) AS q
GROUP BY source, type ORDER BY age DESC

-- name: by_source
-- Events by source and state: reads all of them.
SELECT source, state, count(*) AS n FROM events GROUP BY source, state ORDER BY source, state
