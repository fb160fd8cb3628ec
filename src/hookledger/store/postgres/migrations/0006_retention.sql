-- What retention and erasure leave behind. Identities and effects stay for ever; what belonged to an event that is gone
-- is known by its row in `pruned`, so that a row that points at nothing is still a loss and is found.

CREATE TABLE {schema}.pruned (
    event_id  uuid PRIMARY KEY,
    source    text COLLATE "C" NOT NULL,
    state     text COLLATE "C" NOT NULL CHECK (state IN ('processed', 'skipped', 'failed', 'discarded')),
    pruned_at timestamptz NOT NULL
);

-- How far each walk of the pruning has come, and when it began.
CREATE TABLE {schema}.walks (
    name       text COLLATE "C" PRIMARY KEY,
    position   uuid NOT NULL,
    started_at timestamptz NOT NULL
);

-- What only one process does at a time.
CREATE TABLE {schema}.turns (
    name   text COLLATE "C" PRIMARY KEY,
    holder text NOT NULL CHECK (holder <> ''),
    until  timestamptz NOT NULL
);

-- Nobody is there yet who could break these: NOT VALID spares a look at every row.
ALTER TABLE {schema}.requests ADD COLUMN emptied_at timestamptz;
ALTER TABLE {schema}.requests ADD CONSTRAINT emptied_is_empty
    CHECK (emptied_at IS NULL OR (body = '' AND headers = '' AND query = '' AND remote IS NULL)) NOT VALID;
-- An event whose bytes are gone can never be claimed again.
ALTER TABLE {schema}.events ADD COLUMN emptied_at timestamptz;
ALTER TABLE {schema}.events ADD CONSTRAINT emptied_when_final
    CHECK (emptied_at IS NULL OR state IN ('processed', 'skipped', 'failed', 'discarded')) NOT VALID;
