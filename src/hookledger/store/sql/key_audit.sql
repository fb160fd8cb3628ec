-- name: looked
-- The last events of a source.
SELECT id, type, key, key_origin, fingerprint FROM {schema}.events WHERE source = :source ORDER BY id DESC LIMIT :last

-- name: audit_origins
-- What their keys were made from.
SELECT key_origin, count(*) AS n FROM ({looked}) AS e GROUP BY key_origin

-- name: audit_redelivered
-- Their deliveries after the first.
SELECT d.outcome, count(*) AS n FROM ({looked}) AS e CROSS JOIN {schema}.deliveries AS d
WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled') GROUP BY d.outcome

-- name: audit_contents
-- Events that share type and content, up to three of each of the 20 largest groups; `total` is over all groups.
SELECT fingerprint, type, id, n, total FROM (
    SELECT shared.*, count(*) OVER () AS total, dense_rank() OVER (ORDER BY n DESC, fingerprint, type) AS place
    FROM (
        SELECT e.*, count(*) OVER (PARTITION BY type, fingerprint) AS n,
               row_number() OVER (PARTITION BY type, fingerprint ORDER BY id DESC) AS nth
        FROM ({looked}) AS e WHERE key_origin <> 'arrival'
    ) AS shared WHERE n > 1
) AS placed WHERE place <= 20 AND nth <= 3 ORDER BY place, nth

-- name: audit_quarantined
-- The events that the most deliveries of one outcome met.
SELECT e.id, e.key, e.fingerprint, e.type, count(*) AS n
FROM ({looked}) AS e CROSS JOIN {schema}.deliveries AS d
WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND d.outcome = :outcome
GROUP BY e.id, e.key, e.fingerprint, e.type ORDER BY n DESC, e.id LIMIT 20
