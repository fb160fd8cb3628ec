-- name: import_keys
-- Keys whose events were processed elsewhere. Sorted, as at intake, so that both queue and do not deadlock.
INSERT INTO {schema}.identities (identity, kind, source, event_id, fingerprint)
SELECT given.identity, 'key', :source::text, :action::uuid, :nothing::bytea
FROM {rows :identities identity bytea} AS given
WHERE true ORDER BY given.identity
ON CONFLICT DO NOTHING
RETURNING identity

-- name: known_keys
SELECT identity FROM {schema}.identities WHERE identity IN {list :identities bytea}
