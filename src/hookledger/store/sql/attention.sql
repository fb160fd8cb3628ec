-- What an operator must see. Rows are compared, and sorted by, as a whole, as in search.sql.

-- name: oldest_in_state
SELECT * FROM {schema}.events
WHERE {in_few_states} AND (state, id) >= (:state::text, :first::uuid) AND (state, id) <= (:state::text, :last::uuid)
ORDER BY state, id LIMIT 1

-- name: oldest_in_state (sqlite)
-- Differs because SQLite would look up each of the index's states.
SELECT * FROM {schema}.events {indexed events_in_state} WHERE {in_few_states} AND state = :state ORDER BY id LIMIT 1

-- name: event_tally
-- How many events are in a state of the index, counted no further than :most, and the oldest of them.
SELECT n.n, o.id AS oldest_id, o.received_at AS since
FROM (SELECT count(*) AS n FROM (
          SELECT 1 FROM {schema}.events {indexed events_in_state} WHERE {in_few_states} AND state = :state::text
          LIMIT :most::integer) AS s) AS n
CROSS JOIN ({oldest_in_state}) AS o

-- name: event_tally_by_source
-- The same by source.
SELECT source, count(*) AS n FROM (
    SELECT source FROM {schema}.events {indexed events_in_state} WHERE {in_few_states} AND state = :state::text
    LIMIT :most::integer) AS s
GROUP BY source

-- name: queue_due
-- For how long an event of each source is due, if one is.
WITH RECURSIVE {kinds_waiting}
SELECT source, {elapsed {now} - min(CASE WHEN due_at < {never} THEN due_at END)} AS overdue
FROM (
    SELECT source, due_at FROM kinds
    UNION ALL
    SELECT * FROM (SELECT source, due_at FROM {schema}.events {indexed events_waiting_alone}
                   WHERE state IN ('pending', 'retrying') AND crashes >= 2
                   ORDER BY source, type, version, due_at LIMIT :most::integer) AS alone
) AS q
GROUP BY source

-- name: queue_of_source
-- How many events of a source wait, counted no further than :most.
SELECT state, count(*) AS n FROM (
    SELECT * FROM (SELECT state FROM {schema}.events {indexed events_waiting}
                   WHERE source = :source::text AND state IN ('pending', 'retrying') AND crashes < 2
                   ORDER BY type, version, due_at LIMIT :most::integer) AS w
    UNION ALL
    SELECT * FROM (SELECT state FROM {schema}.events {indexed events_waiting_alone}
                   WHERE source = :source::text AND state IN ('pending', 'retrying') AND crashes >= 2
                   ORDER BY type, version, due_at LIMIT :most::integer) AS a
) AS q
GROUP BY state

-- name: processing_by_source
-- How many events are handled now.
SELECT source, count(*) AS n FROM (
    SELECT source FROM {schema}.events {indexed events_leased}
    WHERE leased_until IS NOT NULL AND state = 'processing' ORDER BY leased_until LIMIT :most::integer) AS p
GROUP BY source

-- name: event_alerts
SELECT id, source, state, alert FROM {schema}.events {indexed events_marked}
WHERE {marked} AND alert IS NOT NULL ORDER BY id DESC LIMIT :limit::integer

-- name: listed_effects
-- Effects, with the times of their newest calls.
SELECT {effect_columns}, e.planned_at, {now} AS now_at, c.started_at AS called_at, c.ended_at
FROM ({effects}) AS e LEFT JOIN {schema}.effect_calls AS c ON c.identity = e.identity AND c.number = e.number

-- name: each_effect
-- The effects of marked events, looked up one by one.
CROSS JOIN LATERAL (SELECT * FROM {schema}.effects WHERE event_id = m.id OFFSET 0) AS f

-- name: each_effect (sqlite)
-- Differs because SQLite keeps the order of a CROSS JOIN, and has no LATERAL.
CROSS JOIN {schema}.effects AS f {indexed effects_of_event} ON f.event_id = m.id

-- name: effects_alerted
-- Those with an alert, among the newest marked events.
SELECT f.* FROM (SELECT id FROM {schema}.events {indexed events_marked}
                 WHERE {marked} AND attention ORDER BY id DESC LIMIT {looked_at}) AS m
{each_effect}
WHERE f.alert IS NOT NULL ORDER BY f.event_id DESC, f.identity DESC LIMIT {most}

-- name: effects_open
-- Those in one of the states of the index, the newest event first, from before (:event_id, :identity).
SELECT * FROM {schema}.effects
WHERE state IN ('planned', 'failed', 'unknown')
  AND (state, event_id, identity) < (:state::text, :event_id::uuid, :identity::bytea)
  AND (state, event_id, identity) >= (:state::text, :first::uuid, :nothing::bytea){also}
ORDER BY state DESC, event_id DESC, identity DESC LIMIT {most}

-- name: effects_open (sqlite)
-- Differs because SQLite would look up each of the index's states.
SELECT * FROM {schema}.effects {indexed effects_open}
WHERE state IN ('planned', 'failed', 'unknown') AND state = :state AND (event_id, identity) < (:event_id, :identity){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: effects_started
-- The same for calls in flight: sorted, as they are few. PostgreSQL's planner would rather walk all effects.
SELECT * FROM (SELECT * FROM {schema}.effects {indexed effects_leased}
               WHERE leased_until IS NOT NULL AND state = :state::text {offset_0}) AS s
WHERE (event_id, identity) < (:event_id::uuid, :identity::bytea){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: effects_ended
-- The same for what is done or cancelled, among all effects.
SELECT * FROM {schema}.effects {indexed effects_of_event}
WHERE state = :state::text AND event_id <= :event_id::uuid
  AND (event_id, identity) < (:event_id::uuid, :identity::bytea){also}
ORDER BY event_id DESC, identity DESC LIMIT {most}

-- name: effects_oldest
-- The first of a state.
SELECT * FROM {schema}.effects
WHERE state IN ('planned', 'failed', 'unknown')
  AND (state, event_id, identity) >= (:state::text, :first::uuid, :nothing::bytea)
  AND (state, event_id) <= (:state::text, :last::uuid){also}
ORDER BY state, event_id, identity LIMIT {most}

-- name: effects_oldest (sqlite)
-- Differs because SQLite would look up each of the index's states.
SELECT * FROM {schema}.effects {indexed effects_open}
WHERE state IN ('planned', 'failed', 'unknown') AND state = :state{also} ORDER BY event_id, identity LIMIT {most}

-- name: effect_of_name
AND name = :name::text

-- name: effect_of_source
AND source = :source::text

-- name: effect_of_outbox
AND kind = 'later'

-- name: effect_tally
-- How many effects are in a state of the index, counted no further than {most}.
SELECT count(*) AS n FROM (
    SELECT 1 FROM {schema}.effects {indexed effects_open}
    WHERE state IN ('planned', 'failed', 'unknown') AND state = :state::text{also} LIMIT {most}) AS s

-- name: effects_overdue
-- Outbox entries that are due for longer than :late, counted no further than {most}, and the one due for longest.
WITH late AS MATERIALIZED (
    SELECT due_at, event_id FROM {schema}.effects {indexed effects_open}
    WHERE state IN ('planned', 'failed', 'unknown') AND state = 'planned'
      AND due_at < {now} - {seconds :late::float8} LIMIT {most}
)
SELECT (SELECT count(*) FROM late) AS n, due_at AS since, event_id AS oldest_id FROM late ORDER BY due_at LIMIT 1
