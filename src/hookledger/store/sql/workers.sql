-- name: register
INSERT INTO {schema}.workers (id, handles, versions, started_at, seen_at)
VALUES (:worker, :handles, :versions, {now}, {now})
ON CONFLICT (id) DO UPDATE SET handles = excluded.handles, versions = excluded.versions, seen_at = excluded.seen_at, stopped_at = NULL

-- name: workers
SELECT id, handles, versions, {elapsed {now} - seen_at} AS seen_ago, stopped_at FROM {schema}.workers

-- name: leave
-- A worker that stopped. What it handled is still known: a deploy may be replacing it.
UPDATE {schema}.workers SET stopped_at = {now} WHERE id = :worker

-- name: forget_workers
DELETE FROM {schema}.workers WHERE seen_at < {now} - {seconds :unseen_for}

-- name: know_sources
INSERT INTO {schema}.sources (name) SELECT g.name FROM {rows :names name text} AS g WHERE true ON CONFLICT DO NOTHING

-- name: held
-- What a worker holds, whether it knows or not: the answer to its claim may have been lost.
SELECT id, claim FROM {schema}.events {indexed events_leased}
WHERE leased_until IS NOT NULL AND state = 'processing' AND worker = :worker

-- name: expired
-- Leases that have expired.
SELECT id, claim, source, type, version, attempts, crashes, {elapsed {now} - run_started_at} AS run_age, worker
FROM {schema}.events {indexed events_leased} WHERE state = 'processing' AND leased_until < {now}
ORDER BY leased_until LIMIT :limit

-- name: reclaim
-- processing -> retrying or failed, if the lease is still expired and the claim still that one.
UPDATE {schema}.events AS e
SET state = CASE WHEN o.due_in IS NULL THEN 'failed' ELSE 'retrying' END,
    claim = e.claim + 1, crashes = e.crashes + 1, leased_until = NULL, reason = o.words,
    error = 'the worker crashed, froze or lost its connection', cause = 'the worker died',
    due_at = {now} + {seconds o.due_in}, finished_at = CASE WHEN o.due_in IS NULL THEN {now} END,
    approval_id = CASE WHEN o.due_in IS NOT NULL THEN e.approval_id END
FROM {rows :reclaims seen_id uuid, seen_claim bigint, due_in float8, words text} AS o
WHERE e.id = o.seen_id AND e.claim = o.seen_claim AND e.state = 'processing' AND e.leased_until < {now}
RETURNING id, claim - 1 AS claim, run, worker, claimed_at, error

-- name: add_crashed_attempts
-- The attempts that ended so.
INSERT INTO {schema}.attempts (event_id, claim, run, worker, started_at, ended_at, outcome, error)
SELECT a.event_id, a.claim, a.run, a.worker, a.started_at, {now}, {crashed}, a.error
FROM {rows :attempts event_id uuid, claim bigint, run integer, worker text, started_at timestamptz, error text} AS a

-- name: may_run
-- Whether a kind is not paused.
SELECT 1 FROM (SELECT :source::text AS source, :type::text AS type) AS k WHERE {not_paused}

-- name: unhandled
-- The longest due of a kind. An event that was ever claimed had a handler then.
SELECT id FROM {schema}.events {indexed events_waiting}
WHERE source = :source AND type = :type AND version = :version AND state IN ('pending', 'retrying') AND crashes < 2
  AND due_at <= {now} - {seconds :older_than} AND state = 'pending'
ORDER BY due_at LIMIT :limit {lock_free events}

-- name: unhandled_alone
-- The same for those that crashed their workers.
SELECT id FROM {schema}.events {indexed events_waiting_alone}
WHERE source = :source AND type = :type AND version = :version AND state IN ('pending', 'retrying') AND crashes >= 2
  AND due_at <= {now} - {seconds :older_than} AND state = 'pending'
ORDER BY due_at LIMIT :limit {lock_free events}

-- name: skip_unhandled
-- pending -> skipped.
UPDATE {schema}.events
SET state = 'skipped', reason = 'no handler', alert = NULL, due_at = NULL, finished_at = {now}, approval_id = NULL
WHERE id IN {list :events uuid} AND state = 'pending'
RETURNING id
