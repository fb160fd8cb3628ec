-- PostgreSQL's dialect of restores; {schema} and {clock} as in queries.sql.

-- name: begin
-- What was decided must be on disk.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '10s'

-- name: known
-- Whether the schema knows of restores: not before 14.
SELECT to_regclass('{schema}.restores') IS NOT NULL

-- name: lock
-- One restore is begun or closed at a time.
LOCK TABLE {schema}.restores IN SHARE ROW EXCLUSIVE MODE

-- name: open
-- The gap, if there is one.
SELECT * FROM {schema}.restores WHERE closed_at IS NULL

-- name: add
-- A restore whose gap is open.
INSERT INTO {schema}.restores (id, backup_at, restored_at) VALUES ($1, $2, {clock})
RETURNING *

-- name: doubt
-- planned, started -> unknown, in the order of identities; what was planned with a call that may have been made. What
-- the outbox has of them it settles by their policies.
WITH found AS MATERIALIZED (
    SELECT identity, state FROM {schema}.effects
    WHERE identity > $1 AND kind <> 'once' AND state IN ('planned', 'started') AND created_at <= $3
    ORDER BY identity LIMIT $2 FOR NO KEY UPDATE
), moved AS (
    UPDATE {schema}.effects AS e
    SET state = 'unknown', fence = e.fence + 1, leased_until = NULL, error = $6,
        number = e.number + CASE WHEN f.state = 'planned' THEN 1 ELSE 0 END,
        due_at = CASE WHEN e.kind = 'later' THEN {clock} END
    FROM found AS f WHERE e.identity = f.identity
    RETURNING e.identity, e.number, e.generation, e.event_id, f.state AS was
), called AS (
    INSERT INTO {schema}.effect_calls (identity, number, generation, worker, started_at)
    SELECT identity, number, generation, $5, $4 FROM moved WHERE was = 'planned'
)
SELECT identity, event_id FROM moved ORDER BY identity

-- name: doubted
-- That was all of them.
UPDATE {schema}.restores SET doubted_at = {clock} WHERE id = $1 AND doubted_at IS NULL

-- name: close
-- Reconciled.
UPDATE {schema}.restores SET closed_at = {clock} WHERE closed_at IS NULL AND doubted_at IS NOT NULL RETURNING *

-- name: may_be_done
-- Whether a call may have been made in the gap of the restore at $1: one of an effect of which nothing is on record, or
-- of one that the backup knows as refused. Not once a call is on record since that is not refused: it was withheld, and
-- decided upon.
SELECT ($3 = 1 OR b.number IS NOT NULL) AND NOT EXISTS (
    SELECT 1 FROM {schema}.effect_calls c
    WHERE c.identity = $2 AND c.generation = $3 AND c.number < $4 AND c.number > coalesce(b.number, 0)
      AND c.outcome IS DISTINCT FROM 'refused') AS may
FROM (SELECT max(number) AS number FROM {schema}.effect_calls
      WHERE identity = $2 AND generation = $3 AND number < $4 AND outcome = 'refused' AND started_at < $1) AS b

-- name: note
-- What an operator did.
INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
VALUES ($1, {clock}, 'restore', $2, $3, $4, $5, $6)
