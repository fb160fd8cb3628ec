-- Fields of events by source, and how far events were looked at.

-- name: schema_look
SELECT last_id, looked_at, full_at FROM {schema}.schema_looks WHERE source = :source

-- name: advance_schema_look
-- No row: another process has looked as far.
INSERT INTO {schema}.schema_looks AS l (source, last_id, looked_at) VALUES (:source, :last_id, {now})
ON CONFLICT (source) DO UPDATE SET last_id = excluded.last_id, looked_at = excluded.looked_at WHERE l.last_id < excluded.last_id
RETURNING source

-- name: known_schema_fields
SELECT identity, type FROM {schema}.schema_fields WHERE source = :source

-- name: add_schema_fields
INSERT INTO {schema}.schema_fields (source, identity, type, field, kind, first_at, event_id)
SELECT :source::text, given.identity, given.type, given.field, given.kind, given.first_at, given.event_id
FROM {rows :given identity bytea, type text, field text, kind text, first_at timestamptz, event_id uuid} AS given
WHERE true ON CONFLICT DO NOTHING

-- name: schema_fields_full
UPDATE {schema}.schema_looks SET full_at = {now} WHERE source = :source AND full_at IS NULL

-- name: schema_fields_of
-- At most MOST rows.
SELECT type, field, kind, first_at, event_id FROM {schema}.schema_fields
WHERE source = :source ORDER BY first_at DESC, type, field, kind
