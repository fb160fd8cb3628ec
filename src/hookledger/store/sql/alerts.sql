-- name: count_again
-- Deliveries after the first of each event, counted no further than 1,000.
SELECT given.id, (
    SELECT count(*) FROM (
        SELECT 1 FROM {schema}.deliveries AS d
        WHERE d.event_id = given.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled') LIMIT 1000
    ) AS counted
) AS n FROM {rows :ids id uuid} AS given

-- name: mark_alert
UPDATE {schema}.events SET alert = :words
WHERE id = :id AND state IN ('failed', 'retrying', 'processing', 'needs_review') AND alert IS NULL
RETURNING state

-- name: state_to_warn
-- The state of an event that a quarantined delivery met, unless its audit log has these words. It may be finished or
-- pruned.
SELECT coalesce((SELECT state FROM {schema}.events WHERE id = :id), 'pruned') AS state
WHERE NOT EXISTS (SELECT 1 FROM {schema}.actions WHERE event_id = :id AND name = 'alert' AND reason = :words)
