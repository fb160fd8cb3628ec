-- PostgreSQL's dialect of published keys; {schema} and {clock} as in queries.sql.

-- name: begin
-- It can be fetched again, so no commit waits for the disk.
BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '10s'

-- name: keep
-- The newer one stays, whoever writes last.
INSERT INTO {schema}.published_keys AS known (digest, provider, url, content, lifetime, fetched_at)
VALUES ($1, $2, $3, $4, $5, {clock} - make_interval(secs => $6))
ON CONFLICT (digest) DO UPDATE
SET provider = excluded.provider, url = excluded.url, content = excluded.content, lifetime = excluded.lifetime,
    fetched_at = excluded.fetched_at
WHERE known.fetched_at < excluded.fetched_at

-- name: trim
-- All but the newest of one provider.
DELETE FROM {schema}.published_keys WHERE digest IN (
    SELECT digest FROM {schema}.published_keys WHERE provider = $1 ORDER BY fetched_at DESC, digest OFFSET $2)

-- name: kept
-- All of them, with their age in seconds.
SELECT digest, provider, url, content, lifetime, extract(epoch FROM {clock} - fetched_at)::float8 AS age
FROM {schema}.published_keys
