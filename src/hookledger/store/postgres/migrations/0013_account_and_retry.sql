-- On whose behalf an event is, where a source hears of several accounts; and what a retry says of itself, which is lost
-- otherwise for duplicates, whose requests are not kept.

-- First of all, and in the order in which the intake comes to them: it may be at work.
LOCK TABLE {schema}.events, {schema}.deliveries IN ACCESS EXCLUSIVE MODE;

ALTER TABLE {schema}.events ADD COLUMN account text CHECK (length(account) <= 255);
ALTER TABLE {schema}.deliveries ADD COLUMN retry text CHECK (length(retry) <= 255);
ALTER TYPE {schema}.arrival ADD ATTRIBUTE account text, ADD ATTRIBUTE retry text;
CREATE INDEX events_of_account ON {schema}.events (account, id) WHERE account IS NOT NULL;
