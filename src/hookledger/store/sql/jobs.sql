-- A step locks the job, then effects by identity, then events by id.

-- name: job_columns
-- A job, and what the clock makes of it.
id, name, filter, actor, reason, per_second, state, total, done, not_allowed, created_at, frozen_at, started_at,
finished_at, cancelled_by, cancel_reason, fence, worker, effect, decision, effects,
{greatest}(coalesce({elapsed leased_until - {now}}, 0.0), 0.0) AS lease_left

-- name: add_job
-- A job whose set is there, or is not there yet.
INSERT INTO {schema}.jobs (id, name, filter, actor, reason, per_second, state, total, created_at, frozen_at, effect,
                           decision, effects)
VALUES (:id, :name, :filter, :actor, :reason, :per_second, 'planned', :total, {now},
        CASE WHEN :frozen::boolean THEN {now} END, :effect, :decision, :effects)
RETURNING {job_columns}

-- name: free_job
-- The oldest job that can be taken, or this one.
SELECT id AS free_id FROM {schema}.jobs
WHERE frozen_at IS NOT NULL AND state IN ('planned', 'running') AND (:id::uuid IS NULL OR id = :id)
  AND (leased_until IS NULL OR leased_until < {now})
ORDER BY id LIMIT 1

-- name: taken_job
-- Under a new fence.
SET state = 'running', fence = fence + 1, worker = :worker, leased_until = {now} + {seconds :lease},
    started_at = coalesce(started_at, {now})

-- name: take_job
-- planned, running -> running.
UPDATE {schema}.jobs {taken_job} WHERE id = ({free_job})
RETURNING {job_columns}

-- name: take_job (postgres)
-- Differs because a worker skips a job that another transaction has locked, and does not wait for it.
WITH free AS MATERIALIZED ({free_job} FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.jobs {taken_job} FROM free WHERE id = free_id
RETURNING {job_columns}

-- name: renew_job
-- Whether it is still ours; renews the lease, or ends it if :lease is null.
UPDATE {schema}.jobs SET leased_until = {now} + {seconds :lease::float8}
WHERE id = :id AND fence = :fence AND state = 'running'
RETURNING id

-- name: open_items
-- The next events of a job that is ours; at most a hundred, which are a step. Cut off before anything is asked of them:
-- so they are read from the cursor on in the order of the key, whatever the planner knows of the table. As a join with
-- the job, the set was walked from its beginning for every step.
SELECT next.* FROM (
    SELECT * FROM {schema}.job_items
    WHERE (job_id, event_id) > (:id::uuid, (
        SELECT coalesce(position, :first::uuid) FROM {schema}.jobs WHERE id = :id AND fence = :fence AND state = 'running'))
    ORDER BY job_id, event_id LIMIT 100
) AS next WHERE next.job_id = :id ORDER BY next.event_id LIMIT :limit

-- name: hold_job
-- Locks the job until the end of the transaction, if it is still ours.
SELECT position AS position_id FROM {schema}.jobs WHERE id = :id AND fence = :fence AND state = 'running' {lock}

-- name: item_effects
-- The effects of some of its events that are to be decided, as they were frozen.
SELECT event_id, identity, fence FROM {schema}.job_effects WHERE job_id = :id AND event_id IN {list :events uuid}
ORDER BY event_id, identity

-- name: ended_items
-- What became of some events, which stand together.
UPDATE {schema}.job_items AS i
SET outcome = o.ended_as, cause = o.ended_for, reason = o.ended_with, ended_at = {now}
FROM {rows :ended ended_job uuid, ended_id uuid, ended_as text, ended_for text, ended_with text} AS o
WHERE i.event_id = o.ended_id AND i.outcome IS NULL

-- name: end_items
-- Those that had no outcome yet. Each comes with its job, so that SQLite begins with them and not with the whole set.
{ended_items} AND i.job_id = o.ended_job
RETURNING event_id

-- name: end_items (postgres)
-- Differs because a table without statistics makes the planner walk the whole set for each of them, unless it is told
-- that they stand together.
{ended_items} AND i.job_id = :id AND i.event_id BETWEEN :first AND :last
RETURNING event_id

-- name: job_left
-- Events that are left after those.
total - done - not_allowed - :done::bigint - :not_allowed::bigint

-- name: advance_job
-- running -> running, or done after the last event.
UPDATE {schema}.jobs
SET position = :position, done = done + :done, not_allowed = not_allowed + :not_allowed,
    state = CASE WHEN {job_left} = 0 THEN 'done' ELSE 'running' END,
    finished_at = CASE WHEN {job_left} = 0 THEN {now} END,
    leased_until = CASE WHEN {job_left} > 0 THEN {now} + {seconds :lease::float8} END
WHERE id = :id
RETURNING {job_columns}

-- name: lock_job
SELECT {job_columns} FROM {schema}.jobs WHERE id = :id {lock}

-- name: cancel_job
-- planned, running -> cancelled. The new fence stops its worker.
UPDATE {schema}.jobs
SET state = 'cancelled', fence = fence + 1, leased_until = NULL, finished_at = {now}, cancelled_by = :actor,
    cancel_reason = :reason
WHERE id = :id
RETURNING {job_columns}

-- name: list_jobs
SELECT {job_columns} FROM {schema}.jobs WHERE :before::uuid IS NULL OR id < :before ORDER BY id DESC LIMIT :limit

-- name: find_jobs
-- By id or the beginning of one.
SELECT id FROM {schema}.jobs WHERE id BETWEEN :first AND :last ORDER BY id LIMIT 10

-- name: find_job
SELECT {job_columns} FROM {schema}.jobs WHERE id = :id

-- name: shown_item
-- One of its events, and what that is now.
i.*, (SELECT e.state FROM {schema}.events AS e WHERE e.id = i.event_id) AS now

-- name: list_items
SELECT {shown_item} FROM {schema}.job_items AS i
WHERE i.job_id = :id AND i.event_id > :after AND (:outcome::text IS NULL OR i.outcome = :outcome)
ORDER BY i.event_id LIMIT :limit

-- name: by_not_allowed
-- The events of a job that were not allowed have an index.
{schema}.job_items AS i

-- name: by_not_allowed (sqlite)
-- Differs because SQLite walks the whole set by its key unless it is told not to.
{schema}.job_items AS i INDEXED BY job_items_not_allowed

-- name: list_not_allowed_items
SELECT {shown_item} FROM {by_not_allowed}
WHERE i.job_id = :id AND i.event_id > :after AND i.outcome = 'not_allowed'
ORDER BY i.event_id LIMIT :limit

-- name: count_not_allowed_items
-- Why they were not allowed.
SELECT i.cause, count(*) AS n, min(i.reason) AS sample FROM {by_not_allowed}
WHERE i.job_id = :id AND i.outcome = 'not_allowed' GROUP BY i.cause ORDER BY n DESC, i.cause

-- name: present_states
-- What the events are now that a job acted on.
SELECT coalesce((SELECT e.state FROM {schema}.events AS e WHERE e.id = i.event_id), 'pruned') AS now, count(*) AS n
FROM {schema}.job_items AS i WHERE i.job_id = :id AND i.outcome = 'done' GROUP BY 1 ORDER BY n DESC, 1

-- name: events_to_preview
-- What previews need of the events themselves.
SELECT e.*, {deliveries}, EXISTS (SELECT 1 FROM {schema}.requests AS r WHERE r.id = e.request_id) AS kept
FROM {schema}.events AS e WHERE e.id IN {list :events uuid}
