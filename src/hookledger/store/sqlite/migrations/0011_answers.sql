-- The answers that handlers gave (decision 0061). PostgreSQL's file describes the columns.
CREATE TABLE answers (
    event_id    BLOB PRIMARY KEY NOT NULL CHECK (length(event_id) = 16),
    run         INTEGER NOT NULL CHECK (run >= 1),
    status      INTEGER NOT NULL CHECK (status BETWEEN 200 AND 299 OR status BETWEEN 400 AND 499),
    headers     BLOB NOT NULL,
    body        BLOB NOT NULL,
    answered_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    CONSTRAINT answers_expire_later CHECK (expires_at > answered_at)
) STRICT;
CREATE INDEX answers_expiring ON answers (expires_at);
