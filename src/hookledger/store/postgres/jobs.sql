-- PostgreSQL's dialect of bulk work; {schema} and {clock} as in queries.sql. A step locks the job, then effects by
-- identity, then events by id.

-- name: columns
-- A job, and what the clock makes of it.
j.id, j.name, j.filter, j.actor, j.reason, j.per_second, j.state, j.total, j.done, j.refused, j.upto, j.created_at,
j.frozen_at, j.started_at, j.finished_at, j.ended_by, j.ended_why, j.fence, j.worker, j.effect, j.decision, j.effects,
coalesce(greatest(extract(epoch FROM j.leased_until - {clock})::float8, 0), 0) AS lease_left

-- name: begin
-- What was decided must be on disk. Nobody waits long for a handler that holds a row; and nobody for a runner that
-- stands still in the middle of a step, and holds the job and a hundred events.
BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '10s'

-- name: breakdown
-- What a set consists of. {where} is a condition made of filters.sql.
SELECT e.source, e.type, e.state, count(*) AS n FROM {schema}.events AS e WHERE {where}
GROUP BY e.source, e.type, e.state ORDER BY n DESC, e.source, e.type, e.state LIMIT 100

-- name: doubtful
-- The events with unknown effects of one name, and these effects. Found first, by the index that has only what is
-- unknown: however the rest of the condition looks, few events are asked for it. {name} is a parameter.
SELECT e.id, e.source, e.type, e.state, e.claim, d.identity, d.fence, d.number
FROM (SELECT f.event_id, f.identity, f.fence, f.number FROM {schema}.effects AS f
      WHERE f.name = {name}::text AND f.state = 'unknown' OFFSET 0) AS d
JOIN {schema}.events AS e ON e.id = d.event_id WHERE {where}

-- name: breakdown_doubtful
-- What a set of those consists of.
SELECT source, type, state, count(DISTINCT id) AS n FROM ({doubtful}) AS d
GROUP BY source, type, state ORDER BY n DESC, source, type, state LIMIT 100

-- name: size
-- How many they are, and which calls these are: whoever called one of them again made another fingerprint.
count(DISTINCT id) AS events, count(*) AS effects, left(encode(sha256(coalesce(
    string_agg(identity || int8send(number), '' ORDER BY identity), '')), 'hex'), 16) AS fingerprint

-- name: count_doubtful
-- The size of a set of those.
SELECT {size} FROM ({doubtful}) AS d

-- name: freeze_doubtful
-- The whole set of those, events and effects, in one statement as below.
WITH d AS MATERIALIZED (
    {doubtful}
), items AS (
    INSERT INTO {schema}.job_items (job_id, event_id, seen_state, seen_claim)
    SELECT DISTINCT $1::uuid, id, state, claim FROM d
), effects AS (
    INSERT INTO {schema}.job_effects (job_id, event_id, identity, fence)
    SELECT $1::uuid, id, identity, fence FROM d
)
SELECT {size} FROM d

-- name: freeze
-- The whole set in one statement, and so of one moment. Takes no lock that an ack or a worker could wait for.
INSERT INTO {schema}.job_items (job_id, event_id, seen_state, seen_claim)
SELECT $1::uuid, e.id, e.state, e.claim FROM {schema}.events AS e WHERE {where}

-- name: plan
-- The job of a set that is there, with its audit row.
WITH planned AS (
    INSERT INTO {schema}.jobs AS j (id, name, filter, actor, reason, per_second, state, total, created_at, frozen_at,
                                    effect, decision, effects)
    VALUES ($1, $2::text, $3, $4, $5, $6, 'planned', $7, {clock}, {clock}, $10, $11, $12)
    RETURNING {columns}
), noted AS (
    INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
    VALUES ($8, {clock}, 'bulk ' || $2::text, $4, $5, $9, 'absent', 'planned')
)
SELECT * FROM planned

