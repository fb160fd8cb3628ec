-- The answers that handlers gave (decision 0061): a redelivery gets the same bytes.
--
-- One for each event: that of the first run that answered, until it expires. headers: in wire form, as the handler set
-- them. A status is 2xx, or the 4xx of an application's own route that keeps those.
CREATE TABLE {schema}.answers (
    event_id    uuid PRIMARY KEY,
    run         integer NOT NULL CHECK (run >= 1),
    status      smallint NOT NULL CHECK (status BETWEEN 200 AND 299 OR status BETWEEN 400 AND 499),
    headers     bytea NOT NULL,
    body        bytea NOT NULL,
    answered_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    CONSTRAINT answers_expire_later CHECK (expires_at > answered_at)
);
-- As for requests: compressing costs the answer more CPU than the disk it saves.
ALTER TABLE {schema}.answers ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX answers_expiring ON {schema}.answers (expires_at);
