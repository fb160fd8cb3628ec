-- name: number_rates
-- The batch is the next of its process; no row: it was written before.
INSERT INTO {schema}.rate_writers AS w (process, number, seen_at) VALUES (:process, :number, {now})
ON CONFLICT (process) DO UPDATE SET number = excluded.number, seen_at = excluded.seen_at
WHERE w.number < excluded.number
RETURNING process

-- name: rates_now
SELECT {now} AS now_at

-- name: add_rates
INSERT INTO {schema}.rates AS r (step, at, source, what, process, n)
SELECT :step::integer, :at::timestamptz, given.source, given.what, :process::text, given.n
FROM {rows :counts source text, what text, n bigint} AS given WHERE true
ON CONFLICT (step, at, source, what, process) DO UPDATE SET n = r.n + excluded.n

-- name: oldest_rate
SELECT at AS began_at, {now} AS now_at FROM {schema}.rates WHERE step = :step::integer ORDER BY at LIMIT 1

-- name: take_rates
DELETE FROM {schema}.rates WHERE step = :step::integer AND at >= :since::timestamptz AND at < :until::timestamptz
RETURNING source, what, n

-- name: forget_rate_writers
DELETE FROM {schema}.rate_writers WHERE seen_at < {now} - {seconds :unseen_for}

-- name: rate_bucket
date_bin(make_interval(secs => :step::integer), at, '1970-01-01T00:00Z'::timestamptz)

-- name: rate_bucket (sqlite)
-- Differs because SQLite keeps times as microseconds.
at / (:step * 1000000) * (:step * 1000000)

-- name: read_rates
-- The counts of each step of time; rows of shorter steps, which are not summed yet, are part of it.
SELECT {rate_bucket} AS began_at, source, what, sum(n)::bigint AS n FROM {schema}.rates
WHERE step IN {list :steps integer} AND at >= :since::timestamptz AND at < :until::timestamptz
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT :limit::integer

-- name: read_rates_of_source
SELECT {rate_bucket} AS began_at, source, what, sum(n)::bigint AS n FROM {schema}.rates
WHERE step IN {list :steps integer} AND at >= :since::timestamptz AND at < :until::timestamptz
  AND source = :source::text
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT :limit::integer
