-- Statements of the last release before schema 2 (commit 79a4420), word for word from its
-- store/postgres/queries.sql, with what it took from other files. A process of that release may run beside this one after
-- `hookledger migrate`: change nothing here.

-- name: not_paused
-- This kind `k` is not paused. A pattern that ends in `*` is every type with that prefix.
NOT EXISTS (SELECT 1 FROM {schema}.pauses AS p WHERE p.source = k.source AND (
    p.pattern = k.type OR substr(k.type, 1, length(p.pattern) - 1) || '*' = p.pattern))

-- name: attempt_outcome
-- The outcome of the attempt that `transition` ends; NULL where it ends none. That release made it of its transitions.
CASE transition WHEN 'complete' THEN 'processed' WHEN 'skip' THEN 'skipped' WHEN 'reschedule' THEN 'retrying'
    WHEN 'wait' THEN 'waiting' WHEN 'fail' THEN 'failed' WHEN 'review' THEN 'needs_review' END

-- name: applied
-- The newest migration applied; -1 in a database that was made before the first release.
SELECT CASE WHEN count(*) FILTER (WHERE version = 1 AND name <> 'initial') > 0 THEN -1 ELSE coalesce(max(version), 0) END
FROM {schema}.migrations

-- name: keep_requests
-- The bytes of arrivals `a`, exactly as received.
INSERT INTO {schema}.requests (id, source, received_at, query, headers, body, remote, scheme, secret, signed_at)
SELECT request_id, source, now, query, headers, body, remote, scheme, secret, to_timestamp(signed_at)

-- name: add_events
-- The events that they brought.
INSERT INTO {schema}.events (id, source, type, key, key_origin, provider_id, object_id, occurred_at,
                             fingerprint, request_id, item, received_at, run_started_at, state, reason,
                             due_at, finished_at, cause, account)
SELECT event_id, source, type, key, key_origin, provider_id, object_id, to_timestamp(occurred_at),
       fingerprint, request_id, item, now, now, state, reason,
       CASE WHEN state = 'pending' THEN now END, CASE WHEN state IN ('skipped', 'failed') THEN now END,
       CASE WHEN state IN ('failed', 'needs_review') THEN nullif(left(reason, 200), '') END, account

-- name: add_new
-- The usual case in one statement and one round trip: each arrival with a single identity that is free is recorded
-- whole; returns the new ones, and leaves the others alone. set_config is SET LOCAL for a statement: an ack must be
-- on disk whatever the server's default is.
WITH durably AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '5s', true)
), a AS MATERIALIZED (
    SELECT *, {now} AS now FROM unnest($1::{schema}.arrival[]), durably
), won AS (
    INSERT INTO {schema}.identities (identity, kind, source, event_id, fingerprint)
    SELECT identity, 'key', source, event_id, fingerprint FROM a ORDER BY identity
    ON CONFLICT DO NOTHING
    RETURNING identity, event_id
), kept AS (
    {keep_requests}
    FROM a WHERE event_id IN (SELECT event_id FROM won)
), new AS (
    {add_events}
    FROM a WHERE event_id IN (SELECT event_id FROM won)
), first AS (
    INSERT INTO {schema}.deliveries (request_id, item, event_id, source, received_at, outcome, event_state,
                                     delivery_id, fingerprint, retry)
    SELECT request_id, item, event_id, source, now, outcome, NULL, delivery_id, fingerprint, retry
    FROM a WHERE event_id IN (SELECT event_id FROM won)
)
SELECT identity FROM won

-- name: take_identities
-- The unique constraint decides who is first; the input is sorted, so batches queue and do not deadlock.
INSERT INTO {schema}.identities (identity, kind, source, event_id, fingerprint)
SELECT * FROM unnest($1::{schema}.proposal[])
ON CONFLICT DO NOTHING
RETURNING identity

-- name: owners
-- The owners of the identities that were taken; which of the conflicts were accepted. A separate statement: the
-- insert's snapshot cannot see what a concurrent transaction committed while it waited.
SELECT i.identity, i.event_id, i.fingerprint, e.state, CASE WHEN e.emptied_at IS NULL THEN e.fingerprint END AS content
FROM {schema}.identities i LEFT JOIN {schema}.events e ON e.id = i.event_id
WHERE i.identity = ANY($1::bytea[])

-- name: repoint
-- Identities won by a delivery that became no event belong to the known event.
UPDATE {schema}.identities i SET event_id = n.event_id, fingerprint = n.fingerprint
FROM unnest($1::bytea[], $2::uuid[], $3::bytea[]) AS n (identity, event_id, fingerprint)
WHERE i.identity = n.identity

-- name: release
-- The identities that conflicts won are free again.
DELETE FROM {schema}.identities WHERE identity = ANY($1::bytea[])

-- name: bodies_held
-- The bodies that a delivery brought before, of these events: the first one kept it.
SELECT w.event_id, w.fingerprint FROM unnest($1::uuid[], $2::bytea[]) AS w (event_id, fingerprint)
WHERE (SELECT count(*) FROM (
    SELECT FROM {schema}.deliveries d
    WHERE d.event_id = w.event_id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND d.outcome = 'same_body'
      AND d.fingerprint = w.fingerprint LIMIT 1) AS d) > 0

-- name: write
-- The classified batch in one statement: the bytes of new and quarantined deliveries (body is null for the others),
-- the new events, and a delivery for every item.
WITH a AS MATERIALIZED (
    SELECT *, {now} AS now FROM unnest($1::{schema}.arrival[])
), kept AS (
    {keep_requests}
    FROM a WHERE body IS NOT NULL
), new AS (
    {add_events}
    FROM a WHERE outcome IN ('accepted', 'invalid', 'reconciled')
)
INSERT INTO {schema}.deliveries (request_id, item, event_id, source, received_at, outcome, event_state,
                                 delivery_id, fingerprint, retry)
