-- The same as PostgreSQL's 0015_trouble.

ALTER TABLE workers ADD COLUMN left_at INTEGER;

CREATE INDEX effects_open ON effects (state, event_id, identity) WHERE state IN ('planned', 'failed', 'unknown');

UPDATE events SET attention = 1
WHERE attention = 0 AND id IN (SELECT event_id FROM effects INDEXED BY effects_in_doubt WHERE state = 'unknown');
