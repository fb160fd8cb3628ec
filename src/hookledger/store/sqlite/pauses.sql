-- SQLite's dialect of pauses. ?1 is always the present.

-- name: pause
-- Nothing comes back when it is paused already.
INSERT INTO pauses (source, pattern, since, actor, reason) VALUES (?2, ?3, ?1, ?4, ?5)
ON CONFLICT DO NOTHING
RETURNING source

-- name: resume
-- Nothing comes back when it is not paused.
DELETE FROM pauses WHERE source = ?1 AND pattern = ?2 RETURNING source

-- name: note
-- What an operator did.
INSERT INTO actions (at, name, id, subject, from_state, to_state, actor, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: pauses
-- All of them.
SELECT * FROM pauses ORDER BY source, pattern
