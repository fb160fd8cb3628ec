-- SQLite's dialect of what operators do to whole events. ?1 is always the present, as in queries.sql.

-- name: replay
-- processed, skipped, failed, discarded, needs_review -> pending, as a new run with a fresh budget; an event that crashed
-- twice goes on being processed alone. ?4: the claim number that was seen, or null.
UPDATE events
SET state = 'pending', run = run + 1, claim = claim + 1, due_at = ?1, finished_at = NULL, attempts = 0, snoozes = 0,
    crashes = min(crashes, 2), run_started_at = ?1, reason = NULL, cause = NULL, alert = NULL
WHERE id = ?2 AND state = ?3 AND claim = coalesce(?4, claim) AND emptied_at IS NULL
  AND state IN ('processed', 'skipped', 'failed', 'discarded', 'needs_review')
RETURNING run

-- name: retry
-- failed, retrying, needs_review -> pending. The budget starts anew; an event that crashed twice goes on being processed
-- alone. ?4 as for `replay`.
UPDATE events
SET state = 'pending', claim = claim + 1, due_at = ?1, finished_at = NULL, attempts = 0, snoozes = 0,
    crashes = min(crashes, 2), run_started_at = ?1, reason = NULL, cause = NULL, alert = NULL
WHERE id = ?2 AND state = ?3 AND claim = coalesce(?4, claim) AND emptied_at IS NULL AND state IN ('failed', 'retrying', 'needs_review')
RETURNING run

-- name: discard
-- pending, retrying, failed, needs_review -> discarded.
UPDATE events
SET state = 'discarded', claim = claim + 1, due_at = NULL, finished_at = ?1, reason = substr(?5, 1, 500), cause = NULL,
    alert = NULL
WHERE id = ?2 AND state = ?3 AND claim = coalesce(?4, claim) AND state IN ('pending', 'retrying', 'failed', 'needs_review')
RETURNING run

-- name: repeat
-- done, cancelled -> planned, to be done when a handler asks for it: as a call that did not happen, which `event.call`
-- makes and `event.later` leaves to the outbox. What was done gets a new generation, be it that a call came back done
-- after it was cancelled; what never was keeps its own, so that the remote still knows the key.
UPDATE effects AS e
SET kind = 'call', state = 'planned', generation = e.generation + w.done, fence = e.fence + 1, tries = 0,
    planned_at = ?1, due_at = NULL, leased_until = NULL, lane = NULL, place = NULL, finished_at = NULL, result = NULL,
    error = NULL, decided = iif(w.done, NULL, e.decided), decided_number = iif(w.done, NULL, e.decided_number)
FROM (SELECT o.state = 'done' OR EXISTS (
          SELECT 1 FROM effect_calls c
          WHERE c.identity = o.identity AND c.generation = o.generation AND c.outcome = 'done') AS done
      FROM effects o WHERE o.identity = ?2) AS w
WHERE e.identity = ?2 AND e.fence = ?3 AND e.event_id = ?4 AND e.kind <> 'once' AND e.state IN ('done', 'cancelled')
  AND e.alert IS NULL
RETURNING generation

-- name: restores_known
-- Whether the schema knows of restores: not before 11.
SELECT 1 FROM sqlite_schema WHERE name = 'restores'

-- name: skip_used
-- Keys of generations that are not on record may have been used between a backup and its restore.
UPDATE effects SET generation = max(generation, (SELECT count(*) FROM restores) * ?2 + 1) WHERE identity = ?1

-- name: make_way
-- A `once` that is to be true once more: its row stays as evidence, under an identity that nobody asks for.
UPDATE effects SET identity = ?5, fence = fence + 1, error = ?6
WHERE identity = ?2 AND fence = ?3 AND event_id = ?4 AND kind = 'once' AND fence = 0 AND ?1 IS NOT NULL
RETURNING state

-- name: note
-- What an operator did.
INSERT INTO actions (at, name, id, event_id, subject, from_state, to_state, actor, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: found
-- An event as it is now.
SELECT state, run, claim, emptied_at FROM events WHERE id = ?1

-- name: pruned
-- That it was pruned.
SELECT * FROM pruned WHERE event_id = ?1

-- name: last_action
-- What was done to it last.
SELECT * FROM actions WHERE event_id = ?1 ORDER BY at DESC, id DESC LIMIT 1
