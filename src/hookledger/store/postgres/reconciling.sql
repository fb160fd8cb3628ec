-- Reconciliation, in PostgreSQL's dialect.

-- name: begin
-- What was done is on disk when it is told; nobody waits long for a lock.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s'

-- name: known
-- Which identities are taken, and by whom.
SELECT i.identity, i.event_id, e.state
FROM {schema}.identities AS i LEFT JOIN {schema}.events AS e ON e.id = i.event_id
WHERE i.identity = ANY($1::bytea[])

-- name: abandoned
-- Comparisons of a source that nobody ended. One that failed and waits to be tried again has said so.
SELECT id, slot, actor, reason, counts FROM {schema}.reconciliations
WHERE source = $1 AND finished_at IS NULL AND problem IS NULL AND leased_until < {clock} ORDER BY id FOR UPDATE

-- name: close
-- It is not taken up.
UPDATE {schema}.reconciliations SET finished_at = {clock}, leased_until = NULL, problem = $2, counts = $3 WHERE id = $1

-- name: count
-- How far it has come, with what was recorded.
UPDATE {schema}.reconciliations SET counts = $3 WHERE id = $1 AND fence = $2 AND finished_at IS NULL RETURNING id

-- name: begin_run
-- A new comparison; one that nobody ended is taken up after its lease, with its own window.
INSERT INTO {schema}.reconciliations AS r (id, source, slot, since, until, actor, reason, started_at, leased_until)
SELECT $1::uuid, $2::text, $3::timestamptz, $4::timestamptz, $5::timestamptz, $6::text, $7::text, now,
       now + make_interval(secs => $8)
FROM {clock} AS clock (now)
ON CONFLICT (source, slot) DO UPDATE
SET fence = r.fence + 1, started_at = excluded.started_at, leased_until = excluded.leased_until,
    actor = excluded.actor, reason = excluded.reason, problem = NULL, counts = NULL
WHERE r.finished_at IS NULL AND r.leased_until < excluded.started_at
RETURNING r.id, r.fence, r.since, r.until

-- name: renew
-- Only by whoever has it.
UPDATE {schema}.reconciliations SET leased_until = {clock} + make_interval(secs => $3)
WHERE id = $1 AND fence = $2 AND finished_at IS NULL
RETURNING id

-- name: end
-- Over; or, with $5, to be tried again after so many seconds.
UPDATE {schema}.reconciliations
SET counts = $3, problem = $4,
    finished_at = CASE WHEN $5::float8 IS NULL THEN {clock} END,
    leased_until = CASE WHEN $5::float8 IS NOT NULL THEN {clock} + make_interval(secs => $5) END
WHERE id = $1 AND fence = $2 AND finished_at IS NULL
RETURNING source, actor, reason

-- name: last
-- Of each source.
SELECT DISTINCT ON (source) id, source, slot, since, until, actor, reason, fence, started_at, leased_until,
       finished_at, problem, counts
FROM {schema}.reconciliations ORDER BY source, started_at DESC

-- name: note_action
-- What was done, by whom and why.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
VALUES ($1, {clock}, $2, $3, $4, $5, $6, $7, $8)

-- name: claim_object
-- Waits for whoever asks for the same at this moment.
INSERT INTO {schema}.repairs (source, object_id, event_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: lock_object
-- The last repair of the object; nobody else decides about it meanwhile.
SELECT event_id FROM {schema}.repairs WHERE source = $1 AND object_id = $2 FOR UPDATE

-- name: repair_object
-- This is the last one now.
UPDATE {schema}.repairs SET event_id = $3 WHERE source = $1 AND object_id = $2

-- name: state
-- Of one event. A statement of its own: that of the lock would not see what was committed while it waited.
SELECT state FROM {schema}.events WHERE id = $1
