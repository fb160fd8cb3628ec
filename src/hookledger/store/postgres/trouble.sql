-- PostgreSQL's dialect of what an operator must see; {schema} and {clock} as in queries.sql, {columns} as in ledger.sql.
-- Rows are compared, and sorted by, as a whole, as in search.sql.

-- name: event_tally
-- How many events are in a state of the index, counted no further than $2, and the oldest of them.
SELECT n.n, o.id AS oldest, o.received_at AS since
FROM (SELECT count(*) AS n FROM (
          SELECT FROM {schema}.events
          WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded') AND state = $1::text
          LIMIT $2::integer) AS s) AS n
CROSS JOIN (SELECT * FROM {schema}.events
            WHERE state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded')
              AND (state, id) >= ($1::text, '00000000-0000-0000-0000-000000000000'::uuid)
              AND (state, id) <= ($1::text, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
            ORDER BY state, id LIMIT 1) AS o

-- name: event_alerts
-- Events with an alert, the newest first.
SELECT id, state, alert FROM {schema}.events
WHERE (attention OR alert IS NOT NULL) AND alert IS NOT NULL ORDER BY id DESC LIMIT $1::integer

-- name: effect
-- An effect `e`, with the times of its newest call.
SELECT {columns}, e.planned_at, {clock} AS now, c.started_at AS called_at, c.ended_at AS told_at
FROM ({0}) AS e LEFT JOIN {schema}.effect_calls AS c ON c.identity = e.identity AND c.number = e.number

-- name: effect_alerts
-- Those with an alert, among the newest marked events.
SELECT f.* FROM (SELECT id FROM {schema}.events
                 WHERE (attention OR alert IS NOT NULL) AND attention ORDER BY id DESC LIMIT {looked_at}) AS m
CROSS JOIN LATERAL (SELECT * FROM {schema}.effects WHERE event_id = m.id OFFSET 0) AS f
WHERE f.alert IS NOT NULL ORDER BY f.event_id DESC, f.identity DESC LIMIT {most}

-- name: open
-- Those in one of the states of the index, the newest event first, from before ($1, $2).
SELECT * FROM {schema}.effects
WHERE state IN ('planned', 'failed', 'unknown') AND (state, event_id, identity) < ($3::text, $1::uuid, $2::bytea)
  AND (state, event_id, identity) >= ($3::text, '00000000-0000-0000-0000-000000000000'::uuid, ''::bytea){also}
ORDER BY state DESC, event_id DESC, identity DESC LIMIT {most}

-- name: started
-- The same for calls in flight: sorted, as they are few. OFFSET 0 keeps the planner from walking all effects instead.
SELECT * FROM (SELECT * FROM {schema}.effects WHERE leased_until IS NOT NULL AND state = $3::text OFFSET 0) AS s
WHERE (event_id, identity) < ($1::uuid, $2::bytea){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: over
-- The same for what is done or cancelled, among all effects.
SELECT * FROM {schema}.effects
WHERE state = $3::text AND event_id <= $1::uuid AND (event_id, identity) < ($1::uuid, $2::bytea){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: of_name
 AND name = {0}::text

-- name: of_source
 AND source = {0}::text

-- name: oldest
-- The first of a state. {also}: of the outbox only.
SELECT * FROM {schema}.effects
WHERE state IN ('planned', 'failed', 'unknown')
  AND (state, event_id, identity) >= ($1::text, '00000000-0000-0000-0000-000000000000'::uuid, ''::bytea)
  AND (state, event_id) <= ($1::text, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid){also}
ORDER BY state, event_id, identity LIMIT {most}

-- name: of_outbox
 AND kind = 'later'

-- name: effect_tally
-- How many effects are in a state of the index, counted no further than {most}.
SELECT count(*) AS n FROM (
    SELECT FROM {schema}.effects
    WHERE state IN ('planned', 'failed', 'unknown') AND state = $1::text{also} LIMIT {most}) AS s

-- name: overdue
-- Outbox entries that are due for longer than $1, counted no further than {most}, and the one due for longest.
WITH late AS MATERIALIZED (
    SELECT due_at, event_id FROM {schema}.effects
    WHERE state IN ('planned', 'failed', 'unknown') AND state = 'planned'
      AND due_at < {clock} - make_interval(secs => $1) LIMIT {most}
)
SELECT (SELECT count(*) FROM late) AS n, due_at AS since, event_id AS oldest FROM late ORDER BY due_at LIMIT 1
