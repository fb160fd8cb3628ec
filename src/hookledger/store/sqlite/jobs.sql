-- SQLite's dialect of bulk work. ?1 is always the present where it is needed, as in queries.sql.

-- name: columns
-- A job, and what the clock makes of it.
j.id, j.name, j.filter, j.actor, j.reason, j.per_second, j.state, j.total, j.done, j.refused, j.upto, j.created_at,
j.frozen_at, j.started_at, j.finished_at, j.ended_by, j.ended_why, j.fence, j.worker, j.effect, j.decision, j.effects,
max(coalesce((j.leased_until - ?1) / 1e6, 0.0), 0.0) AS lease_left

-- name: begin
-- One snapshot, on a connection of its own: whoever writes meanwhile does not wait.
BEGIN

-- name: breakdown
-- What a set consists of. {where} is a condition made of filters.sql.
SELECT e.source, e.type, e.state, count(*) AS n FROM events AS e WHERE {where}
GROUP BY e.source, e.type, e.state ORDER BY n DESC, e.source, e.type, e.state LIMIT 100

-- name: doubtful
-- The events with unknown effects of one name, and these effects, in the order of the events. Found first, by the index
-- that has only what is unknown. {name} is a parameter.
SELECT e.id, e.source, e.type, e.state, e.claim, f.identity, f.fence, f.number
FROM effects AS f INDEXED BY effects_in_doubt CROSS JOIN events AS e ON e.id = f.event_id
WHERE f.name = {name} AND f.state = 'unknown' AND {where} ORDER BY f.event_id

-- name: breakdown_doubtful
-- What a set of those consists of.
SELECT source, type, state, count(DISTINCT id) AS n FROM ({doubtful}) AS d
GROUP BY source, type, state ORDER BY n DESC, source, type, state LIMIT 100

-- name: count_doubtful
-- How many they are, and which calls these are: whoever called one of them again made this another text.
SELECT count(DISTINCT id) AS events, count(*) AS effects,
       coalesce(group_concat(hex(identity) || number, ' ' ORDER BY identity), '') AS calls
FROM ({doubtful}) AS d

-- name: snapshot_doubtful
-- The set of those. An event has a row for each of its effects.
SELECT id, state, claim, identity, fence FROM ({doubtful}) AS d

-- name: count
-- How many events a set would have.
SELECT count(*) AS n FROM events AS e WHERE {where}

-- name: snapshot
-- The set. Differs from PostgreSQL's, which writes it in the same statement: here a long write would stall every ack.
SELECT e.id, e.state, e.claim FROM events AS e WHERE {where}

-- name: plan
-- A job whose set is not there yet.
INSERT INTO jobs (created_at, id, name, filter, actor, reason, per_second, total, effect, decision, effects, state)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'planned')

-- name: freeze
-- One event of the set.
INSERT INTO job_items (job_id, event_id, seen_state, seen_claim) VALUES (?1, ?2, ?3, ?4)

-- name: freeze_once
-- The same for one that may have been in the batch before.
INSERT INTO job_items (job_id, event_id, seen_state, seen_claim) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING

-- name: freeze_effect
-- One effect of it.
INSERT INTO job_effects (job_id, event_id, identity, fence) VALUES (?1, ?2, ?3, ?4)

-- name: frozen
-- The whole set is there: the job can be run.
UPDATE jobs SET frozen_at = ?1
WHERE id = ?2 AND state = 'planned' AND total = (SELECT count(*) FROM job_items WHERE job_id = ?2)
  AND coalesce(effects, 0) = (SELECT count(*) FROM job_effects WHERE job_id = ?2)
RETURNING id

