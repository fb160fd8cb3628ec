-- On whose behalf an event is, where a source hears of several accounts; and what a retry says of itself, which is lost
-- otherwise for duplicates, whose requests are not kept.

ALTER TABLE events ADD COLUMN account TEXT CHECK (length(account) <= 255);
ALTER TABLE deliveries ADD COLUMN retry TEXT CHECK (length(retry) <= 255);
CREATE INDEX events_of_account ON events (account, id) WHERE account IS NOT NULL;
