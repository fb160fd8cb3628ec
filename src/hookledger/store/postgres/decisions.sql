-- PostgreSQL's dialect of what operators do to whole events; {schema} and {clock} as in queries.sql.
-- Locks in the order of ledger.sql: effects by identity, then the event.

-- name: begin
-- What was decided must be on disk. Nobody waits long for a handler that holds the row, or for whoever stands still
-- here.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '10s'

-- name: asked
-- The events that are meant: the state and the claim number that each was seen with, the number being null where any
-- will do, and the id of its audit row. Sorted by the caller, so that those who mean several do not deadlock.
unnest($1::uuid[], $2::text[], $3::bigint[], $4::uuid[]) AS a (id, state, claim, action)

-- name: replay
-- processed, skipped, failed, discarded, needs_review -> pending, as a new run with a fresh budget, with its audit row;
-- an event that crashed twice goes on being processed alone. $7: the job that it belongs to, or null.
WITH sent AS (
    UPDATE {schema}.events AS e
    SET state = 'pending', run = e.run + 1, claim = e.claim + 1, due_at = {clock}, finished_at = NULL, attempts = 0,
        snoozes = 0, crashes = least(e.crashes, 2), run_started_at = {clock}, reason = NULL, cause = NULL, alert = NULL
    FROM {asked}
    WHERE e.id = a.id AND e.state = a.state AND e.claim = coalesce(a.claim, e.claim) AND e.emptied_at IS NULL
      AND e.state IN ('processed', 'skipped', 'failed', 'discarded', 'needs_review')
    RETURNING e.id, e.run, a.state AS was, a.action
), noted AS (
    INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
    SELECT action, {clock}, 'replay', $5, $6, id, 'run ' || run || coalesce(', ' || $7::text, ''), was, 'pending'
    FROM sent
)
SELECT id, run FROM sent

-- name: retry
-- failed, retrying, needs_review -> pending, with its audit row. The budget starts anew; an event that
-- crashed twice goes on being processed alone. Parameters as for `replay`.
WITH sent AS (
    UPDATE {schema}.events AS e
    SET state = 'pending', claim = e.claim + 1, due_at = {clock}, finished_at = NULL, attempts = 0, snoozes = 0,
        crashes = least(e.crashes, 2), run_started_at = {clock}, reason = NULL, cause = NULL, alert = NULL
    FROM {asked}
    WHERE e.id = a.id AND e.state = a.state AND e.claim = coalesce(a.claim, e.claim) AND e.emptied_at IS NULL
      AND e.state IN ('failed', 'retrying', 'needs_review')
    RETURNING e.id, e.run, a.state AS was, a.action
), noted AS (
    INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
    SELECT action, {clock}, 'retry', $5, $6, id, $7::text, was, 'pending' FROM sent
)
SELECT id, run FROM sent

-- name: discard
-- pending, retrying, failed, needs_review -> discarded, with its audit row.
WITH closed AS (
    UPDATE {schema}.events AS e
    SET state = 'discarded', claim = e.claim + 1, due_at = NULL, finished_at = {clock}, reason = left($6::text, 500),
        cause = NULL, alert = NULL
    FROM {asked}
    WHERE e.id = a.id AND e.state = a.state AND e.claim = coalesce(a.claim, e.claim)
      AND e.state IN ('pending', 'retrying', 'failed', 'needs_review')
    RETURNING e.id, e.run, a.state AS was, a.action
), noted AS (
    INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
    SELECT action, {clock}, 'discard', $5, $6::text, id, $7::text, was, 'discarded' FROM closed
)
SELECT id, run FROM closed

-- name: repeat
-- done, cancelled -> planned, to be done when a handler asks for it: as a call that did not happen, which `event.call`
-- makes and `event.later` leaves to the outbox. What was done gets a new generation, be it that a call came back done
-- after it was cancelled; what never was keeps its own, so that the remote still knows the key.
UPDATE {schema}.effects AS e
SET kind = 'call', state = 'planned', generation = e.generation + CASE WHEN w.done THEN 1 ELSE 0 END,
    fence = e.fence + 1, tries = 0, planned_at = {clock}, due_at = NULL, leased_until = NULL, lane = NULL, place = NULL,
    finished_at = NULL, result = NULL, error = NULL,
    decided = CASE WHEN w.done THEN NULL ELSE e.decided END,
    decided_number = CASE WHEN w.done THEN NULL ELSE e.decided_number END
FROM (SELECT o.identity, o.state = 'done' OR (
          SELECT count(*) > 0 FROM {schema}.effect_calls AS c
          WHERE c.identity = o.identity AND c.generation = o.generation AND c.outcome = 'done') AS done
      FROM {schema}.effects AS o WHERE o.identity = $1) AS w
WHERE e.identity = $1 AND e.fence = $2 AND e.event_id = $3 AND e.kind <> 'once' AND e.state IN ('done', 'cancelled')
  AND e.alert IS NULL
RETURNING e.generation

-- name: restores_known
-- Whether the schema knows of restores: not before 11.
SELECT to_regclass('{schema}.restores') IS NOT NULL

-- name: skip_used
-- Keys of generations that are not on record may have been used between a backup and its restore.
UPDATE {schema}.effects
SET generation = greatest(generation, (SELECT count(*) FROM {schema}.restores) * $2::integer + 1) WHERE identity = $1

-- name: make_way
-- A `once` that is to be true once more: its row stays as evidence, under an identity that nobody asks for.
UPDATE {schema}.effects AS e SET identity = $4, fence = e.fence + 1, error = $5
WHERE e.identity = $1 AND e.fence = $2 AND e.event_id = $3 AND e.kind = 'once' AND e.fence = 0
RETURNING e.state

-- name: note_repeat
-- What an operator did about an effect.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
VALUES ($1, {clock}, 'repeat', $2, $3, $4, $5, $6, $7)

-- name: found
-- An event as it is now.
SELECT state, run, claim, emptied_at FROM {schema}.events WHERE id = $1

-- name: pruned
-- That it was pruned.
SELECT * FROM {schema}.pruned WHERE event_id = $1

-- name: last_action
-- What was done to it last.
SELECT * FROM {schema}.actions WHERE event_id = $1 ORDER BY at DESC, id DESC LIMIT 1
