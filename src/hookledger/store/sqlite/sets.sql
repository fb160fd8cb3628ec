-- SQLite's dialect of bulk sets. {where} is a condition made of filters.sql.
-- Differs from PostgreSQL's, which freezes a set in one statement: here a long write would stall every ack.

-- name: begin
-- One snapshot, on a connection of its own: whoever writes meanwhile does not wait.
BEGIN

-- name: breakdown
-- What a set consists of.
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
-- The set.
SELECT e.id, e.state, e.claim FROM events AS e WHERE {where}

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
