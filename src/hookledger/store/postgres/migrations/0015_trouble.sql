-- What an operator must see: workers that stopped, effects that are not over, events with an effect whose outcome is
-- unknown. The index first: heartbeats write into workers, and must not wait until it is built. No row is waited for at
-- the end: nobody who holds one of them waits for us.

-- Effects by state, the newest event first. Those that are started are found by their lease.
CREATE INDEX effects_open ON {schema}.effects (state, event_id, identity)
    WHERE state IN ('planned', 'failed', 'unknown');

ALTER TABLE {schema}.workers ADD COLUMN left_at timestamptz;

-- Until now only those were marked that nobody would go on with.
UPDATE {schema}.events SET attention = true
WHERE id IN (
    SELECT v.id FROM {schema}.events AS v
    WHERE NOT v.attention AND v.id IN (SELECT event_id FROM {schema}.effects WHERE state = 'unknown')
    FOR NO KEY UPDATE SKIP LOCKED);
