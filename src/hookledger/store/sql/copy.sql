-- name: copy_state
-- The copy that this inbox is a part of.
SELECT id, state, other, message, target_id, position, started_at FROM {schema}.copies

-- name: begin_copy
-- In the place of one that is complete; returns nothing where another is not.
INSERT INTO {schema}.copies (one, id, state, other, message, target_id, writing, started_at)
VALUES (true, :id, :state, :other, :message, :target_id, :writing, {now})
ON CONFLICT (one) DO UPDATE SET id = excluded.id, state = excluded.state, other = excluded.other,
    message = excluded.message, target_id = excluded.target_id, position = NULL, writing = excluded.writing,
    started_at = excluded.started_at
WHERE copies.state = 'complete'
RETURNING id

-- name: lock_copy
-- One process at a time changes the state of a copy.
SELECT id FROM {schema}.copies {lock}

-- name: change_copy
UPDATE {schema}.copies SET state = :state, message = :message, target_id = :target_id

-- name: forget_copy
-- What was abandoned.
DELETE FROM {schema}.copies

-- name: write_as_copy
-- Whether this transaction may write where others may not.
UPDATE {schema}.copies SET writing = :writing

-- name: advance_copy
-- Returns nothing when another process was faster, or the copy is over.
UPDATE {schema}.copies SET position = :position, writing = :writing
WHERE id = :id AND target_id = :target_id AND state = 'incomplete' AND position IS NOT DISTINCT FROM :before
RETURNING id

-- name: held_by_workers
-- What a worker may be at.
SELECT (SELECT count(*) FROM {schema}.events WHERE leased_until IS NOT NULL) AS events,
       (SELECT count(*) FROM {schema}.effects WHERE leased_until IS NOT NULL AND state = 'started') AS effects
