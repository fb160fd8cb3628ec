-- Alerts to people (decision 0058).

-- When events became dead letters: a look reads those since the last one. Rare rows only, as in events_in_state.
CREATE INDEX events_failed_at ON {schema}.events (finished_at) WHERE state = 'failed';

-- What a process reported by `raise_`, because no other table shows it.
CREATE TABLE {schema}.alert_conditions (
    kind      text COLLATE "C" NOT NULL CHECK (kind <> ''),
    subject   text COLLATE "C" NOT NULL CHECK (length(subject) <= 255),
    words     text NOT NULL CHECK (length(words) <= 500),
    count     bigint NOT NULL CHECK (count > 0),
    raised_at timestamptz NOT NULL,
    PRIMARY KEY (kind, subject)
);

-- How far the looks of each target have come: for each kind the moment from which on it reads, and digests of what it
-- has seen. The row of kind '' is locked by the process that looks.
CREATE TABLE {schema}.alert_looks (
    target   text COLLATE "C" NOT NULL CHECK (target <> ''),
    kind     text COLLATE "C" NOT NULL,
    since_at timestamptz NOT NULL,
    seen     bytea NOT NULL,
    PRIMARY KEY (target, kind)
);

-- One message to one target about one topic in one window of time. topic: a digest of what makes several occurrences one
-- message, such as a cause; '' for the topics over the limit of a window, whose digests are in `topics`. follows: whether
-- the window before it has a message about the same topic. attempts is also the fence of its lease.
CREATE TABLE {schema}.alert_messages (
    id           uuid PRIMARY KEY,
    target       text COLLATE "C" NOT NULL CHECK (length(target) BETWEEN 1 AND 64),
    kind         text COLLATE "C" NOT NULL CHECK (kind <> ''),
    topic        text COLLATE "C" NOT NULL CHECK (length(topic) <= 64),
    window_at    timestamptz NOT NULL,
    subject      text NOT NULL CHECK (length(subject) <= 255),
    words        text NOT NULL CHECK (length(words) <= 500),
    event_id     uuid,
    count        bigint NOT NULL CHECK (count > 0),
    topics       bytea NOT NULL,
    follows      boolean NOT NULL,
    first_at     timestamptz NOT NULL,
    last_at      timestamptz NOT NULL,
    state        text NOT NULL CHECK (state IN ('waiting', 'sent', 'failed')),
    attempts     integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    due_at       timestamptz,
    leased_until timestamptz,
    worker       text,
    sent_at      timestamptz,
    error        text CHECK (length(error) BETWEEN 1 AND 500),
    CONSTRAINT first_before_last CHECK (first_at <= last_at),
    CONSTRAINT due_while_waiting CHECK ((state = 'waiting') = (due_at IS NOT NULL)),
    CONSTRAINT leased_while_waiting CHECK (leased_until IS NULL OR (state = 'waiting' AND worker IS NOT NULL)),
    CONSTRAINT sent_by_attempt CHECK ((state = 'sent') = (sent_at IS NOT NULL) AND (state <> 'sent' OR attempts > 0)),
    CONSTRAINT failed_with_error CHECK (state <> 'failed' OR error IS NOT NULL)
);
-- One message for each topic and window, however many processes look.
CREATE UNIQUE INDEX alert_messages_of_window ON {schema}.alert_messages (target, kind, topic, window_at);
CREATE INDEX alert_messages_recent ON {schema}.alert_messages (target, window_at);
CREATE INDEX alert_messages_due ON {schema}.alert_messages (target, due_at) WHERE state = 'waiting';
CREATE INDEX alert_messages_in_state ON {schema}.alert_messages (state, id);
