-- name: record_actions
-- What an operator did.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
SELECT c.id, {now}, :name::text, :actor::text, :reason::text, c.event_id, c.subject, c.from_state, c.to_state
FROM {rows :changes id uuid, event_id uuid, subject text, from_state text, to_state text} AS c
