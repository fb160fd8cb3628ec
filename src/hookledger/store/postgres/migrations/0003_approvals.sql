-- approval_id: the audit log entry by which an operator let the event pass its review. It holds for the run that the
-- entry began, and is gone when that run is over or has another review.
-- The constraint is not validated: no row has an approval yet, and reading all events would hold up the intake.
ALTER TABLE {schema}.events ADD COLUMN approval_id uuid;
ALTER TABLE {schema}.events ADD CONSTRAINT approved_while_open
    CHECK (approval_id IS NULL OR (run > 1 AND state = ANY ('{pending,processing,retrying}'))) NOT VALID;
