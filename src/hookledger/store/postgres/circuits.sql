-- PostgreSQL's dialect of the circuits; {schema} and {clock} as in queries.sql.

-- name: columns
-- A circuit `c`, and what the clock makes of it.
c.downstream, c.state, c.failures, c.reason, c.changed_at,
CASE WHEN c.state <> 'closed' AND NOT c.tripped
     THEN greatest(extract(epoch FROM c.retry_at - {clock})::float8, 0) END AS retry_in

-- name: circuits
-- Every downstream that ever failed or was tripped.
SELECT {columns} FROM {schema}.circuits AS c ORDER BY c.downstream

-- name: fail
-- One more failure: closed -> open at the threshold ($2), half_open -> open at once; each opening in a row waits twice
-- as long as the one before, up to 16 times. A call that was under way when it opened is counted only.
INSERT INTO {schema}.circuits AS c (downstream, state, failures, openings, retry_at, reason, changed_at)
SELECT $1, CASE WHEN $2::integer <= 1 THEN 'open' ELSE 'closed' END, 1, CASE WHEN $2 <= 1 THEN 1 ELSE 0 END,
       CASE WHEN $2 <= 1 THEN now + make_interval(secs => $3) END, $4, now
FROM {clock} AS clock (now)
ON CONFLICT (downstream) DO UPDATE
SET failures = c.failures + 1,
    state = CASE WHEN c.state = 'half_open' OR c.failures + 1 >= $2 THEN 'open' ELSE c.state END,
    openings = c.openings + CASE WHEN c.state = 'half_open' OR (c.state = 'closed' AND c.failures + 1 >= $2)
                                 THEN 1 ELSE 0 END,
    retry_at = CASE WHEN c.state = 'half_open' OR (c.state = 'closed' AND c.failures + 1 >= $2)
                    THEN excluded.changed_at + make_interval(secs => $3 * power(2, least(c.openings, 4)))
                    ELSE c.retry_at END,
    changed_at = CASE WHEN c.state = 'closed' AND c.failures + 1 >= $2
                      THEN excluded.changed_at ELSE c.changed_at END,
    reason = CASE WHEN c.tripped THEN c.reason ELSE excluded.reason END
RETURNING {columns}

-- name: try
-- open -> half_open after the cool-down, for one; again for another when that one's time is up.
UPDATE {schema}.circuits AS c
SET state = 'half_open', retry_at = {clock} + make_interval(secs => $2)
WHERE c.downstream = $1 AND NOT c.tripped AND c.state IN ('open', 'half_open') AND c.retry_at <= {clock}
RETURNING c.downstream

-- name: close
-- A call came back: -> closed, and nothing is counted any more. One tripped by hand stays.
UPDATE {schema}.circuits AS c
SET state = 'closed', failures = 0, openings = 0, retry_at = NULL, reason = NULL,
    changed_at = CASE WHEN c.state = 'closed' THEN c.changed_at ELSE {clock} END
WHERE c.downstream = $1 AND NOT c.tripped AND (c.state <> 'closed' OR c.failures > 0 OR c.openings > 0)

-- name: trip
-- -> open until an operator resets it, with its audit row.
WITH known AS MATERIALIZED (
    SELECT state FROM {schema}.circuits WHERE downstream = $1 FOR NO KEY UPDATE
), tripped AS (
    INSERT INTO {schema}.circuits AS c (downstream, state, tripped, reason, changed_at)
    SELECT $1, 'open', true, $4, now FROM {clock} AS clock (now) LEFT JOIN known ON true
    ON CONFLICT (downstream) DO UPDATE
    SET state = 'open', tripped = true, retry_at = NULL, reason = excluded.reason, changed_at = excluded.changed_at
    RETURNING c.downstream
)
INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
SELECT $2, {clock}, 'trip', $3, $4, 'circuit:' || downstream, coalesce((SELECT state FROM known), 'closed'), 'open'
FROM tripped
RETURNING id

-- name: reset
-- -> closed, with its audit row.
WITH known AS MATERIALIZED (
    SELECT downstream, state FROM {schema}.circuits WHERE downstream = $1 FOR NO KEY UPDATE
), closed AS (
    UPDATE {schema}.circuits AS c
    SET state = 'closed', tripped = false, failures = 0, openings = 0, retry_at = NULL, reason = NULL,
        changed_at = {clock}
    FROM known WHERE c.downstream = known.downstream
    RETURNING c.downstream, known.state
)
INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
SELECT $2, {clock}, 'reset', $3, $4, 'circuit:' || downstream, state, 'closed' FROM closed
RETURNING id
