-- SQLite's dialect of published keys. Times are microseconds.

-- name: keep
-- The newer one stays, whoever writes last.
INSERT INTO published_keys (digest, provider, url, content, lifetime, fetched_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (digest) DO UPDATE
SET provider = excluded.provider, url = excluded.url, content = excluded.content, lifetime = excluded.lifetime,
    fetched_at = excluded.fetched_at
WHERE published_keys.fetched_at < excluded.fetched_at

-- name: trim
-- All but the newest of one provider.
DELETE FROM published_keys WHERE digest IN (
    SELECT digest FROM published_keys WHERE provider = ? ORDER BY fetched_at DESC, digest LIMIT -1 OFFSET ?)

-- name: kept
-- All of them, with their age in seconds.
SELECT digest, provider, url, content, lifetime, (?1 - fetched_at) / 1e6 AS age FROM published_keys
