-- name: record_action
-- What an operator did.
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
VALUES (:id, {now}, :name, :actor, :reason, :event_id, :subject, :from_state, :to_state)
