-- Alerts to people (decision 0058). PostgreSQL's file describes the tables.

CREATE INDEX events_failed_at ON events (finished_at) WHERE state = 'failed';

CREATE TABLE alert_conditions (
    kind      TEXT NOT NULL CHECK (kind <> ''),
    subject   TEXT NOT NULL CHECK (length(subject) <= 255),
    words     TEXT NOT NULL CHECK (length(words) <= 500),
    count     INTEGER NOT NULL CHECK (count > 0),
    raised_at INTEGER NOT NULL,
    PRIMARY KEY (kind, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE alert_looks (
    target   TEXT NOT NULL CHECK (target <> ''),
    kind     TEXT NOT NULL,
    since_at INTEGER NOT NULL,
    seen     BLOB NOT NULL,
    PRIMARY KEY (target, kind)
) STRICT;

CREATE TABLE alert_messages (
    id           BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    target       TEXT NOT NULL CHECK (length(target) BETWEEN 1 AND 64),
    kind         TEXT NOT NULL CHECK (kind <> ''),
    topic        TEXT NOT NULL CHECK (length(topic) <= 64),
    window_at    INTEGER NOT NULL,
    subject      TEXT NOT NULL CHECK (length(subject) <= 255),
    words        TEXT NOT NULL CHECK (length(words) <= 500),
    event_id     BLOB,
    count        INTEGER NOT NULL CHECK (count > 0),
    topics       BLOB NOT NULL,
    follows      INTEGER NOT NULL CHECK (follows IN (0, 1)),
    first_at     INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('waiting', 'sent', 'failed')),
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    due_at       INTEGER,
    leased_until INTEGER,
    worker       TEXT,
    sent_at      INTEGER,
    error        TEXT CHECK (length(error) BETWEEN 1 AND 500),
    CONSTRAINT first_before_last CHECK (first_at <= last_at),
    CONSTRAINT due_while_waiting CHECK ((state = 'waiting') = (due_at IS NOT NULL)),
    CONSTRAINT leased_while_waiting CHECK (leased_until IS NULL OR (state = 'waiting' AND worker IS NOT NULL)),
    CONSTRAINT sent_by_attempt CHECK ((state = 'sent') = (sent_at IS NOT NULL) AND (state <> 'sent' OR attempts > 0)),
    CONSTRAINT failed_with_error CHECK (state <> 'failed' OR error IS NOT NULL)
) STRICT;
CREATE UNIQUE INDEX alert_messages_of_window ON alert_messages (target, kind, topic, window_at);
CREATE INDEX alert_messages_recent ON alert_messages (target, window_at);
CREATE INDEX alert_messages_due ON alert_messages (target, due_at) WHERE state = 'waiting';
CREATE INDEX alert_messages_in_state ON alert_messages (state, id);
