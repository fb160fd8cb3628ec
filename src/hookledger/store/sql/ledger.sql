-- Transitions of effects off the hot path; the others are in each dialect's ledger.sql.

-- name: effects
-- Several effects. After a lock or an insert, a separate statement: their snapshot is older than what they waited
-- for.
SELECT {effect_columns} FROM {schema}.effects AS e WHERE e.identity IN {list :identities bytea}

-- name: restart_effect
-- planned, failed, unknown -> started. A planned outbox row is for `claim`.
UPDATE {schema}.effects
SET state = 'started', fence = fence + 1, number = number + 1, tries = tries + 1, worker = :worker,
    leased_until = {now} + {seconds :lease}, due_at = NULL, result = NULL
WHERE identity = :identity AND fence = :fence
  AND (state IN ('failed', 'unknown') OR (state = 'planned' AND kind = 'call'))
RETURNING identity, fence, number, generation, event_id, state

-- name: add_call
-- A call that is about to be made.
INSERT INTO {schema}.effect_calls (identity, number, generation, worker, started_at)
VALUES (:identity, :number, :generation, :worker, {now})

-- name: restart_effect (postgres)
-- Differs because PostgreSQL adds the call in the same round trip.
WITH taken AS ({restart_effect}), called AS (
    INSERT INTO {schema}.effect_calls (identity, number, generation, worker, started_at)
    SELECT identity, number, generation, :worker, {now} FROM taken
)
SELECT * FROM taken

-- name: mark_effect_unknown
-- started -> unknown, if the lease is still expired and the fence unchanged; done, if an earlier call has returned
-- done. Releases an unknown effect. The call keeps no outcome: it is unknown.
UPDATE {schema}.effects AS e
SET state = CASE WHEN c.done AND e.state = 'started' THEN 'done' ELSE 'unknown' END, fence = e.fence + 1,
    leased_until = NULL,
    due_at = CASE WHEN e.kind = 'later' AND NOT (c.done AND e.state = 'started') THEN {now} + {seconds :due_in::float8} END,
    finished_at = CASE WHEN c.done AND e.state = 'started' THEN {now} END,
    error = CASE WHEN c.done AND e.state = 'started' THEN NULL
                 WHEN e.state = 'started' THEN 'the worker crashed, froze or lost its connection' ELSE e.error END
FROM (SELECT EXISTS (SELECT 1 FROM {schema}.effect_calls AS n JOIN {schema}.effects AS o USING (identity, generation)
                     WHERE n.identity = :identity AND n.outcome = 'done') AS done) AS c
WHERE e.identity = :identity AND e.fence = :fence AND e.state IN ('started', 'unknown') AND e.leased_until < {now}
RETURNING event_id, state

-- name: conclude_effect
-- unknown -> done or planned, as the effect's check found.
UPDATE {schema}.effects
SET state = CASE WHEN :happened::boolean THEN 'done' ELSE 'planned' END, fence = fence + 1, leased_until = NULL,
    decided = CASE WHEN :happened THEN 'happened' ELSE 'did_not_happen' END, decided_number = number,
    result = CASE WHEN :happened THEN coalesce(:result::bytea, result) END,
    finished_at = CASE WHEN :happened THEN {now} END, error = CASE WHEN :happened THEN NULL ELSE error END,
    due_at = CASE WHEN kind = 'later' AND NOT :happened THEN {now} + {seconds coalesce(:due_in::float8, 0)} END
WHERE identity = :identity AND fence = :fence AND state = 'unknown'
RETURNING event_id, state

-- name: put_off_effect
-- unknown -> unknown: releases the lease.
UPDATE {schema}.effects
SET fence = fence + 1, leased_until = NULL, error = coalesce(:error::text, error),
    due_at = CASE WHEN kind = 'later' THEN {now} + {seconds :due_in::float8} END
WHERE identity = :identity AND fence = :fence AND state = 'unknown'
RETURNING event_id, state

-- name: release_effect
-- started -> planned, for a call that was not made: as if the outbox had not claimed it.
UPDATE {schema}.effects
SET state = 'planned', fence = fence + 1, number = number - 1, tries = {greatest}(tries - 1, 0), leased_until = NULL,
    due_at = {now} + {seconds :due_in}, error = :error
WHERE identity = :identity AND fence = :fence AND state = 'started' AND kind = 'later'
RETURNING event_id, state, number

-- name: remove_call
-- The call that was not made.
DELETE FROM {schema}.effect_calls WHERE identity = :identity AND number > :number

-- name: lock_effect
-- Waits for a transaction that is changing it.
SELECT state FROM {schema}.effects WHERE identity = :identity {lock}

-- name: held_effects
-- What a worker has started, whether it knows or not: the answer may have been lost.
SELECT {effect_columns} FROM {schema}.effects AS e {indexed effects_leased}
WHERE e.leased_until IS NOT NULL AND e.state = 'started' AND e.worker = :worker

-- name: expired_effects
-- Leases that have expired.
SELECT {effect_columns} FROM {schema}.effects AS e {indexed effects_leased}
WHERE e.leased_until < {now} ORDER BY e.leased_until LIMIT :limit
