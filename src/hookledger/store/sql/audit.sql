-- name: record_actions
INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
SELECT c.id, {now}, :name::text, :actor::text, :reason::text, c.event_id, c.subject, c.from_state, c.to_state
FROM {rows :changes id uuid, event_id uuid, subject text, from_state text, to_state text} AS c

-- name: actions_by_id
-- The newest actions between two ids.
SELECT * FROM {schema}.actions AS w WHERE w.id < :high::uuid AND w.id >= :low::uuid ORDER BY w.id DESC LIMIT {most}

-- name: actions_by_event
-- The same of one event. Sorted, as the index is not by id: an event has few.
SELECT * FROM (
    SELECT * FROM {schema}.actions {indexed actions_of_event} WHERE event_id = :event_id::uuid {offset_0}) AS w
WHERE w.id < :high::uuid AND w.id >= :low::uuid ORDER BY w.id DESC LIMIT {most}

-- name: any_action
true

-- name: action_actor
a.actor = :actor::text

-- name: action_name
a.name = :name::text

-- name: action_since
a.at >= :since::timestamptz

-- name: action_until
a.at < :until::timestamptz

-- name: action_no_event
-- Imported keys point to the action that imported them, as to an event.
(a.event_id IS NULL OR a.event_id = a.id)

-- name: page_of_actions
-- Those for which it holds, no more than :limit; and the last that was looked at, where there may be more behind it.
-- The limit within keeps the condition out: actions are read in order until there are enough, and no further.
SELECT a.id, a.at, a.actor, a.name, a.reason, a.event_id, a.subject, a.from_state, a.to_state,
       ({where}) AS holds, a.place = {most} AS ends
FROM (SELECT w.*, row_number() OVER () AS place FROM ({stretch}) AS w) AS a
WHERE ({where}) OR a.place = {most} LIMIT :limit::integer
