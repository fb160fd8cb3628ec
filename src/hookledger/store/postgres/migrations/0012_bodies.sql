-- A body is known whatever type a header claims for it; until now its identity held the type. What was recorded before
-- gets the identity that the intake asks for now, or a captured body would be an event once more. The older identities
-- stay: a type that may share its body asks for them too.

-- In the order of the intake, which may be at work.
INSERT INTO {schema}.identities (identity, kind, source, event_id, fingerprint)
SELECT sha256(convert_to(octet_length(source) || ':' || source || '4:body0:32:', 'UTF8') || fingerprint) AS identity,
       'body', source, event_id, fingerprint
FROM (SELECT DISTINCT ON (source, fingerprint) source, event_id, fingerprint FROM {schema}.identities
      WHERE kind = 'body' AND octet_length(fingerprint) = 32 ORDER BY source, fingerprint, event_id) AS first
ORDER BY identity
ON CONFLICT DO NOTHING;
