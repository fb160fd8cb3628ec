-- Each names the review that it answers: the claim number that the event had when it was read.

-- name: review_seen
-- Why the event is in review, if that is the review that was seen.
SELECT reason FROM {schema}.events WHERE id = :event_id AND state = 'needs_review' AND claim = :seen

-- name: review_now
-- The review that it has now, whichever was seen.
SELECT claim, reason FROM {schema}.events WHERE id = :event_id AND state = 'needs_review'

-- name: approve
-- needs_review -> pending, as a new run with a fresh budget; an event that crashed twice still runs alone.
UPDATE {schema}.events
SET state = 'pending', run = run + 1, claim = claim + 1, due_at = {now}, attempts = 0, snoozes = 0,
    crashes = {least}(crashes, 2), run_started_at = {now}, reason = NULL, cause = NULL, alert = NULL,
    approval_id = :action_id
WHERE id = :event_id AND state = 'needs_review' AND claim = :seen
RETURNING run

-- name: reject
-- needs_review -> discarded.
UPDATE {schema}.events
SET state = 'discarded', claim = claim + 1, finished_at = {now}, reason = substr(:reason::text, 1, 500), cause = NULL,
    alert = NULL
WHERE id = :event_id AND state = 'needs_review' AND claim = :seen
RETURNING run

-- name: settle_by_hand
-- needs_review -> processed. The attempt keeps the error.
UPDATE {schema}.events
SET state = 'processed', claim = claim + 1, finished_at = {now},
    first_processed_at = coalesce(first_processed_at, {now}),
    reason = substr('settled by hand: ' || :reason::text, 1, 500), error = NULL, cause = NULL, alert = NULL
WHERE id = :event_id AND state = 'needs_review' AND claim = :seen
RETURNING run

-- name: settled_by_hand
SELECT id FROM {schema}.events
WHERE id = :event_id AND state = 'processed' AND substr(reason, 1, 16) = 'settled by hand:'

-- name: approval
SELECT actor, at, reason FROM {schema}.actions WHERE id = :approval_id AND name = 'approve'
