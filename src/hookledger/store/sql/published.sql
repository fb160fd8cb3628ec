-- name: keep_published_key
-- The newer one stays, whichever is written last.
INSERT INTO {schema}.published_keys AS known (digest, provider, url, content, lifetime, fetched_at)
VALUES (:digest, :provider, :url, :content, :lifetime, {now} - {seconds :age})
ON CONFLICT (digest) DO UPDATE
SET provider = excluded.provider, url = excluded.url, content = excluded.content, lifetime = excluded.lifetime,
    fetched_at = excluded.fetched_at
WHERE known.fetched_at < excluded.fetched_at

-- name: trim_published_keys
-- All but the newest of one provider.
DELETE FROM {schema}.published_keys WHERE provider = :provider AND digest NOT IN (
    SELECT digest FROM {schema}.published_keys WHERE provider = :provider ORDER BY fetched_at DESC, digest LIMIT :most)

-- name: published_keys
SELECT digest, provider, url, content, lifetime, {elapsed {now} - fetched_at} AS age FROM {schema}.published_keys
