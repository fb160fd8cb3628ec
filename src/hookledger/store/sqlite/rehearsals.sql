-- SQLite's dialect of rehearsals. ?1 is the present moment.

-- name: ask
-- absent -> asked. The event is only read.
INSERT INTO rehearsals (id, event_id, source, type, actor, reason, repeat, state, asked_at, expires_at)
SELECT ?2, id, source, type, ?6, ?7, ?8, 'asked', ?1, ?1 + ?9 FROM events
WHERE id = ?3 AND state = ?4 AND claim = ?5
  AND state IN ('processed', 'skipped', 'failed', 'discarded', 'needs_review')
RETURNING id

-- name: note
-- Its audit row: nothing changed.
INSERT INTO actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
VALUES (?2, ?1, 'rehearse', ?5, ?6, ?3, ?7, ?4, ?4)

-- name: forget
-- The oldest that are over, beyond the number that is kept.
DELETE FROM rehearsals
WHERE state NOT IN ('asked', 'running') AND id IN (SELECT id FROM rehearsals ORDER BY id DESC LIMIT -1 OFFSET ?1)

-- name: asked
-- Those that a worker may take.
SELECT id, source, type FROM rehearsals
WHERE state IN ('asked', 'running') AND state = 'asked' AND expires_at > ?1 ORDER BY id LIMIT 100

-- name: take
-- asked -> running, once and never again: the worker's name is the fence.
UPDATE rehearsals SET state = 'running', worker = ?3, started_at = ?1, leased_until = ?1 + ?4
WHERE id = ?2 AND state = 'asked' AND expires_at > ?1
RETURNING *

-- name: finish
-- running -> done, failed.
UPDATE rehearsals SET state = ?4, finished_at = ?1, leased_until = NULL, result = ?5
WHERE id = ?2 AND worker = ?3 AND state = 'running'
RETURNING id

-- name: lapse
-- asked -> expired, running -> failed, where the time is up. (?2: what is said of those that nobody took, ?3: of the
-- others.)
UPDATE rehearsals
SET state = CASE state WHEN 'asked' THEN 'expired' ELSE 'failed' END, finished_at = ?1, leased_until = NULL,
    result = CASE state WHEN 'asked' THEN ?2 ELSE ?3 END
WHERE state IN ('asked', 'running') AND coalesce(leased_until, expires_at) <= ?1

-- name: get
-- One of them.
SELECT * FROM rehearsals WHERE id = ?1
