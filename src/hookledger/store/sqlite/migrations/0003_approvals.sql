-- approval_id: the audit log entry by which an operator let the event pass its review. It holds for the run that the
-- entry began, and is gone when that run is over or has another review.
ALTER TABLE events ADD COLUMN approval_id BLOB CONSTRAINT approved_while_open CHECK (
    approval_id IS NULL
    OR (length(approval_id) = 16 AND run > 1 AND state IN ('pending', 'processing', 'retrying')));
