-- name: known_owners
-- Which identities are taken, and by whom.
SELECT i.identity, i.event_id, e.state
FROM {schema}.identities AS i LEFT JOIN {schema}.events AS e ON e.id = i.event_id
WHERE i.identity IN {list :identities bytea}

-- name: abandoned_reconciliations
-- Interrupted comparisons of a source. One that failed and waits for its next try has a problem recorded.
SELECT id, fence, slot, actor, reason, counts FROM {schema}.reconciliations
WHERE source = :source AND finished_at IS NULL AND problem IS NULL AND leased_until < {now} ORDER BY id {lock}

-- name: count_reconciled
-- How far it has come, with what was recorded.
UPDATE {schema}.reconciliations SET counts = :counts WHERE id = :id AND fence = :fence AND finished_at IS NULL
RETURNING id

-- name: begin_reconciliation
-- A new comparison; an interrupted one is taken up after its lease, with its first window.
INSERT INTO {schema}.reconciliations AS r (id, source, slot, since, until, actor, reason, started_at, leased_until)
VALUES (:id, :source, :slot, :since, :until, :actor, :reason, {now}, {now} + {seconds :lease})
ON CONFLICT (source, slot) DO UPDATE
SET fence = r.fence + 1, started_at = excluded.started_at, leased_until = excluded.leased_until,
    actor = excluded.actor, reason = excluded.reason, problem = NULL, counts = NULL
WHERE r.finished_at IS NULL AND r.leased_until < excluded.started_at
RETURNING id, fence, since, until

-- name: renew_reconciliation
-- Only the process with this fence.
UPDATE {schema}.reconciliations SET leased_until = {now} + {seconds :lease}
WHERE id = :id AND fence = :fence AND finished_at IS NULL
RETURNING id

-- name: end_reconciliation
-- Over; or, with :again_in, to be tried again after so many seconds.
UPDATE {schema}.reconciliations
SET counts = :counts, problem = :problem, finished_at = CASE WHEN :again_in::float8 IS NULL THEN {now} END,
    leased_until = {now} + {seconds :again_in}
WHERE id = :id AND fence = :fence AND finished_at IS NULL
RETURNING actor, reason

-- name: last_reconciliations
SELECT * FROM (
    SELECT r.*, row_number() OVER (PARTITION BY source ORDER BY started_at DESC, id DESC) AS n
    FROM {schema}.reconciliations AS r
) AS r WHERE n = 1 ORDER BY source

-- name: claim_repair
-- Waits for a concurrent request for the same object.
INSERT INTO {schema}.repairs (source, object_id, event_id) VALUES (:source, :object_id, :event_id)
ON CONFLICT DO NOTHING

-- name: lock_repair
-- The last repair of the object, locked until the commit.
SELECT event_id FROM {schema}.repairs WHERE source = :source AND object_id = :object_id {lock}

-- name: change_repair
-- This is the last one now.
UPDATE {schema}.repairs SET event_id = :event_id WHERE source = :source AND object_id = :object_id
