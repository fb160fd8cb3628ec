-- The last ticket given out; the row comes with the first.
CREATE TABLE tickets (
    one  INTEGER PRIMARY KEY NOT NULL CHECK (one = 1),
    last INTEGER NOT NULL CHECK (last > 0)
) STRICT;
