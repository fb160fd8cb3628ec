-- The last ticket given out; the row comes with the first. A table and not a sequence, so that a copy of the inbox has
-- it too.
CREATE TABLE {schema}.tickets (
    one  integer PRIMARY KEY CHECK (one = 1),
    last bigint NOT NULL CHECK (last > 0)
);
