-- The last ticket given out; the row comes with the first. A table and not a sequence, so that a copy of the inbox has
-- it too, and because a sequence may repeat numbers after a crash that were drawn without a durable commit.
CREATE TABLE {schema}.tickets (
    one  integer PRIMARY KEY CHECK (one = 1),
    last bigint NOT NULL CHECK (last > 0)
);
