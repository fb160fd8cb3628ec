-- name: open_messages
-- The messages of a target that a look may add to, or that count for the limit of a window.
SELECT id, kind, topic, window_at, state, attempts, topics FROM {schema}.alert_messages
WHERE target = :target AND (state = 'waiting' OR window_at > {now} - {seconds :window}) ORDER BY window_at

-- name: add_message
-- One for each topic and window.
INSERT INTO {schema}.alert_messages AS m (id, target, kind, topic, window_at, subject, words, event_id, count, topics,
                                          follows, first_at, last_at, state, due_at)
VALUES (:id, :target, :kind, :topic, :window_at, :subject, :words, :event_id, :count, :topics, :follows, :first_at,
        :last_at, 'waiting', :window_at)

-- name: extend_message
-- More of the same, if it is not being sent yet.
UPDATE {schema}.alert_messages
SET count = count + :count, topics = :topics, last_at = {greatest}(last_at, :last_at::timestamptz),
    event_id = coalesce(:event_id::uuid, event_id), words = :words
WHERE id = :id AND state = 'waiting' AND attempts = 0 RETURNING id

-- name: is_message_due
-- Whether a message may be sent now.
SELECT 1 AS due FROM {schema}.alert_messages {indexed alert_messages_due}
WHERE state = 'waiting' AND target = :target AND due_at <= {now} AND (leased_until IS NULL OR leased_until < {now})
LIMIT 1

-- name: due_messages
SELECT m.id FROM {schema}.alert_messages AS m {indexed alert_messages_due}
WHERE m.state = 'waiting' AND m.target = :target AND m.due_at <= {now}
  AND (m.leased_until IS NULL OR m.leased_until < {now})
ORDER BY m.due_at, m.id LIMIT :limit::integer {lock_free m}

-- name: lease_messages
-- Counts the attempt before it is made.
UPDATE {schema}.alert_messages
SET attempts = attempts + 1, leased_until = {now} + {seconds :lease}, worker = :worker
WHERE id IN {list :ids uuid} RETURNING *

-- name: message_sent
UPDATE {schema}.alert_messages
SET state = 'sent', sent_at = {now}, due_at = NULL, leased_until = NULL, error = NULL
WHERE id = :id AND attempts = :attempt AND state = 'waiting' RETURNING id

-- name: message_not_sent
-- Tried again later; without :due_in, it has failed.
UPDATE {schema}.alert_messages
SET state = CASE WHEN :due_in::float8 IS NULL THEN 'failed' ELSE 'waiting' END, leased_until = NULL,
    due_at = {now} + {seconds :due_in::float8}, error = :error
WHERE id = :id AND attempts = :attempt AND state = 'waiting' RETURNING id

-- name: list_messages
-- The newest first.
SELECT * FROM {schema}.alert_messages
WHERE id < :before AND (:state::text IS NULL OR state = :state) AND (:target::text IS NULL OR target = :target)
ORDER BY id DESC LIMIT :limit::integer

-- name: count_messages
-- How many are in a state, made since :first, counted no further than :most.
SELECT count(*) AS n FROM (
    SELECT 1 FROM {schema}.alert_messages {indexed alert_messages_in_state}
    WHERE state = :state::text AND id >= :first::uuid LIMIT :most::integer) AS counted

-- name: late_messages
-- Targets with messages that are due for longer than :late.
SELECT target, count(*) AS n, min(due_at) AS since FROM {schema}.alert_messages
WHERE state = 'waiting' AND due_at < {now} - {seconds :late::float8} AND attempts = 0 GROUP BY target ORDER BY target

-- name: old_messages
SELECT id FROM {schema}.alert_messages WHERE id < :before ORDER BY id LIMIT :limit::integer

-- name: prune_messages
DELETE FROM {schema}.alert_messages WHERE id IN {list :ids uuid}
