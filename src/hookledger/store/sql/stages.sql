-- The stages of an event (decision 0056): rows of `events`, made with what is known of it.

-- name: stage_rows
-- A row for each stage `s` of its event `p`.
INSERT INTO {schema}.events (id, parent, stage, source, type, key, key_origin, provider_id, object_id, occurred_at,
                             fingerprint, request_id, item, received_at, run_started_at, state, due_at, account, entity,
                             order_at, hold, version)
SELECT s.stage_id, p.id, s.stage_name, p.source || '/' || s.stage_name, p.type, p.key, p.key_origin, p.provider_id,
       p.object_id, p.occurred_at, p.fingerprint, p.request_id, p.item, p.received_at, {now}, 'pending', {now}, p.account,
       p.entity, p.order_at, p.hold, p.version
FROM {rows :stages stage_id uuid, event_id uuid, stage_name text} AS s {ordered} JOIN {schema}.events AS p ON p.id = s.event_id

-- name: begin_stages
-- absent -> pending, for events that were settled in this transaction: those processed for the first time get the stages
-- that the worker's application has for them. A stage is there once, whatever happens.
{stage_rows}
WHERE p.state = 'processed'
  AND (SELECT count(*) FROM {schema}.attempts AS a WHERE a.event_id = p.id AND a.outcome = 'processed') = 1
ON CONFLICT DO NOTHING

-- name: lock_events
-- Those that are to have another stage: pruning must not take them away.
SELECT id, state, claim, emptied_at, parent FROM {schema}.events WHERE id IN {list :events uuid} ORDER BY id {lock}

-- name: add_stages
-- absent -> pending, as an operator decided.
{stage_rows}
WHERE p.state = 'processed' AND p.emptied_at IS NULL AND p.parent IS NULL
ON CONFLICT DO NOTHING
RETURNING id

-- name: stages_of_events
SELECT e.*, {deliveries} FROM {schema}.events AS e {indexed events_stages}
WHERE e.parent IN {list :events uuid} AND e.parent IS NOT NULL ORDER BY e.parent, e.stage

-- name: find_stages
-- Stages of this name of some events.
SELECT id FROM {schema}.events {indexed events_stages}
WHERE parent IN {list :events uuid} AND stage = :stage AND parent IS NOT NULL ORDER BY id LIMIT 10

-- name: is_same_event
-- Whether two of them are an event and its stage, or stages of one event.
SELECT 1 FROM {schema}.events AS o JOIN {schema}.events AS m ON m.parent IN (o.parent, o.id)
WHERE m.id = :one::uuid AND o.id = :other::uuid

-- name: other_stage
-- Which other stage of the same event did an effect; empty for the event's own handler.
SELECT coalesce(o.stage, '') AS stage FROM {schema}.effects AS f JOIN {schema}.events AS o ON o.id = f.event_id
JOIN {schema}.events AS m ON m.id = :event_id::uuid AND o.id <> m.id AND m.parent IN (o.parent, o.id)
WHERE f.identity = :identity::bytea
