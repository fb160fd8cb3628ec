-- The same as PostgreSQL's 0012_bodies. sha256() is ours: SQLite has none, and `migrate` brings it along.

INSERT INTO identities (identity, kind, source, event_id, fingerprint)
SELECT sha256(CAST(length(CAST(source AS BLOB)) || ':' || source || '4:body0:32:' AS BLOB), fingerprint), 'body', source,
       min(event_id), fingerprint
FROM identities WHERE kind = 'body' AND length(fingerprint) = 32
GROUP BY source, fingerprint
ON CONFLICT DO NOTHING;
