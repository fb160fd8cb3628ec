-- PostgreSQL's dialect of export and import; {schema} and {clock} as in queries.sql.

-- name: begin
-- What was taken in is on disk. Intake may hold one of the identities for a moment.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s'

-- name: look
-- One snapshot for all rows of an event: it may be settled or pruned at this moment.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: identities
-- No index leads from an event to its identities: the intake would pay for it.
SELECT * FROM {schema}.identities WHERE event_id = ANY($1::uuid[])

-- name: events
-- The event.
SELECT * FROM {schema}.events WHERE id = $1

-- name: deliveries
-- Its arrivals: the one that it names, and the later ones.
SELECT d.* FROM {schema}.events AS e JOIN {schema}.deliveries AS d ON d.request_id = e.request_id AND d.item = e.item
WHERE e.id = $1
UNION
SELECT * FROM {schema}.deliveries WHERE event_id = $1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled')

-- name: requests
-- The bytes of these.
SELECT * FROM {schema}.requests WHERE id = ANY($1::uuid[])

-- name: attempts
-- Its executions.
SELECT * FROM {schema}.attempts WHERE event_id = $1 ORDER BY claim

-- name: effects
-- Its effects.
SELECT * FROM {schema}.effects WHERE event_id = $1 ORDER BY created_at, identity

-- name: effect_calls
-- Their calls.
SELECT c.* FROM {schema}.effects AS f JOIN {schema}.effect_calls AS c ON c.identity = f.identity
WHERE f.event_id = $1 ORDER BY c.identity, c.number

-- name: actions
-- What operators did to it.
SELECT * FROM {schema}.actions WHERE event_id = $1 ORDER BY at, id

-- name: known
-- Whether an event is here, or was.
SELECT EXISTS (SELECT FROM {schema}.events WHERE id = $1) OR EXISTS (SELECT FROM {schema}.pruned WHERE event_id = $1)

-- name: savepoint
-- Each line is taken whole or not at all.
SAVEPOINT line

-- name: back
-- Not this one.
ROLLBACK TO SAVEPOINT line

-- name: know_source
-- So that keys can be looked for in it.
INSERT INTO {schema}.sources (name) VALUES ($1) ON CONFLICT DO NOTHING

-- name: add
-- One row, unless it is here. The words in braces are a table of ours, its columns and a parameter for each.
INSERT INTO {schema}.{table} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING 1

-- name: note
-- Who took it in, and why; in which state it was where it comes from.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, from_state, to_state)
VALUES ($1, {clock}, 'import', $2, $3, $4, $5, $6)
