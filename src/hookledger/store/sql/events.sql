-- name: find_events
-- By id or the beginning of one.
SELECT id, parent FROM {schema}.events WHERE id BETWEEN :first AND :last ORDER BY id LIMIT 10

-- name: find_shown
-- By the key as it is shown, of the origins whose identities are not made of it: such as a composite, and what was
-- accepted from quarantine.
SELECT id FROM {schema}.events {indexed events_of_key}
WHERE key = :key AND key_origin NOT IN ('signed_id', 'unsigned_id') AND parent IS NULL ORDER BY id LIMIT 10

-- name: event
SELECT e.*, {deliveries} FROM {schema}.events AS e WHERE e.id = :id

-- name: deliveries_of_event
-- Its arrivals: the first, which the event names itself, and the later ones.
SELECT d.*, EXISTS (SELECT 1 FROM {schema}.requests AS r WHERE r.id = d.request_id AND r.emptied_at IS NULL) AS kept
FROM (
    SELECT * FROM {schema}.deliveries WHERE request_id = :request_id AND item = :item
    UNION ALL
    SELECT * FROM {schema}.deliveries WHERE event_id = :id AND outcome NOT IN ('accepted', 'invalid', 'reconciled')
) AS d ORDER BY received_at, request_id, item LIMIT 1000

-- name: attempts_of_events
SELECT * FROM {schema}.attempts WHERE event_id IN {list :events uuid} ORDER BY event_id, claim

-- name: last_traceparent
-- The span of the last attempt that had one.
SELECT traceparent FROM {schema}.attempts WHERE event_id = :id AND traceparent IS NOT NULL ORDER BY claim DESC LIMIT 1

-- name: effects_of_events
-- What they brought about; of each the first 500.
SELECT {effect_columns} FROM (
    SELECT f.*, row_number() OVER (PARTITION BY f.event_id ORDER BY f.created_at, f.identity) AS nth
    FROM {schema}.effects AS f {indexed effects_of_event} WHERE f.event_id IN {list :events uuid}
) AS e WHERE e.nth <= 500 ORDER BY e.event_id, e.nth

-- name: calls_of_effects
SELECT * FROM {schema}.effect_calls WHERE identity IN {list :identities bytea} ORDER BY identity, number LIMIT 10000

-- name: actions_of_event
SELECT * FROM {schema}.actions WHERE event_id = :id ORDER BY at, id

-- name: count_by_state
SELECT state, count(*) AS n FROM {schema}.events GROUP BY state

-- name: count_deliveries
SELECT outcome, count(*) AS n FROM {schema}.deliveries GROUP BY outcome
