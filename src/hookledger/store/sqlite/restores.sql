-- SQLite's dialect of restores. ?1 is always the present.

-- name: known
-- Whether the schema knows of restores: not before 14.
SELECT 1 FROM sqlite_schema WHERE name = 'restores'

-- name: open
-- The gap, if there is one.
SELECT * FROM restores WHERE closed_at IS NULL

-- name: begin
-- A restore whose gap is open.
INSERT INTO restores (id, backup_at, restored_at) VALUES (?2, ?3, ?1)
RETURNING *

-- name: doubtful
-- What was planned or started, in the order of identities.
SELECT identity, state, generation, number, event_id FROM effects
WHERE identity > ?2 AND kind <> 'once' AND state IN ('planned', 'started') AND created_at <= ?1
ORDER BY identity LIMIT ?3

-- name: doubt
-- planned, started -> unknown. What the outbox has of them it settles by their policies.
UPDATE effects
SET state = 'unknown', fence = fence + 1, number = number + (state = 'planned'), leased_until = NULL,
    due_at = iif(kind = 'later', ?1, NULL), error = ?3
WHERE identity = ?2

-- name: doubted
-- That was all of them.
UPDATE restores SET doubted_at = ?1 WHERE id = ?2 AND doubted_at IS NULL

-- name: close
-- Reconciled.
UPDATE restores SET closed_at = ?1 WHERE closed_at IS NULL AND doubted_at IS NOT NULL RETURNING *

-- name: may_be_done
-- Whether a call may have been made in the gap of the restore at ?1: one of an effect of which nothing is on record, or of one that the
-- backup knows as refused. Not once a call is on record since that is not refused: it was withheld, and decided upon.
SELECT (?3 = 1 OR b.number IS NOT NULL) AND NOT EXISTS (
    SELECT 1 FROM effect_calls c
    WHERE c.identity = ?2 AND c.generation = ?3 AND c.number < ?4 AND c.number > coalesce(b.number, 0)
      AND c.outcome IS NOT 'refused') AS may
FROM (SELECT max(number) AS number FROM effect_calls
      WHERE identity = ?2 AND generation = ?3 AND number < ?4 AND outcome = 'refused' AND started_at < ?1) AS b

-- name: note
-- What an operator did.
INSERT INTO actions (at, name, id, subject, from_state, to_state, actor, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
