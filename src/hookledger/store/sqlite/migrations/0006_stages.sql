-- Stages: several handlers for one event (decision 0056). PostgreSQL's file describes the columns.
ALTER TABLE events ADD COLUMN parent BLOB;
ALTER TABLE events ADD COLUMN stage TEXT CHECK (iif(parent IS NULL, stage IS NULL,
    stage IS NOT NULL AND length(stage) BETWEEN 1 AND 64 AND stage NOT GLOB '*[^A-Za-z0-9._-]*'
    AND substr(source, -length(stage) - 1) = '/' || stage));

CREATE UNIQUE INDEX events_stages ON events (parent, stage) WHERE parent IS NOT NULL;

DROP INDEX events_from_quarantine;
CREATE UNIQUE INDEX events_from_quarantine ON events (request_id, item) WHERE key_origin = 'quarantine' AND parent IS NULL;
