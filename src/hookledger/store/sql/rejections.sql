-- name: lock_rejections
-- One at a time keeps to the budget: two that do not see each other's rows would both stop short of it. And a stranger's
-- request must not make the disk sync: nothing is promised about it.
SELECT set_config('synchronous_commit', 'off', true),
       pg_advisory_xact_lock(hashtextextended('hookledger:rejections', 0))

-- name: lock_rejections (sqlite)
-- Differs because every write runs alone, and there is one setting for all commits.
SELECT 1

-- name: count_rejections
-- All of what was refused.
INSERT INTO {schema}.rejection_counts AS c (source, reason, count, first_at, last_at)
SELECT given.source, given.reason, given.count, clock.now, clock.now
FROM {rows :numbers source text, reason text, count bigint} AS given, (SELECT {now} AS now) AS clock
WHERE true
ON CONFLICT (source, reason) DO UPDATE
SET count = c.count + excluded.count, last_at = {greatest}(c.last_at, excluded.last_at)

-- name: keep_rejection
INSERT INTO {schema}.rejections (id, source, reason, received_at, method, path, query, headers, body, remote)
VALUES (:id, :source, :reason, {now}, :method, :path, :query, :headers, :body, :remote)
ON CONFLICT DO NOTHING

-- name: trim_rejections
-- The oldest over the budget of each of these sources go.
DELETE FROM {schema}.rejections WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER newer AS nth,
               sum(length(query) + length(headers) + length(body)) OVER newer AS bytes
        FROM {schema}.rejections WHERE source IN {list :sources text}
        WINDOW newer AS (PARTITION BY source ORDER BY id DESC ROWS UNBOUNDED PRECEDING)
    ) AS ranked WHERE nth > :most OR bytes > :most_bytes)

-- name: trim_rejections (postgres)
-- Differs because the planner expects many ids and would read the whole sample: they are looked up as an array.
DELETE FROM {schema}.rejections WHERE id = ANY(ARRAY(
    SELECT r.id FROM unnest(:sources::text[]) AS s (source) CROSS JOIN LATERAL (
        SELECT id, row_number() OVER newer AS nth,
               sum(length(query) + length(headers) + length(body)) OVER newer AS bytes
        FROM {schema}.rejections WHERE source = s.source
        WINDOW newer AS (ORDER BY id DESC ROWS UNBOUNDED PRECEDING)
    ) AS r WHERE r.nth > :most OR r.bytes > :most_bytes
))

-- name: list_rejections
-- The newest first; the id is time-ordered.
SELECT * FROM {schema}.rejections
WHERE (:source::text IS NULL OR source = :source) AND (:reason::text IS NULL OR reason = :reason) AND id < :before
ORDER BY id DESC LIMIT :limit

-- name: rejection_counts
SELECT c.*, (SELECT count(*) FROM {schema}.rejections AS r WHERE r.source = c.source AND r.reason = c.reason) AS kept
FROM {schema}.rejection_counts AS c ORDER BY c.source, c.reason

-- name: take_rejection
-- Out of the sample; it stays counted.
DELETE FROM {schema}.rejections WHERE id = :id RETURNING id
