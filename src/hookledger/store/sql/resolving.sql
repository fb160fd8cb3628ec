-- name: resolve_effect
UPDATE {schema}.effects
SET state = :target::text, fence = fence + 1, alert = NULL, leased_until = NULL,
    decided = coalesce(:decided::text, decided),
    decided_number = CASE WHEN :decided::text IS NULL THEN decided_number ELSE number END,
    result = CASE WHEN :target::text = 'done' THEN coalesce(:result::bytea, result) END,
    error = CASE WHEN :target::text = 'done' THEN NULL ELSE error END,
    finished_at = CASE WHEN :target::text IN ('done', 'cancelled') THEN coalesce(finished_at, {now}) END,
    due_at = CASE WHEN :target::text = 'planned' AND kind = 'later' THEN {now} END,
    planned_at = CASE WHEN :target::text = 'planned' THEN {now} ELSE planned_at END,
    tries = CASE WHEN :target::text = 'planned' THEN 0 ELSE tries END
WHERE identity = :identity AND fence = :fence AND state = :state
RETURNING event_id

-- name: keep_replaced
-- The result that a decision removed or changed.
UPDATE {schema}.actions SET replaced = :replaced WHERE id = :id

-- name: try_effect
-- planned, failed -> planned; an unknown outcome stays so. Due now, with a fresh budget.
UPDATE {schema}.effects
SET state = CASE state WHEN 'unknown' THEN 'unknown' ELSE 'planned' END, fence = fence + 1, due_at = {now},
    planned_at = {now}, tries = 0
WHERE identity = :identity AND fence = :fence AND kind = 'later' AND state IN ('planned', 'failed', 'unknown')
  AND leased_until IS NULL
RETURNING event_id, state

-- name: lock_effects
-- In the order in which everyone locks them.
SELECT identity FROM {schema}.effects WHERE identity IN {list :identities bytea} ORDER BY identity {lock}
