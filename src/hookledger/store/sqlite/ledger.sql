-- SQLite's dialect of the effect ledger. ?1 is always the present, as in queries.sql; {effect_columns} is that of store/sql/columns.sql.
-- Differs from PostgreSQL's because every write runs alone: one row a statement, and nothing to lock.

-- name: start
-- absent -> started. Only for an event that its worker still holds.
INSERT INTO effects (identity, kind, source, name, key, event_id, claim, arguments, arguments_digest, repeat,
                     downstream, state, fence, number, tries, planned_at, created_at, leased_until, worker)
SELECT ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 'started', 1, 1, 1, ?1, ?1, ?1 + ?14, ?2
FROM events WHERE id = ?8 AND claim = ?9 AND state = 'processing'
ON CONFLICT DO NOTHING
RETURNING identity, number, generation

-- name: call
-- A call that is about to be made.
INSERT INTO effect_calls (started_at, worker, identity, number, generation) VALUES (?, ?, ?, ?, ?)

-- name: effect
SELECT {effect_columns} FROM effects e WHERE e.identity = ?2

-- name: standing
-- An effect that a call came back for.
SELECT identity, event_id, source, name, key, generation, kind, repeat, state, number, decided, decided_number, result
FROM effects WHERE identity = ?1

-- name: end_call
-- How a call ended. Keeps an outcome that is known; with ?6, an unknown one too.
UPDATE effect_calls SET ended_at = ?1, outcome = ?4, error = ?5
WHERE identity = ?2 AND number = ?3 AND (outcome IS NULL OR (outcome = 'unknown' AND NOT ?6))
RETURNING generation, ended_at

-- name: calls
SELECT * FROM effect_calls WHERE identity = ?1 ORDER BY number LIMIT 10000

-- name: move
-- What the end of a call means for its effect, as call_outcome.py decides.
UPDATE effects
SET state = ?3, fence = fence + 1, result = coalesce(result, ?4), error = iif(state = ?3, error, ?6),
    alert = iif(?7 IS NULL, alert, concat_ws(char(10), alert, ?7)),
    leased_until = iif(?3 = 'started', leased_until, NULL),
    due_at = iif(kind = 'later' AND ?3 IN ('planned', 'unknown'), ?1 + ?5, NULL),
    finished_at = iif(?3 IN ('done', 'cancelled'), coalesce(finished_at, ?1), NULL)
WHERE identity = ?2

-- name: waiting
-- The events in review, of one source or of any, whose reason has this prefix. There are few.
SELECT id FROM events INDEXED BY events_in_review
WHERE state = 'needs_review' AND (?1 IS NULL OR source = ?1 OR substr(source, 1, length(?1) + 1) = ?1 || '/')
  AND substr(reason, 1, length(?2)) = ?2 ORDER BY id

-- name: attend
-- Whether an operator should look at its effects: one failed for good, has an unknown outcome, be it that its policy
-- is still at it, or an alert. A refused call is its handler's business.
UPDATE events AS v SET attention = w.wanted
FROM (
    SELECT EXISTS (
        SELECT 1 FROM effects e
        WHERE e.event_id = ?1 AND (
            e.alert IS NOT NULL OR e.state = 'unknown' OR (e.kind = 'later' AND e.state = 'failed'))) AS wanted
) AS w
WHERE v.id = ?1 AND v.attention <> w.wanted

-- name: due
-- The first due effects of one name, outside lanes.
SELECT identity, due_at FROM effects INDEXED BY effects_due
WHERE name = ?2 AND lane IS NULL AND due_at <= ?1 ORDER BY due_at LIMIT ?3

-- name: heads
-- The first entries of the lanes of one name, from ?4 on, that can be claimed: a walk from lane to lane, to the first
-- entry of each that has a time. It must be due, and all entries before it must be finished.
WITH RECURSIVE walk (lane) AS (
    SELECT min(lane) FROM effects INDEXED BY effects_due_in_lane
    WHERE name = ?2 AND lane >= ?4 AND lane IS NOT NULL AND due_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(n.lane) FROM effects n INDEXED BY effects_due_in_lane
            WHERE n.name = ?2 AND n.lane > walk.lane AND n.lane IS NOT NULL AND n.due_at IS NOT NULL)
    FROM walk WHERE walk.lane IS NOT NULL
)
SELECT e.identity, e.due_at
FROM walk CROSS JOIN effects e ON e.rowid = (
    SELECT n.rowid FROM effects n INDEXED BY effects_due_in_lane
    WHERE n.name = ?2 AND n.lane = walk.lane AND n.lane IS NOT NULL AND n.due_at IS NOT NULL ORDER BY n.place LIMIT 1)
WHERE e.due_at <= ?1 AND NOT EXISTS (
    SELECT 1 FROM effects p INDEXED BY effects_in_lane
    WHERE p.name = ?2 AND p.lane = e.lane AND p.place < e.place AND p.lane IS NOT NULL AND p.finished_at IS NULL)
LIMIT ?3

-- name: claim
-- planned -> started; a due unknown effect is leased only.
UPDATE effects
SET state = iif(state = 'planned', 'started', 'unknown'), fence = fence + 1, number = number + (state = 'planned'),
    tries = tries + (state = 'planned'), worker = ?3, leased_until = ?1 + ?4, due_at = NULL
WHERE identity = ?2 AND due_at IS NOT NULL
