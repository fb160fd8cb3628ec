-- PostgreSQL's dialect of pauses; {schema} and {clock} as in queries.sql.

-- name: begin
-- What was decided must be on disk.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '10s'

-- name: pause
-- Nothing comes back when it is paused already.
INSERT INTO {schema}.pauses (source, pattern, since, actor, reason) VALUES ($1, $2, {clock}, $3, $4)
ON CONFLICT DO NOTHING
RETURNING *

-- name: resume
-- Nothing comes back when it is not paused.
DELETE FROM {schema}.pauses WHERE source = $1 AND pattern = $2 RETURNING source

-- name: note
-- What an operator did.
INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
VALUES ($1, {clock}, $2, $3, $4, $5, $6, $7)

-- name: pauses
-- All of them.
SELECT * FROM {schema}.pauses ORDER BY source, pattern
