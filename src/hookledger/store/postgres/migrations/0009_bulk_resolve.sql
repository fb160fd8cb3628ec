-- Jobs that decide unknown effects: which effects, how, and under which fence each was frozen.

ALTER TABLE {schema}.jobs DROP CONSTRAINT jobs_name_check;
ALTER TABLE {schema}.jobs ADD CONSTRAINT jobs_name_check CHECK (name IN ('retry', 'replay', 'discard', 'resolve'));
ALTER TABLE {schema}.jobs ADD COLUMN effect text CHECK (effect <> '');
ALTER TABLE {schema}.jobs ADD COLUMN decision text CHECK (decision IN ('happened', 'did_not_happen'));
ALTER TABLE {schema}.jobs ADD COLUMN effects bigint CHECK (effects > 0);
ALTER TABLE {schema}.jobs ADD CONSTRAINT decision_to_resolve
    CHECK ((name = 'resolve') = (decision IS NOT NULL) AND (decision IS NULL) = (effect IS NULL)
           AND (decision IS NULL) = (effects IS NULL));
ALTER TABLE {schema}.jobs ADD CONSTRAINT an_effect_of_each_event CHECK (effects >= total);

-- The effects of the frozen events that are to be decided. Whoever changes an effect gives it a new fence: what was
-- frozen can never be decided about a later call.
CREATE TABLE {schema}.job_effects (
    job_id   uuid NOT NULL,
    event_id uuid NOT NULL,
    identity bytea NOT NULL CHECK (octet_length(identity) = 32),
    fence    bigint NOT NULL CHECK (fence >= 0),
    PRIMARY KEY (job_id, event_id, identity)
);

-- What nobody knows, by name. Few effects are in it at any time.
CREATE INDEX effects_in_doubt ON {schema}.effects (name, event_id) WHERE state = 'unknown';
