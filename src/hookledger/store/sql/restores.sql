-- name: lock_restores
-- One restore is begun or closed at a time.
LOCK TABLE {schema}.restores IN SHARE ROW EXCLUSIVE MODE

-- name: lock_restores (sqlite)
-- Differs because there is one writer at a time anyway.
SELECT 1

-- name: open_restore
SELECT * FROM {schema}.restores WHERE closed_at IS NULL

-- name: add_restore
-- A restore whose gap is open.
INSERT INTO {schema}.restores (id, backup_at, restored_at) VALUES (:id, :backup_at, {now})
RETURNING *

-- name: restored_effects
-- What was planned or started, in the order of identities.
SELECT identity, state, generation, number, event_id FROM {schema}.effects
WHERE identity > :after AND kind <> 'once' AND state IN ('planned', 'started') AND created_at <= :restored_at
ORDER BY identity LIMIT :limit {lock}

-- name: mark_restored_unknown
-- planned, started -> unknown. What the outbox has of them it settles by their policies.
UPDATE {schema}.effects
SET state = 'unknown', fence = fence + 1, leased_until = NULL, error = :error,
    number = number + CASE WHEN state = 'planned' THEN 1 ELSE 0 END, due_at = CASE WHEN kind = 'later' THEN {now} END
WHERE identity IN {list :identities bytea}

-- name: add_unknown_calls
-- Calls that may have been made.
INSERT INTO {schema}.effect_calls (identity, number, generation, worker, started_at)
SELECT c.identity, c.number, c.generation, :worker::text, :backup_at::timestamptz
FROM {rows :calls identity bytea, number integer, generation integer} AS c

-- name: restore_marked
UPDATE {schema}.restores SET marked_at = {now} WHERE id = :id AND marked_at IS NULL

-- name: close_restore
UPDATE {schema}.restores SET closed_at = {now} WHERE closed_at IS NULL AND marked_at IS NOT NULL RETURNING *

-- name: may_be_done
-- Whether a call may have been made in the gap of a restore: one of an effect of which nothing is on record, or of one
-- that the backup knows as refused. Not once a call is on record since that is not refused: it was withheld, and decided
-- upon.
SELECT (:generation::integer = 1 OR b.number IS NOT NULL) AND NOT EXISTS (
    SELECT 1 FROM {schema}.effect_calls AS c
    WHERE c.identity = :identity AND c.generation = :generation AND c.number < :number
      AND c.number > coalesce(b.number, 0) AND c.outcome IS DISTINCT FROM 'refused') AS may
FROM (SELECT max(number) AS number FROM {schema}.effect_calls
      WHERE identity = :identity AND generation = :generation AND number < :number AND outcome = 'refused'
        AND started_at < :restored_at) AS b
