-- Reconciliation, in SQLite's dialect. One writer at a time: whoever is in a transaction decides alone.

-- name: known
-- Who took an identity.
SELECT i.event_id, e.state FROM identities i LEFT JOIN events e ON e.id = i.event_id WHERE i.identity = ?1

-- name: abandoned
-- Comparisons of a source that nobody ended. One that failed and waits to be tried again has said so.
SELECT id, slot, actor, reason, counts FROM reconciliations
WHERE source = ?1 AND finished_at IS NULL AND problem IS NULL AND leased_until < ?2 ORDER BY id

-- name: close
-- It is not taken up.
UPDATE reconciliations SET finished_at = ?4, leased_until = NULL, problem = ?2, counts = ?3 WHERE id = ?1

-- name: count
-- How far it has come, with what was recorded.
UPDATE reconciliations SET counts = ?3 WHERE id = ?1 AND fence = ?2 AND finished_at IS NULL RETURNING id

-- name: begin_run
-- A new comparison; one that nobody ended is taken up after its lease, with its own window.
INSERT INTO reconciliations (id, source, slot, since, until, actor, reason, started_at, leased_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8 + ?9)
ON CONFLICT (source, slot) DO UPDATE
SET fence = fence + 1, started_at = excluded.started_at, leased_until = excluded.leased_until,
    actor = excluded.actor, reason = excluded.reason, problem = NULL, counts = NULL
WHERE finished_at IS NULL AND leased_until < excluded.started_at
RETURNING id, fence, since, until

-- name: renew
-- Only by whoever has it.
UPDATE reconciliations SET leased_until = ?3 WHERE id = ?1 AND fence = ?2 AND finished_at IS NULL RETURNING id

-- name: end
-- Over; or, with ?6, to be tried again after so long.
UPDATE reconciliations
SET counts = ?3, problem = ?4, finished_at = iif(?6 IS NULL, ?5, NULL), leased_until = ?5 + ?6
WHERE id = ?1 AND fence = ?2 AND finished_at IS NULL
RETURNING source, actor, reason

-- name: last
-- Of each source.
SELECT id, source, slot, since, until, actor, reason, fence, started_at, leased_until, finished_at, problem, counts
FROM (SELECT *, row_number() OVER (PARTITION BY source ORDER BY started_at DESC, rowid DESC) AS n FROM reconciliations)
WHERE n = 1 ORDER BY source

-- name: note_action
-- What was done, by whom and why.
INSERT INTO actions (at, id, name, actor, reason, event_id, subject, from_state, to_state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: last_repair
-- Of one object, and how it stands.
SELECT r.event_id, e.state FROM repairs r LEFT JOIN events e ON e.id = r.event_id
WHERE r.source = ?1 AND r.object_id = ?2

-- name: repair_object
-- This is the last one now.
INSERT INTO repairs (source, object_id, event_id) VALUES (?1, ?2, ?3)
ON CONFLICT (source, object_id) DO UPDATE SET event_id = excluded.event_id

-- name: state
-- Of one event.
SELECT state FROM events WHERE id = ?1
