-- name: answers_of_events
-- What guards answered the attempts of events, with the key of the other event where that is here; of each the first 500.
SELECT a.*, o.key AS other_key FROM (
    SELECT n.*, row_number() OVER (PARTITION BY n.event_id ORDER BY n.claim, n.at, n.identity) AS nth
    FROM {schema}.guard_answers AS n WHERE n.event_id IN {list :events uuid}
) AS a LEFT JOIN {schema}.events AS o ON o.id = a.other_event_id
WHERE a.nth <= 500 ORDER BY a.event_id, a.nth

-- name: guards
SELECT * FROM {schema}.guards WHERE identity IN {list :identities bytea}

-- name: guards_with_ties
-- The guards at which events had the same version, the latest first.
SELECT g.* FROM {schema}.guards AS g {indexed guards_with_ties} WHERE g.ties > 0 ORDER BY g.applied_at DESC LIMIT :most

-- name: count_ties
-- How many there are; counted no further than :most.
SELECT count(*) AS n FROM (
    SELECT g.applied_at FROM {schema}.guards AS g {indexed guards_with_ties} WHERE g.ties > 0 LIMIT :most) AS tied

-- name: prune_answers
DELETE FROM {schema}.guard_answers WHERE event_id IN {list :events uuid}

-- name: lock_guards_to_erase
-- The guards that these events set. After the events, which are finished: no handler of theirs holds a guard.
SELECT identity, event_id, key, event_key FROM {schema}.guards WHERE event_id IN {list :events uuid}
ORDER BY identity {lock}

-- name: erase_guard
UPDATE {schema}.guards SET key = :key, event_key = :event_key WHERE identity = :identity

-- name: stale_for_events
-- The attempts that ended because a guard was of one of these events, whose key their errors and reasons name.
SELECT t.event_id, t.claim, t.error AS traceback, e.claim - 1 AS last_claim, e.reason, e.cause, e.error
FROM {schema}.guard_answers AS a {indexed guard_answers_stale}
{ordered} JOIN {schema}.attempts AS t ON t.event_id = a.event_id AND t.claim = a.claim
{ordered} JOIN {schema}.events AS e ON e.id = a.event_id
WHERE NOT a.applied AND a.other_event_id IN {list :events uuid}

-- name: erase_other_key
UPDATE {schema}.events SET reason = :reason, cause = :cause, error = :error WHERE id = :id

-- name: erase_other_key_in_attempt
UPDATE {schema}.attempts SET error = :error WHERE event_id = :event_id AND claim = :claim

-- name: answers_to_erase
SELECT event_id, claim, identity, key FROM {schema}.guard_answers WHERE event_id IN {list :events uuid}
ORDER BY event_id, claim, identity {lock}

-- name: erase_answer
UPDATE {schema}.guard_answers SET key = :key WHERE event_id = :event_id AND claim = :claim AND identity = :identity