-- name: take
-- planned, running -> running, under a new fence, if nobody has a lease on it. $1: this job, or null.
WITH free AS MATERIALIZED (
    SELECT id FROM {schema}.jobs
    WHERE frozen_at IS NOT NULL AND state IN ('planned', 'running') AND ($1::uuid IS NULL OR id = $1)
      AND (leased_until IS NULL OR leased_until < {clock})
    ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs AS j
SET state = 'running', fence = j.fence + 1, worker = $2, leased_until = {clock} + make_interval(secs => $3),
    started_at = coalesce(j.started_at, {clock})
FROM free WHERE j.id = free.id
RETURNING {columns}

-- name: renew
-- Whether it is still ours; the lease begins anew, or ends at once where there is none.
UPDATE {schema}.jobs SET leased_until = {clock} + make_interval(secs => $3)
WHERE id = $1 AND fence = $2 AND state = 'running'
RETURNING id

-- name: open_items
-- The next events of a job that is ours; at most a hundred, which are a step. Cut off before anything is asked of them:
-- so they are read from the cursor on in the order of the key, whatever the planner knows of the table. As a join with
-- the job, the set was walked from its beginning for every step.
SELECT i.* FROM (
    SELECT * FROM {schema}.job_items
    WHERE (job_id, event_id) > ($1::uuid, (
        SELECT coalesce(upto, '00000000-0000-0000-0000-000000000000') FROM {schema}.jobs
        WHERE id = $1 AND fence = $2 AND state = 'running'))
    ORDER BY job_id, event_id LIMIT 100
) AS i WHERE i.job_id = $1 ORDER BY i.event_id LIMIT $3

-- name: hold
-- The job is ours, and nobody else's until the end of the transaction.
SELECT upto FROM {schema}.jobs WHERE id = $1 AND fence = $2 AND state = 'running' FOR NO KEY UPDATE

-- name: item_effects
-- The effects of some of its events that are to be decided, as they were frozen.
SELECT event_id, identity, fence FROM {schema}.job_effects WHERE job_id = $1 AND event_id = ANY($2::uuid[])
ORDER BY event_id, identity

-- name: end_items
-- What became of some events, which stand together. Between the first and the last, because a table without
-- statistics makes the planner walk the whole set for each of them.
UPDATE {schema}.job_items AS i SET outcome = o.outcome, cause = o.cause, words = o.words, ended_at = {clock}
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS o (event_id, outcome, cause, words)
WHERE i.job_id = $1 AND i.event_id BETWEEN $6 AND $7 AND i.event_id = o.event_id AND i.outcome IS NULL
RETURNING i.event_id

-- name: advance
-- running -> running, or done after the last event.
UPDATE {schema}.jobs AS j
SET upto = $2, done = j.done + $3, refused = j.refused + $4,
    state = CASE WHEN n.left_over = 0 THEN 'done' ELSE 'running' END,
    finished_at = CASE WHEN n.left_over = 0 THEN {clock} END,
    leased_until = CASE WHEN n.left_over > 0 THEN {clock} + make_interval(secs => $5) END
FROM (SELECT id, total - done - refused - $3::bigint - $4::bigint AS left_over
      FROM {schema}.jobs WHERE id = $1) AS n
WHERE j.id = n.id
RETURNING {columns}

-- name: cancel
-- planned, running -> cancelled, with its audit row. The new fence stops whoever runs it.
WITH was AS MATERIALIZED (
    SELECT id, state FROM {schema}.jobs WHERE id = $1 AND state IN ('planned', 'running') FOR NO KEY UPDATE
), ended AS (
    UPDATE {schema}.jobs AS j
    SET state = 'cancelled', fence = j.fence + 1, leased_until = NULL, finished_at = {clock}, ended_by = $3::text,
        ended_why = $4::text
    FROM was WHERE j.id = was.id
    RETURNING {columns}
), noted AS (
    INSERT INTO {schema}.actions (id, at, name, actor, reason, subject, from_state, to_state)
    SELECT $2, {clock}, 'cancel-job', $3::text, $4::text, $5, state, 'cancelled' FROM was
)
SELECT * FROM ended

-- name: jobs
-- The newest first.
SELECT {columns} FROM {schema}.jobs AS j WHERE $1::uuid IS NULL OR j.id < $1 ORDER BY j.id DESC LIMIT $2

-- name: find
-- By id or the beginning of one.
SELECT id FROM {schema}.jobs WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT 10

-- name: job
-- One job.
SELECT {columns} FROM {schema}.jobs AS j WHERE j.id = $1

-- name: refusals
-- Why events of a job were refused.
SELECT cause, count(*) AS n, min(words) AS sample FROM {schema}.job_items
WHERE job_id = $1 AND outcome = 'refused' GROUP BY cause ORDER BY n DESC, cause

-- name: present
-- What the events are now that a job acted on.
SELECT coalesce(e.state, 'pruned') AS now, count(*) AS n
FROM {schema}.job_items i LEFT JOIN {schema}.events e ON e.id = i.event_id
WHERE i.job_id = $1 AND i.outcome = 'done' GROUP BY 1 ORDER BY n DESC, 1

-- name: items
-- Some events of a job, and what they are now.
SELECT i.*, (SELECT e.state FROM {schema}.events e WHERE e.id = i.event_id) AS now FROM {schema}.job_items i
WHERE i.job_id = $1 AND i.event_id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
  AND ($3::text IS NULL OR i.outcome = $3)
ORDER BY i.event_id LIMIT $4

-- name: refused_items
-- The same for those refused, which have an index of their own.
SELECT i.*, (SELECT e.state FROM {schema}.events e WHERE e.id = i.event_id) AS now FROM {schema}.job_items i
WHERE i.job_id = $1 AND i.event_id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
  AND i.outcome = 'refused'
ORDER BY i.event_id LIMIT $3

-- name: events
-- What previews need of the events themselves.
SELECT e.*, 1 + (SELECT count(*) FROM {schema}.deliveries d
                 WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries,
       EXISTS (SELECT FROM {schema}.requests r WHERE r.id = e.request_id) AS kept
FROM {schema}.events e WHERE id = ANY($1::uuid[])

-- name: attempts
-- Their executions.
SELECT * FROM {schema}.attempts WHERE event_id = ANY($1::uuid[]) ORDER BY event_id, claim
