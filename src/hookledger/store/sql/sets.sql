-- Bulk sets. {where} is a condition made of filters.sql.

-- name: breakdown
SELECT e.source, e.type, e.state, count(*) AS n FROM {schema}.events AS e WHERE {where}
GROUP BY e.source, e.type, e.state ORDER BY n DESC, e.source, e.type, e.state LIMIT 100

-- name: unknown_members
-- The events with unknown effects of one name, and these effects. Found first, by the index that has only what is
-- unknown: however the rest of the condition looks, few events are asked for it.
SELECT e.id, e.source, e.type, e.state, e.claim, d.identity, d.fence, d.number
FROM (SELECT f.event_id, f.identity, f.fence, f.number FROM {schema}.effects AS f {indexed effects_unknown}
      WHERE f.name = :effect_name::text AND f.state = 'unknown' {offset_0}) AS d
{ordered} JOIN {schema}.events AS e ON e.id = d.event_id WHERE {where}

-- name: breakdown_unknown
-- What a set of those consists of.
SELECT source, type, state, count(DISTINCT id) AS n FROM ({unknown_members}) AS d
GROUP BY source, type, state ORDER BY n DESC, source, type, state LIMIT 100

-- name: size
-- How many there are, and a text of their newest calls: each further call changes it.
count(DISTINCT id) AS events, count(*) AS effects, encode(sha256(coalesce(
    string_agg(identity || int8send(number), '' ORDER BY identity), '')), 'hex') AS calls

-- name: size (sqlite)
-- Differs because SQLite has no digests.
count(DISTINCT id) AS events, count(*) AS effects,
coalesce(group_concat(hex(identity) || number, ' ' ORDER BY identity), '') AS calls

-- name: freeze
-- The whole set in one statement, and so of one moment. Takes no lock that an ack or a worker could wait for.
WITH frozen AS (
    INSERT INTO {schema}.job_items (job_id, event_id, seen_state, seen_claim)
    SELECT :job_id::uuid, e.id, e.state, e.claim FROM {schema}.events AS e WHERE {where}
    RETURNING 1
)
SELECT count(*) AS n FROM frozen

-- name: freeze (sqlite)
-- Differs because a long write would stall every ack: a batch of the set, in which an event has a row for each effect.
INSERT INTO {schema}.job_items (job_id, event_id, seen_state, seen_claim)
SELECT DISTINCT :job_id, b.id, b.state, b.claim FROM {rows :batch id uuid, state text, claim bigint} AS b
WHERE true ON CONFLICT DO NOTHING

-- name: freeze_unknown
-- The whole set of those, events and effects, in one statement.
WITH d AS MATERIALIZED (
    {unknown_members}
), items AS (
    INSERT INTO {schema}.job_items (job_id, event_id, seen_state, seen_claim)
    SELECT DISTINCT :job_id::uuid, id, state, claim FROM d
), effects AS (
    INSERT INTO {schema}.job_effects (job_id, event_id, identity, fence)
    SELECT :job_id::uuid, id, identity, fence FROM d
)
SELECT {size} FROM d

-- name: freeze_unknown (sqlite)
-- Differs as above: the effects of a batch.
INSERT INTO {schema}.job_effects (job_id, event_id, identity, fence)
SELECT :job_id, b.id, b.identity, b.fence
FROM {rows :batch id uuid, state text, claim bigint, identity bytea, fence bigint} AS b

-- name: members
-- The set, for SQLite, which freezes it batch by batch.
SELECT e.id, e.state, e.claim FROM {schema}.events AS e WHERE {where}

-- name: members_unknown
-- The set of those. An event has a row for each of its effects.
SELECT id, state, claim, identity, fence FROM ({unknown_members}) AS d ORDER BY id

-- name: size_of_set
SELECT count(*) AS n FROM {schema}.events AS e WHERE {where}

-- name: size_of_set_unknown
SELECT {size} FROM ({unknown_members}) AS d

-- name: set_frozen
-- The whole set is there: the job can be run.
UPDATE {schema}.jobs SET frozen_at = {now}
WHERE id = :id AND state = 'planned' AND total = (SELECT count(*) FROM {schema}.job_items WHERE job_id = :id)
  AND coalesce(effects, 0) = (SELECT count(*) FROM {schema}.job_effects WHERE job_id = :id)
RETURNING id
