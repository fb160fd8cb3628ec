-- SQLite's dialect of export and import. ?1 is always the present, as in queries.sql, where a query needs it.

-- name: identities
-- No index leads from an event to its identities: the intake would pay for it.
SELECT * FROM identities WHERE event_id IN (SELECT unhex(value) FROM json_each(?1))

-- name: events
-- The event.
SELECT * FROM events WHERE id = ?1

-- name: deliveries
-- Its arrivals: the one that it names, and the later ones.
SELECT d.* FROM events AS e JOIN deliveries AS d ON d.request_id = e.request_id AND d.item = e.item
WHERE e.id = ?1
UNION
SELECT * FROM deliveries WHERE event_id = ?1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled')

-- name: requests
-- The bytes of these.
SELECT * FROM requests WHERE id IN (SELECT unhex(value) FROM json_each(?1))

-- name: attempts
-- Its executions.
SELECT * FROM attempts WHERE event_id = ?1 ORDER BY claim

-- name: effects
-- Its effects.
SELECT * FROM effects WHERE event_id = ?1 ORDER BY created_at, identity

-- name: effect_calls
-- Their calls.
SELECT c.* FROM effects AS f JOIN effect_calls AS c ON c.identity = f.identity
WHERE f.event_id = ?1 ORDER BY c.identity, c.number

-- name: actions
-- What operators did to it.
SELECT * FROM actions WHERE event_id = ?1 ORDER BY at, id

-- name: known
-- Whether an event is here, or was.
SELECT EXISTS (SELECT 1 FROM events WHERE id = ?1) OR EXISTS (SELECT 1 FROM pruned WHERE event_id = ?1)

-- name: savepoint
-- Each line is taken whole or not at all.
SAVEPOINT line

-- name: back
-- Not this one.
ROLLBACK TO SAVEPOINT line

-- name: know_source
-- So that keys can be looked for in it.
INSERT INTO sources (name) VALUES (?1) ON CONFLICT DO NOTHING

-- name: add
-- One row, unless it is here. The words in braces are a table of ours, its columns and a parameter for each.
INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING 1

-- name: note
-- Who took it in, and why; in which state it was where it comes from.
INSERT INTO actions (id, at, name, actor, reason, event_id, from_state, to_state)
VALUES (?2, ?1, 'import', ?3, ?4, ?5, ?6, ?7)
