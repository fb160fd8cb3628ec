-- All transactions lock in one order: effects by identity, then events by id.

-- name: events_asked
-- The events that are meant: the state and the claim number that each was seen with, the number being null where any
-- will do. Sorted by the caller, so that those who mean several do not deadlock.
{rows :events event_id uuid, seen_state text, seen_claim bigint} AS asked
WHERE e.id = asked.event_id AND e.state = asked.seen_state AND e.claim = coalesce(asked.seen_claim, e.claim)

-- name: replay
-- processed, skipped, failed, discarded, needs_review -> pending, as a new run with a fresh budget; an event that
-- crashed twice still runs alone.
UPDATE {schema}.events AS e
SET state = 'pending', run = e.run + 1, claim = e.claim + 1, due_at = {now}, finished_at = NULL, attempts = 0,
    snoozes = 0, crashes = {least}(e.crashes, 2), run_started_at = {now}, reason = NULL, cause = NULL, alert = NULL
FROM {events_asked} AND e.emptied_at IS NULL
  AND e.state IN ('processed', 'skipped', 'failed', 'discarded', 'needs_review')
RETURNING id, run

-- name: retry
-- failed, retrying, needs_review -> pending. The budget starts at zero; an event that crashed twice still runs alone.
-- Of these only a retrying event can have an approval: its run continues, and keeps it.
UPDATE {schema}.events AS e
SET state = 'pending', claim = e.claim + 1, due_at = {now}, finished_at = NULL, attempts = 0, snoozes = 0,
    crashes = {least}(e.crashes, 2), run_started_at = {now}, reason = NULL, cause = NULL, alert = NULL
FROM {events_asked} AND e.emptied_at IS NULL AND e.state IN ('failed', 'retrying', 'needs_review')
RETURNING id, run

-- name: discard
-- pending, retrying, failed, needs_review -> discarded.
UPDATE {schema}.events AS e
SET state = 'discarded', claim = e.claim + 1, due_at = NULL, finished_at = {now},
    reason = substr(:reason::text, 1, 500), cause = NULL, alert = NULL, approval_id = NULL
FROM {events_asked} AND e.state IN ('pending', 'retrying', 'failed', 'needs_review')
RETURNING id, run

-- name: repeat
-- done, cancelled -> planned, to be done when a handler asks for it: as a call that did not happen, which `event.call`
-- makes and `event.later` leaves to the outbox. What was done gets a new generation, be it that a call came back done
-- after it was cancelled; what never was keeps its own, so that the remote still knows the key.
UPDATE {schema}.effects AS e
SET kind = 'call', state = 'planned', generation = e.generation + CASE WHEN w.done THEN 1 ELSE 0 END,
    fence = e.fence + 1, tries = 0, planned_at = {now}, due_at = NULL, leased_until = NULL, lane = NULL, place = NULL,
    finished_at = NULL, result = NULL, error = NULL,
    decided = CASE WHEN w.done THEN NULL ELSE e.decided END,
    decided_number = CASE WHEN w.done THEN NULL ELSE e.decided_number END
FROM (SELECT o.state = 'done' OR (
          SELECT count(*) > 0 FROM {schema}.effect_calls AS c
          WHERE c.identity = o.identity AND c.generation = o.generation AND c.outcome = 'done') AS done
      FROM {schema}.effects AS o WHERE o.identity = :identity) AS w
WHERE e.identity = :identity AND e.fence = :fence AND e.event_id = :event_id AND e.kind <> 'once'
  AND e.state IN ('done', 'cancelled') AND e.alert IS NULL
RETURNING generation

-- name: skip_generations
-- Keys of generations that are not on record may have been used between a backup and its restore.
UPDATE {schema}.effects
SET generation = {greatest}(generation, (SELECT count(*) FROM {schema}.restores) * :skipped::integer + 1)
WHERE identity = :identity

-- name: supersede_once
-- A `once` that a new run repeats: its row stays as evidence, under an identity that no handler uses.
UPDATE {schema}.effects SET identity = :aside, fence = fence + 1, error = :error
WHERE identity = :identity AND fence = :fence AND event_id = :event_id AND kind = 'once' AND fence = 0
RETURNING state

-- name: event_now
-- An event as it is now. After a lock, a separate statement: that of the lock would not see what it waited for.
SELECT state, run, claim, emptied_at FROM {schema}.events WHERE id = :event_id

-- name: last_action
SELECT * FROM {schema}.actions WHERE event_id = :event_id ORDER BY at DESC, id DESC LIMIT 1
