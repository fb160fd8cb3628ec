-- SQLite's dialect of what an operator must see. {columns} is that of ledger.sql, and ?1 always the present there.
-- Differs from PostgreSQL's because SQLite is told which index to use: it keeps no statistics of its own accord.

-- name: event_tally
-- How many events are in a state of the index, counted no further than ?2, and the oldest of them.
SELECT n.n, o.id AS oldest, o.received_at AS since
FROM (SELECT count(*) AS n FROM (
          SELECT 1 FROM events INDEXED BY events_in_state
          WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded') AND state = ?1 LIMIT ?2)) AS n
CROSS JOIN (SELECT * FROM events INDEXED BY events_in_state
            WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded') AND state = ?1
            ORDER BY id LIMIT 1) AS o

-- name: event_alerts
-- Events with an alert, the newest first.
SELECT id, state, alert FROM events INDEXED BY events_marked
WHERE (attention = 1 OR alert IS NOT NULL) AND alert IS NOT NULL ORDER BY id DESC LIMIT ?1

-- name: effect
-- An effect `e`, with the times of its newest call.
SELECT {columns}, e.planned_at, ?1 AS now, c.started_at AS called_at, c.ended_at AS told_at
FROM ({0}) AS e LEFT JOIN effect_calls c ON c.identity = e.identity AND c.number = e.number

-- name: effect_alerts
-- Those with an alert, among the newest marked events.
SELECT f.* FROM (SELECT id FROM events INDEXED BY events_marked
                 WHERE (attention = 1 OR alert IS NOT NULL) AND attention = 1 ORDER BY id DESC LIMIT {looked_at}) AS m
CROSS JOIN effects f INDEXED BY effects_of_event ON f.event_id = m.id
WHERE f.alert IS NOT NULL ORDER BY f.event_id DESC, f.identity DESC LIMIT {most}

-- name: open
-- Those in one of the states of the index, the newest event first, from before (?2, ?3).
SELECT * FROM effects INDEXED BY effects_open
WHERE state IN ('planned', 'failed', 'unknown') AND state = ?4 AND (event_id, identity) < (?2, ?3){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: started
-- The same for calls in flight: sorted, as they are few.
SELECT * FROM effects INDEXED BY effects_leased
WHERE leased_until IS NOT NULL AND state = ?4 AND (event_id, identity) < (?2, ?3){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: over
-- The same for what is done or cancelled, among all effects.
SELECT * FROM effects INDEXED BY effects_of_event
WHERE state = ?4 AND event_id <= ?2 AND (event_id, identity) < (?2, ?3){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: of_name
 AND name = {0}

-- name: of_source
 AND source = {0}

-- name: oldest
-- The first of a state. {also}: of the outbox only.
SELECT * FROM effects INDEXED BY effects_open
WHERE state IN ('planned', 'failed', 'unknown') AND state = ?2{also} ORDER BY event_id, identity LIMIT {most}

-- name: of_outbox
 AND kind = 'later'

-- name: effect_tally
-- How many effects are in a state of the index, counted no further than {most}.
SELECT count(*) AS n FROM (
    SELECT 1 FROM effects INDEXED BY effects_open
    WHERE state IN ('planned', 'failed', 'unknown') AND state = ?1{also} LIMIT {most})

-- name: overdue
-- Outbox entries that are due for longer than ?2, counted no further than {most}, and the one due for longest.
SELECT count(*) AS n, min(due_at) AS since, event_id AS oldest FROM (
    SELECT due_at, event_id FROM effects INDEXED BY effects_open
    WHERE state IN ('planned', 'failed', 'unknown') AND state = 'planned' AND due_at < ?1 - ?2 LIMIT {most})
