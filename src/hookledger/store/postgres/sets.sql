-- PostgreSQL's dialect of bulk sets; {schema} as in queries.sql. {where} is a condition made of filters.sql.

-- name: breakdown
-- What a set consists of.
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
