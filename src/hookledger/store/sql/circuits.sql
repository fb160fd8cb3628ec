-- name: circuit_columns
-- A circuit, and what the clock makes of it.
downstream, state, failures, reason, changed_at,
CASE WHEN state <> 'closed' AND NOT tripped THEN {greatest}({elapsed retry_at - {now}}, 0.0) END AS retry_in

-- name: list_circuits
-- Every downstream that ever failed or was tripped.
SELECT {circuit_columns} FROM {schema}.circuits ORDER BY downstream

-- name: lock_circuit
SELECT state FROM {schema}.circuits WHERE downstream = :downstream {lock}

-- name: fail_circuit
-- One more failure: closed -> open at the threshold, half_open -> open immediately; each opening in a row waits twice as
-- long as the one before, up to 16 times. A call that was in flight when it opened is counted only.
INSERT INTO {schema}.circuits AS c (downstream, state, failures, openings, retry_at, reason, changed_at)
VALUES (:downstream, CASE WHEN :threshold::integer <= 1 THEN 'open' ELSE 'closed' END, 1,
        CASE WHEN :threshold <= 1 THEN 1 ELSE 0 END,
        CASE WHEN :threshold <= 1 THEN {now} + {seconds :cooldown::float8} END, :error, {now})
ON CONFLICT (downstream) DO UPDATE
SET failures = c.failures + 1,
    state = CASE WHEN c.state = 'half_open' OR c.failures + 1 >= :threshold THEN 'open' ELSE c.state END,
    openings = c.openings + CASE WHEN c.state = 'half_open' OR (c.state = 'closed' AND c.failures + 1 >= :threshold)
                                 THEN 1 ELSE 0 END,
    retry_at = CASE WHEN c.state = 'half_open' OR (c.state = 'closed' AND c.failures + 1 >= :threshold)
                    THEN excluded.changed_at + {seconds :cooldown * (1 << {least}(c.openings, 4))}
                    ELSE c.retry_at END,
    changed_at = CASE WHEN c.state = 'closed' AND c.failures + 1 >= :threshold
                      THEN excluded.changed_at ELSE c.changed_at END,
    reason = CASE WHEN c.tripped THEN c.reason ELSE excluded.reason END
RETURNING {circuit_columns}

-- name: try_circuit
-- open -> half_open after the cool-down, for one; again for another when that one's time is up.
UPDATE {schema}.circuits
SET state = 'half_open', retry_at = {now} + {seconds :lease}
WHERE downstream = :downstream AND NOT tripped AND state IN ('open', 'half_open') AND retry_at <= {now}
RETURNING downstream

-- name: close_circuit
-- A call succeeded: -> closed, and the count starts at zero. One tripped by hand stays open.
UPDATE {schema}.circuits
SET changed_at = CASE WHEN state = 'closed' THEN changed_at ELSE {now} END,
    state = 'closed', failures = 0, openings = 0, retry_at = NULL, reason = NULL
WHERE downstream = :downstream AND NOT tripped AND (state <> 'closed' OR failures > 0 OR openings > 0)

-- name: trip_circuit
-- -> open until an operator resets it.
INSERT INTO {schema}.circuits (downstream, state, tripped, reason, changed_at)
VALUES (:downstream, 'open', true, :reason, {now})
ON CONFLICT (downstream) DO UPDATE
SET state = 'open', tripped = true, retry_at = NULL, reason = excluded.reason, changed_at = excluded.changed_at

-- name: reset_circuit
-- -> closed.
UPDATE {schema}.circuits
SET state = 'closed', tripped = false, failures = 0, openings = 0, retry_at = NULL, reason = NULL, changed_at = {now}
WHERE downstream = :downstream
