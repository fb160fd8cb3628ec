-- SQLite's dialect of the circuits. ?1 is always the present, as in queries.sql.

-- name: columns
-- A circuit `c`, and what the clock makes of it.
c.downstream, c.state, c.failures, c.reason, c.changed_at,
iif(c.state <> 'closed' AND NOT c.tripped, max(c.retry_at - ?1, 0) / 1e6, NULL) AS retry_in

-- name: circuits
-- Every downstream that ever failed or was tripped.
SELECT {columns} FROM circuits c ORDER BY c.downstream

-- name: circuit
-- One.
SELECT {columns} FROM circuits c WHERE c.downstream = ?2

-- name: fail
-- One more failure: closed -> open at the threshold (?3), half_open -> open at once; each opening in a row waits twice
-- as long as the one before, up to 16 times. A call that was under way when it opened is counted only.
INSERT INTO circuits AS c (downstream, state, failures, openings, retry_at, reason, changed_at)
VALUES (?2, iif(?3 <= 1, 'open', 'closed'), 1, iif(?3 <= 1, 1, 0), iif(?3 <= 1, ?1 + ?4, NULL), ?5, ?1)
ON CONFLICT (downstream) DO UPDATE
SET failures = c.failures + 1,
    state = iif(c.state = 'half_open' OR c.failures + 1 >= ?3, 'open', c.state),
    openings = c.openings + (c.state = 'half_open' OR (c.state = 'closed' AND c.failures + 1 >= ?3)),
    retry_at = iif(c.state = 'half_open' OR (c.state = 'closed' AND c.failures + 1 >= ?3),
                   ?1 + ?4 * (1 << min(c.openings, 4)), c.retry_at),
    changed_at = iif(c.state = 'closed' AND c.failures + 1 >= ?3, ?1, c.changed_at),
    reason = iif(c.tripped, c.reason, excluded.reason)

-- name: try
-- open -> half_open after the cool-down, for one; again for another when that one's time is up.
UPDATE circuits
SET state = 'half_open', retry_at = ?1 + ?3
WHERE downstream = ?2 AND NOT tripped AND state IN ('open', 'half_open') AND retry_at <= ?1
RETURNING downstream

-- name: close
-- A call came back: -> closed, and nothing is counted any more. One tripped by hand stays.
UPDATE circuits
SET changed_at = iif(state = 'closed', changed_at, ?1), state = 'closed', failures = 0, openings = 0, retry_at = NULL,
    reason = NULL
WHERE downstream = ?2 AND NOT tripped AND (state <> 'closed' OR failures > 0 OR openings > 0)

-- name: trip
-- -> open until an operator resets it.
INSERT INTO circuits (downstream, state, tripped, reason, changed_at) VALUES (?2, 'open', 1, ?3, ?1)
ON CONFLICT (downstream) DO UPDATE
SET state = 'open', tripped = 1, retry_at = NULL, reason = excluded.reason, changed_at = excluded.changed_at

-- name: reset
-- -> closed.
UPDATE circuits
SET state = 'closed', tripped = 0, failures = 0, openings = 0, retry_at = NULL, reason = NULL, changed_at = ?1
WHERE downstream = ?2

-- name: note_action
-- What an operator did.
INSERT INTO actions (at, name, id, subject, from_state, to_state, actor, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
