-- Identities come in no order, so each one is written into a page that holds its neighbours too. With the row beside the
-- key such a page holds 9 of them: now it holds 22 keys, and the rows stand one after the other elsewhere.
-- PostgreSQL's 0010_lighter_intake is about something else: its rows always stand so.

CREATE TABLE new_identities (
    identity    BLOB PRIMARY KEY NOT NULL CHECK (length(identity) = 32),
    kind        TEXT NOT NULL CHECK (kind IN ('key', 'body', 'admitted')),
    source      TEXT NOT NULL,
    event_id    BLOB NOT NULL,
    fingerprint BLOB NOT NULL
) STRICT;
INSERT INTO new_identities (identity, kind, source, event_id, fingerprint)
SELECT identity, kind, source, event_id, fingerprint
FROM identities;
DROP TABLE identities;
ALTER TABLE new_identities RENAME TO identities;