SELECT request_id, item, event_id, source, now, outcome, event_state, delivery_id, fingerprint, retry FROM a

-- name: kinds
-- The kinds that a claim may take of. Materialized, so that nothing of what is paused is locked.
kinds AS MATERIALIZED (
    SELECT k.source, k.type FROM unnest($1::text[], $2::text[]) AS k (source, type) WHERE {not_paused}
)

-- name: waiting
-- Each kind in the queue and when its first event is due: a walk from kind to kind along the index,
-- so that a long queue costs no more than a short one.
WITH RECURSIVE kinds AS (
    (SELECT source, type, due_at FROM {schema}.events
     WHERE state IN ('pending', 'retrying') AND crashes < 2
     ORDER BY source, type, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.due_at FROM kinds k CROSS JOIN LATERAL (
        SELECT source, type, due_at FROM {schema}.events
        WHERE state IN ('pending', 'retrying') AND crashes < 2 AND (source, type) > (k.source, k.type)
        ORDER BY source, type, due_at LIMIT 1
    ) n
), alone AS (
    (SELECT source, type, due_at FROM {schema}.events
     WHERE state IN ('pending', 'retrying') AND crashes >= 2
     ORDER BY source, type, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.due_at FROM alone k CROSS JOIN LATERAL (
        SELECT source, type, due_at FROM {schema}.events
        WHERE state IN ('pending', 'retrying') AND crashes >= 2 AND (source, type) > (k.source, k.type)
        ORDER BY source, type, due_at LIMIT 1
    ) n
)
SELECT source, type, alone, extract(epoch FROM min(due_at) - {now})::float8 AS due_in
FROM (SELECT *, false AS alone FROM kinds UNION ALL SELECT *, true FROM alone) AS k
WHERE {not_paused}
GROUP BY source, type, alone ORDER BY due_in

-- name: take_due
-- The events of `due` -> processing, and what a worker needs of them.
UPDATE {schema}.events AS e
SET state = 'processing', claim = claim + 1, attempts = attempts + 1, worker = $3, claimed_at = {now},
    leased_until = {now} + make_interval(secs => $4), due_at = NULL
FROM due, {schema}.requests AS r
WHERE e.id = due.id AND r.id = e.request_id
RETURNING e.id, e.claim, e.source, e.type, e.key, e.key_origin, e.provider_id, e.object_id, e.occurred_at,
          e.received_at, e.run, e.attempts, e.snoozes, e.crashes,
          extract(epoch FROM e.claimed_at - e.run_started_at)::float8 AS run_age,
          e.item, r.headers, r.query, r.body, due.due_at

-- name: claim
-- pending, retrying -> processing. The lock step is materialized, so that LIMIT is the limit; SKIP LOCKED,
-- so that workers do not wait for one another.
WITH {kinds}, due AS MATERIALIZED (
    SELECT e.id, e.due_at FROM kinds AS k CROSS JOIN LATERAL (
        SELECT id, due_at FROM {schema}.events
        WHERE source = k.source AND type = k.type AND state IN ('pending', 'retrying') AND crashes < 2
          AND due_at <= {now}
        ORDER BY due_at LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
    ORDER BY e.due_at LIMIT $5
)
{take_due}

-- name: settle
-- Every way out of processing that the claim's owner has. Each increases the claim number, so that a worker with the
-- old one cannot match. $10 is the mark of the handler's transaction, or null outside one.
WITH left_processing AS (
    UPDATE {schema}.events AS e
    SET state = o.state, claim = e.claim + 1, reason = o.reason, result = o.result, error = o.error,
        cause = o.cause, leased_until = NULL,
        due_at = CASE WHEN o.state IN ('pending', 'retrying') THEN {now} + make_interval(secs => o.due_in) END,
        finished_at = CASE WHEN o.state IN ('processed', 'skipped', 'failed') THEN {now} END,
        first_processed_at = CASE WHEN o.state = 'processed' THEN coalesce(e.first_processed_at, {now})
                                  ELSE e.first_processed_at END,
        attempts = e.attempts - CASE WHEN o.transition IN ('wait', 'release') THEN 1 ELSE 0 END,
        snoozes = e.snoozes + CASE WHEN o.transition = 'wait' THEN 1 ELSE 0 END,
        alert = CASE WHEN o.state IN ('processed', 'skipped') THEN NULL ELSE e.alert END
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[], $8::text[],
                $9::text[])
      AS o (id, claim, transition, state, reason, due_in, result, error, cause)
    WHERE e.id = o.id AND e.claim = o.claim AND e.state = 'processing'
      AND ($10::text IS NULL OR current_setting('hookledger.mark', true) = $10)
    RETURNING e.id, e.claim - 1 AS claim, e.run, e.worker, e.claimed_at, e.error, o.transition
), tried AS (
    INSERT INTO {schema}.attempts (event_id, claim, run, worker, started_at, ended_at, outcome, error)
    SELECT id, claim, run, worker, claimed_at, {now},
           {attempt_outcome}, error
    FROM left_processing WHERE {attempt_outcome} IS NOT NULL
)
SELECT id FROM left_processing

-- name: beat
-- Renew leases; what comes back is still ours.
UPDATE {schema}.events AS e SET leased_until = {now} + make_interval(secs => $3)
FROM unnest($1::uuid[], $2::bigint[]) AS c (id, claim)
WHERE e.id = c.id AND e.claim = c.claim AND e.state = 'processing'
RETURNING e.id