-- name: note
-- What an operator did.
INSERT INTO actions (at, name, id, subject, from_state, to_state, actor, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: free
-- The oldest job that can be taken. ?2: this one, or null.
SELECT id FROM jobs
WHERE frozen_at IS NOT NULL AND state IN ('planned', 'running') AND (?2 IS NULL OR id = ?2)
  AND (leased_until IS NULL OR leased_until < ?1)
ORDER BY id LIMIT 1

-- name: take
-- planned, running -> running, under a new fence. In the transaction that found it free.
UPDATE jobs
SET state = 'running', fence = fence + 1, worker = ?3, leased_until = ?1 + ?4, started_at = coalesce(started_at, ?1)
WHERE id = ?2

-- name: renew
-- Whether it is still ours; the lease begins anew, or ends at once where there is none.
UPDATE jobs SET leased_until = ?1 + ?4 WHERE id = ?2 AND fence = ?3 AND state = 'running' RETURNING id

-- name: open_items
-- The next events of a job that is ours.
SELECT i.* FROM jobs j JOIN job_items i ON i.job_id = j.id
WHERE j.id = ?1 AND j.fence = ?2 AND j.state = 'running' AND i.event_id > coalesce(j.upto, x'')
ORDER BY i.event_id LIMIT ?3

-- name: hold
-- The job is ours.
SELECT upto FROM jobs WHERE id = ?1 AND fence = ?2 AND state = 'running'

-- name: item_effects
-- The effects of one of its events that are to be decided, as they were frozen.
SELECT identity, fence FROM job_effects WHERE job_id = ?1 AND event_id = ?2 ORDER BY identity

-- name: end_item
-- What became of one event.
UPDATE job_items SET outcome = ?4, cause = ?5, words = ?6, ended_at = ?1
WHERE job_id = ?2 AND event_id = ?3 AND outcome IS NULL
RETURNING event_id

-- name: advance
-- running -> running, or done after the last event.
UPDATE jobs AS j
SET upto = ?3, done = j.done + ?4, refused = j.refused + ?5,
    state = iif(n.left_over = 0, 'done', 'running'), finished_at = iif(n.left_over = 0, ?1, NULL),
    leased_until = iif(n.left_over > 0, ?1 + ?6, NULL)
FROM (SELECT total - done - refused - ?4 - ?5 AS left_over FROM jobs WHERE id = ?2) AS n
WHERE j.id = ?2

-- name: cancel
-- planned, running -> cancelled. The new fence stops whoever runs it.
UPDATE jobs
SET state = 'cancelled', fence = fence + 1, leased_until = NULL, finished_at = ?1, ended_by = ?3, ended_why = ?4
WHERE id = ?2 AND state IN ('planned', 'running')

-- name: jobs
-- The newest first.
SELECT {columns} FROM jobs j WHERE ?2 IS NULL OR j.id < ?2 ORDER BY j.id DESC LIMIT ?3

-- name: find
-- By id or the beginning of one.
SELECT id FROM jobs WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 10

-- name: job
-- One job.
SELECT {columns} FROM jobs j WHERE j.id = ?2

-- name: refusals
-- Why events of a job were refused.
SELECT cause, count(*) AS n, min(words) AS sample FROM job_items INDEXED BY job_items_refused
WHERE job_id = ?1 AND outcome = 'refused' GROUP BY cause ORDER BY n DESC, cause

-- name: present
-- What the events are now that a job acted on.
SELECT coalesce((SELECT e.state FROM events e WHERE e.id = i.event_id), 'pruned') AS now, count(*) AS n
FROM job_items i WHERE i.job_id = ?1 AND i.outcome = 'done' GROUP BY 1 ORDER BY n DESC, 1

-- name: items
-- Some events of a job, and what they are now.
SELECT i.*, (SELECT e.state FROM events e WHERE e.id = i.event_id) AS now FROM job_items i
WHERE i.job_id = ?1 AND i.event_id > coalesce(?2, x'') AND (?3 IS NULL OR i.outcome = ?3)
ORDER BY i.event_id LIMIT ?4

-- name: refused_items
-- The same for those refused, which have an index of their own.
SELECT i.*, (SELECT e.state FROM events e WHERE e.id = i.event_id) AS now
FROM job_items i INDEXED BY job_items_refused
WHERE i.job_id = ?1 AND i.event_id > coalesce(?2, x'') AND i.outcome = 'refused'
ORDER BY i.event_id LIMIT ?3

-- name: kept
-- Whether the bytes of an event are.
SELECT EXISTS (SELECT 1 FROM requests WHERE id = ?1) AS kept
