-- name: pause
-- Returns nothing when it is paused already.
INSERT INTO {schema}.pauses (source, pattern, since, actor, reason) VALUES (:source, :pattern, {now}, :actor, :reason)
ON CONFLICT DO NOTHING
RETURNING source, pattern, since, actor, reason

-- name: resume
-- Returns nothing when it is not paused.
DELETE FROM {schema}.pauses WHERE source = :source AND pattern = :pattern AND NOT older RETURNING source

-- name: list_pauses
SELECT source, pattern, since, actor, reason FROM {schema}.pauses WHERE NOT older ORDER BY source, pattern
