-- PostgreSQL reads a CHECK anew for each statement, and a list of texts that is one constant takes it half as long as one
-- that is made of constants: a tenth of its time for a group of arrivals went there. The same is refused, under the same
-- names; NOT VALID because the rows that are there have been through it.

-- First of all, and in the order in which the intake comes to them: it may be at work.
LOCK TABLE {schema}.identities, {schema}.events, {schema}.deliveries IN ACCESS EXCLUSIVE MODE;

ALTER TABLE {schema}.events
    DROP CONSTRAINT events_state_check,
    DROP CONSTRAINT events_key_origin_check,
    DROP CONSTRAINT due_while_waiting,
    DROP CONSTRAINT finished_when_final,
    DROP CONSTRAINT reason_given,
    DROP CONSTRAINT alert_while_open,
    DROP CONSTRAINT emptied_when_final;
ALTER TABLE {schema}.events
    ADD CONSTRAINT events_state_check CHECK (state = ANY (
        '{pending,processing,retrying,processed,skipped,failed,needs_review,discarded}')) NOT VALID,
    ADD CONSTRAINT events_key_origin_check CHECK (key_origin = ANY (
        '{signed_id,unsigned_id,composite,function,digest,arrival,admitted}')) NOT VALID,
    ADD CONSTRAINT due_while_waiting
        CHECK ((state = ANY ('{pending,retrying}')) = (due_at IS NOT NULL)) NOT VALID,
    ADD CONSTRAINT finished_when_final
        CHECK ((state = ANY ('{processed,skipped,failed,discarded}')) = (finished_at IS NOT NULL)) NOT VALID,
    ADD CONSTRAINT reason_given
        CHECK (state <> ALL ('{skipped,failed,needs_review,discarded}') OR reason IS NOT NULL) NOT VALID,
    ADD CONSTRAINT alert_while_open
        CHECK (alert IS NULL OR state <> ALL ('{processed,skipped,discarded}')) NOT VALID,
    ADD CONSTRAINT emptied_when_final
        CHECK (emptied_at IS NULL OR state = ANY ('{processed,skipped,failed,discarded}')) NOT VALID;

ALTER TABLE {schema}.deliveries DROP CONSTRAINT deliveries_outcome_check;
ALTER TABLE {schema}.deliveries ADD CONSTRAINT deliveries_outcome_check CHECK (outcome = ANY (
    '{accepted,duplicate,conflict,same_body,invalid,reconciled}')) NOT VALID;

ALTER TABLE {schema}.identities DROP CONSTRAINT identities_kind_check;
ALTER TABLE {schema}.identities ADD CONSTRAINT identities_kind_check
    CHECK (kind = ANY ('{key,body,admitted}')) NOT VALID;
