-- PostgreSQL's dialect of the store. {schema} is the schema's quoted name.
-- {now} is the database's clock plus the test offset, as a scalar subquery: a bare volatile
-- function could not be used as an index condition.

-- name: lock_migrations
-- One migrator at a time; held by the transaction, so a pooler cannot lose it.
SELECT pg_advisory_xact_lock(hashtextextended('hookledger:' || $1, 0))

-- name: create_schema
-- The schema, and the table that says how far it has come.
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: has_schema
-- Whether any migration was ever applied.
SELECT to_regclass($1) IS NOT NULL

-- name: applied
-- The newest migration applied; -1 in a database that was made before the first release.
SELECT CASE WHEN count(*) FILTER (WHERE version = 1 AND name <> 'initial') > 0 THEN -1 ELSE coalesce(max(version), 0) END
FROM {schema}.migrations

-- name: note_migration
-- Remember that a migration was applied.
INSERT INTO {schema}.migrations (version, name) VALUES ($1, $2)

-- name: probe
-- A real write, and the database's clock.
UPDATE {schema}.probe SET probed_at = clock_timestamp() WHERE one
RETURNING extract(epoch FROM probed_at)::float8

-- name: keep_requests
-- The bytes of arrivals `a`, exactly as received.
INSERT INTO {schema}.requests (id, source, received_at, query, headers, body, remote, scheme, secret, signed_at)
SELECT request_id, source, now, query, headers, body, remote, scheme, secret, to_timestamp(signed_at)

-- name: add_events
-- The events that they brought. Those that begin in `processing` are claimed by `worker` for `lease` seconds.
INSERT INTO {schema}.events (id, source, type, key, key_origin, provider_id, object_id, occurred_at,
                             fingerprint, request_id, item, received_at, run_started_at, state, reason,
                             due_at, finished_at, cause, account, entity, order_at, hold, version,
                             claim, attempts, worker, claimed_at, leased_until)
SELECT event_id, source, type, key, key_origin, provider_id, object_id, to_timestamp(occurred_at),
       fingerprint, request_id, item, now, now, state, reason,
       CASE WHEN state = 'pending' THEN now END, CASE WHEN state IN ('skipped', 'failed') THEN now END,
       cause, account, entity, CASE WHEN ordered THEN coalesce(to_timestamp(order_at), now) END, hold, version,
       (state = 'processing')::int, (state = 'processing')::int, worker, CASE WHEN state = 'processing' THEN now END,
       now + make_interval(secs => lease)

-- name: add_new
-- The usual case in one statement and one round trip: each arrival with a single identity that is free is recorded
-- whole; returns the new ones, and leaves the others alone. Those that begin in `processing`, claimed by worker $2 for
-- $3 seconds, are also left alone while their kind is paused. set_config is SET LOCAL for a statement: an ack must be
-- on disk whatever the server's default is.
WITH durably AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '5s', true)
), a AS MATERIALIZED (
    SELECT *, {now} AS now, $2::text AS worker, $3::float8 AS lease
    FROM unnest($1::{schema}.arrival_with_version[]) AS k, durably
    WHERE state <> 'processing' OR {not_paused}
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
SELECT identity, (SELECT now FROM a WHERE state = 'processing' LIMIT 1) AS claimed_at FROM won

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
    SELECT *, {now} AS now, NULL::text AS worker, NULL::float8 AS lease
    FROM unnest($1::{schema}.arrival_with_version[])
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

-- name: waiting
-- Each kind in the queue and when its first event is due: a walk from kind to kind along the index,
-- so that a long queue costs no more than a short one.
WITH RECURSIVE kinds AS (
    (SELECT source, type, version, due_at FROM {schema}.events
     WHERE state IN ('pending', 'retrying') AND crashes < 2
     ORDER BY source, type, version, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.version, n.due_at FROM kinds k CROSS JOIN LATERAL (
        SELECT source, type, version, due_at FROM {schema}.events
        WHERE state IN ('pending', 'retrying') AND crashes < 2 AND {later_kind}
        ORDER BY source, type, version, due_at LIMIT 1
    ) n
), alone AS (
    (SELECT source, type, version, due_at FROM {schema}.events
     WHERE state IN ('pending', 'retrying') AND crashes >= 2
     ORDER BY source, type, version, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.version, n.due_at FROM alone k CROSS JOIN LATERAL (
        SELECT source, type, version, due_at FROM {schema}.events
        WHERE state IN ('pending', 'retrying') AND crashes >= 2 AND {later_kind}
        ORDER BY source, type, version, due_at LIMIT 1
    ) n
)
SELECT source, type, version, alone, extract(epoch FROM min(due_at) - {now})::float8 AS due_in, {unplaced} AS unplaced
FROM (SELECT *, false AS alone FROM kinds UNION ALL SELECT *, true FROM alone) AS k
WHERE {not_paused}
GROUP BY source, type, version, alone ORDER BY due_in

-- name: take_due
-- The events of `due` -> processing, and what a worker needs of them.
UPDATE {schema}.events AS e
SET state = 'processing', claim = claim + 1, attempts = attempts + 1, worker = $1, claimed_at = {now},
    leased_until = {now} + make_interval(secs => $2), due_at = NULL
FROM due, {schema}.requests AS r
WHERE e.id = due.id AND r.id = e.request_id
RETURNING e.id, e.claim, e.source, e.type, e.version, e.key, e.key_origin, e.provider_id, e.object_id, e.occurred_at,
          e.received_at, e.run, e.attempts, e.snoozes, e.crashes,
          extract(epoch FROM e.claimed_at - e.run_started_at)::float8 AS run_age,
          e.item, r.headers, r.query, r.body, e.entity,
          CASE WHEN e.waiting_since >= e.run_started_at
               THEN extract(epoch FROM e.claimed_at - e.waiting_since)::float8 END AS waited, e.approval_id, due.due_at

-- name: claim
-- pending, retrying -> processing, up to the limit of each share. The kinds are materialized, so that nothing of what
-- is paused is locked, and the lock step, so that LIMIT is the limit; SKIP LOCKED, so that workers do not wait for one
-- another. The detour over arrays is for the planner: it cannot know `most`, and expects few rows of an array.
WITH kinds AS MATERIALIZED (
    SELECT k.* FROM unnest($3::text[], $4::text[], $5::text[], $6::integer[], $7::integer[])
        AS k (source, type, version, share, most)
    WHERE {not_paused}
), locked AS MATERIALIZED (
    SELECT e.id, e.due_at, k.most, row_number() OVER (PARTITION BY k.share ORDER BY e.due_at) AS nth
    FROM kinds AS k CROSS JOIN LATERAL (
        SELECT id, due_at FROM {schema}.events
        WHERE source = k.source AND type = k.type AND version = k.version AND state IN ('pending', 'retrying') AND crashes < 2
          AND due_at <= {now}
        ORDER BY due_at LIMIT k.most FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
), chosen AS MATERIALIZED (
    SELECT array_agg(id) AS ids, array_agg(due_at) AS times FROM locked WHERE nth <= most
), due AS MATERIALIZED (
    SELECT d.id, d.due_at FROM chosen, unnest(chosen.ids, chosen.times) AS d (id, due_at)
)
{take_due}

-- name: claim_alone
-- The same for one event that has crashed its worker twice; the worker runs nothing beside it.
WITH kinds AS MATERIALIZED (
    SELECT k.* FROM unnest($3::text[], $4::text[], $5::text[]) AS k (source, type, version) WHERE {not_paused}
), due AS MATERIALIZED (
    SELECT e.id, e.due_at FROM kinds AS k CROSS JOIN LATERAL (
        SELECT id, due_at FROM {schema}.events
        WHERE source = k.source AND type = k.type AND version = k.version AND state IN ('pending', 'retrying') AND crashes >= 2
          AND due_at <= {now}
        ORDER BY due_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
    ORDER BY e.due_at LIMIT 1
)
{take_due}

-- name: claim_seen
-- The same for chosen events, due or not, that have had no other claim since this number was seen.
WITH due AS MATERIALIZED (
    SELECT k.id, k.due_at FROM {schema}.events AS k
    WHERE k.id = ANY($3::uuid[]) AND k.claim = $4::bigint AND (k.crashes < 2 OR $5::boolean)
      AND {claimable}
    FOR NO KEY UPDATE OF k SKIP LOCKED
)
{take_due}

-- name: begin_handler
-- The mark lives as long as the transaction: if it is gone at the outcome, the handler ended the transaction itself.
-- `kept` is what the session remembers of it if it is committed. The timeouts free the locks of a dead worker. RESET
-- undoes what an earlier handler did to the session. (%s: mark, milliseconds.)
RESET ALL; BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL hookledger.mark = '%s'; SET LOCAL lock_timeout = %s;
SET LOCAL idle_in_transaction_session_timeout = %s;
SELECT pg_advisory_unlock_all(), set_config('hookledger.kept', current_setting('hookledger.mark'), false)

-- name: rollback_handler
-- One message, so that a pooler cannot come between: "SELECT 1" is answered when the transaction with this mark was
-- committed. It can be asked after a failed statement, too. (%s: mark.)
ROLLBACK; SELECT WHERE current_setting('hookledger.kept', true) = '%s'

-- name: settings
-- The same for a transaction that the user's own library has begun, whose session is the user's: their timeouts stay
-- if they are stricter. The last two: which transaction it is, and its isolation level. One statement, because most
-- drivers take no more. (%s: mark, milliseconds.)
SELECT set_config('hookledger.mark', '%s', true),
       set_config('lock_timeout', (extract(epoch FROM least(
           lock, nullif(current_setting('lock_timeout')::interval, '0'))) * 1000)::bigint::text, true),
       set_config('idle_in_transaction_session_timeout', (extract(epoch FROM least(
           idle, nullif(current_setting('idle_in_transaction_session_timeout')::interval, '0'))) * 1000)::bigint::text,
           true),
       pg_current_xact_id()::text, current_setting('transaction_isolation')
FROM (VALUES (interval '%s ms', interval '%s ms')) AS ours (lock, idle)

-- name: mark
-- The mark of this transaction; empty or null once the transaction that set it is over.
SELECT current_setting('hookledger.mark', true)

-- name: fate
-- What became of a transaction, asked outside it: in progress, committed or aborted; null when it is long gone.
SELECT pg_xact_status($1::text::xid8)

-- name: hold
-- Whether we got this lock, until the end of the transaction. Locks belong to one database: a transaction that does
-- not get it while we hold it is in the same one.
SELECT pg_try_advisory_xact_lock($1::bigint)

-- name: once
-- absent -> done, with the handler's own writes. Waits for another transaction that is just doing the same. Inserts
-- nothing after the transaction with the mark has ended: the row would commit without the handler's writes.
INSERT INTO {schema}.effects (identity, kind, source, name, key, event_id, claim, arguments, arguments_digest,
                              downstream, state, planned_at, created_at, finished_at)
SELECT $1::bytea, 'once', $2::text, $3::text, $4::text, $5::uuid, $6::bigint, $7::bytea, $8::bytea,
       '', 'done', now, now, now
FROM {now} AS clock (now) WHERE current_setting('hookledger.mark', true) = $9
ON CONFLICT (identity) DO NOTHING
RETURNING 1

-- name: plan
-- absent -> planned. The lock on the lane's row is held until the commit, so that places are given in the order of
-- commits. An effect that is known takes no place; one that another transaction plans at this moment may take one in
-- vain, which leaves a gap and no disorder.
WITH taken AS (
    INSERT INTO {schema}.effect_lanes AS l (name, lane, next)
    SELECT $3::text, $12::text, 2
    WHERE $12::text IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.effects WHERE identity = $1::bytea)
      AND current_setting('hookledger.mark', true) = $9
    ON CONFLICT (name, lane) DO UPDATE SET next = l.next + 1
    RETURNING next - 1 AS place
)
INSERT INTO {schema}.effects (identity, kind, source, name, key, event_id, claim, arguments, arguments_digest,
                              repeat, downstream, lane, place, state, planned_at, due_at, created_at, traceparent,
                              correlation_id)
SELECT $1::bytea, 'later', $2::text, $3::text, $4::text, $5::uuid, $6::bigint, $7::bytea, $8::bytea,
       $10::text, $11::text, $12::text, taken.place, 'planned', now, now, now, $13::text, $14::text
FROM {now} AS clock (now) LEFT JOIN taken ON true
WHERE ($12::text IS NULL OR taken.place IS NOT NULL) AND current_setting('hookledger.mark', true) = $9
ON CONFLICT (identity) DO NOTHING
RETURNING 1

-- name: known
-- The mark, and what is known of an effect. A separate statement: the one that found the effect taken may not see it.
SELECT current_setting('hookledger.mark', true), e.kind, e.state, e.arguments_digest
FROM (SELECT $1::bytea AS identity) AS i LEFT JOIN {schema}.effects AS e USING (identity)

-- name: adopt
-- planned, failed -> planned: a handler's call that did not happen becomes an outbox row. Places as for `plan`.
WITH taken AS (
    INSERT INTO {schema}.effect_lanes AS l (name, lane, next)
    SELECT $2::text, $4::text, 2 WHERE $4::text IS NOT NULL AND current_setting('hookledger.mark', true) = $5
    ON CONFLICT (name, lane) DO UPDATE SET next = l.next + 1
    RETURNING next - 1 AS place
)
UPDATE {schema}.effects AS e
SET kind = 'later', state = 'planned', fence = e.fence + 1, tries = 0, planned_at = now, due_at = now,
    leased_until = NULL, lane = $4::text, place = taken.place
FROM {now} AS clock (now) LEFT JOIN taken ON true
WHERE e.identity = $1::bytea AND e.kind = 'call' AND e.state IN ('planned', 'failed')
  AND e.arguments_digest = $3::bytea AND current_setting('hookledger.mark', true) = $5
RETURNING 1

-- name: tie
-- What decides between the event of a guard `g` and another one, `excluded`, with the same version; null where the
-- versions differ. The same as `tie_of` in hookledger/ledger.py.
CASE WHEN g.event_id = excluded.event_id OR g.kind <> excluded.kind OR g.position <> excluded.position THEN NULL
     WHEN g.rank <> excluded.rank THEN 'rank' WHEN g.received_at <> excluded.received_at THEN 'arrival' ELSE 'id' END

-- name: newer
-- Sets the guard, and records that, if this event comes after the one that set it or is that one. Waits for another
-- transaction that has asked the same guard. No row comes back if the event is stale, if the version is of another kind
-- ($14: which an approved run replaces), or if the mark is gone; then the guard's row is locked all the same.
WITH applied AS (
    INSERT INTO {schema}.guards AS g (identity, source, name, key, kind, version, position, rank, received_at, event_id,
                                      event_key, claim, applied_at)
    SELECT $1::bytea, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bytea, $8::smallint, $9::timestamptz,
           $10::uuid, $11::text, $12::bigint, now
    FROM {now} AS clock (now) WHERE current_setting('hookledger.mark', true) = $13
    ON CONFLICT (identity) DO UPDATE
    SET name = excluded.name, key = excluded.key, kind = excluded.kind, version = excluded.version,
        position = excluded.position, rank = excluded.rank, received_at = excluded.received_at,
        event_id = excluded.event_id, event_key = excluded.event_key, claim = excluded.claim,
        applied_at = excluded.applied_at, ties = g.ties + CASE WHEN {tie} IS NULL THEN 0 ELSE 1 END,
        tie = CASE WHEN g.event_id = excluded.event_id THEN g.tie ELSE {tie} END,
        replaced_version = CASE WHEN g.event_id = excluded.event_id THEN g.replaced_version ELSE g.version END,
        replaced_event_id = CASE WHEN g.event_id = excluded.event_id THEN g.replaced_event_id ELSE g.event_id END
    WHERE CASE WHEN g.kind <> excluded.kind THEN $14::boolean
               ELSE g.event_id = excluded.event_id OR (g.position, g.rank, g.received_at, g.event_id)
                    < (excluded.position, excluded.rank, excluded.received_at, excluded.event_id) END
    RETURNING tie, replaced_version, replaced_event_id, applied_at
), answered AS (
    {into_answers}
    SELECT $10, $12, $1, $3, $4, $5, $6, $7, $8, true, tie, replaced_version, replaced_event_id, applied_at FROM applied
    {or_again}
)
SELECT tie, replaced_version, replaced_event_id FROM applied

-- name: stale
-- The mark, and the guard that an event is stale for; records that, and a tie. A separate statement: the one before may
-- have waited for what it cannot see. Nothing is recorded for a version of another kind.
WITH found AS (
    SELECT g.identity, g.kind, g.version, g.event_id, g.event_key, {tie} AS by
    FROM {schema}.guards AS g, (SELECT $4::text AS kind, $6::bytea AS position, $7::smallint AS rank,
                                       $8::timestamptz AS received_at, $9::uuid AS event_id) AS excluded
    WHERE g.identity = $1::bytea AND current_setting('hookledger.mark', true) = $11
), answered AS (
    {into_answers}
    SELECT $9, $10::bigint, $1, $2::text, $3::text, $4, $5::text, $6, $7, false, by, version, event_id, now
    FROM found CROSS JOIN {now} AS clock (now) WHERE kind = $4
    {or_again}
), counted AS (
    UPDATE {schema}.guards AS g SET ties = g.ties + 1 FROM found WHERE g.identity = found.identity AND by IS NOT NULL
)
SELECT current_setting('hookledger.mark', true), found.kind, found.version, found.event_id, found.event_key, found.by
FROM (SELECT 1) AS one LEFT JOIN found ON true

-- name: note_stale
-- The same in a transaction with the outcome alone, for an answer that was rolled back with the handler's.
WITH answered AS (
    {into_answers}
    SELECT $1::uuid, $2::bigint, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::bytea, $9::smallint, false,
           $10::text, $11::text, $12::uuid, now
    FROM {now} AS clock (now)
    {or_again}
)
UPDATE {schema}.guards SET ties = ties + 1 WHERE identity = $3 AND $10 IS NOT NULL

-- name: settle
-- Every way out of processing that the claim's owner has. Each increases the claim number, so that a worker with the
-- old one cannot match. $12 is the mark of the handler's transaction, or null outside one. The rest are the answers
-- of some of the events: what a sender is told must be on disk whatever the server's default is.
WITH durably AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true) WHERE cardinality($13::uuid[]) > 0
), left_processing AS (
    UPDATE {schema}.events AS e
    SET state = o.state, claim = e.claim + 1, reason = o.reason, result = o.result, error = o.error,
        cause = o.cause, leased_until = NULL,
        due_at = CASE WHEN o.state IN ('pending', 'retrying') THEN {now} + make_interval(secs => o.due_in) END,
        finished_at = CASE WHEN o.state IN ('processed', 'skipped', 'failed') THEN {now} END,
        first_processed_at = CASE WHEN o.state = 'processed' THEN coalesce(e.first_processed_at, {now})
                                  ELSE e.first_processed_at END,
        attempts = e.attempts - CASE WHEN o.transition IN ('wait', 'release') THEN 1 ELSE 0 END,
        snoozes = e.snoozes + CASE WHEN o.transition = 'wait' THEN 1 ELSE 0 END,
        alert = CASE WHEN o.state IN ('processed', 'skipped') THEN NULL ELSE e.alert END, waits_for = o.waits_for,
        waiting_since = CASE WHEN o.state NOT IN ('pending', 'retrying') THEN NULL
                             WHEN e.waiting_since >= e.run_started_at THEN e.waiting_since
                             WHEN o.waits_for IS NOT NULL THEN e.claimed_at END,
        approval_id = CASE WHEN o.state IN ('pending', 'retrying') THEN e.approval_id END
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[], $8::text[],
                $9::text[], $10::text[], $11::text[])
      AS o (id, claim, transition, state, reason, due_in, result, error, cause, waits_for, traceparent)
    WHERE e.id = o.id AND e.claim = o.claim AND e.state = 'processing'
      AND ($12::text IS NULL OR current_setting('hookledger.mark', true) = $12)
    RETURNING e.id, e.claim - 1 AS claim, e.run, e.worker, e.claimed_at, e.error, o.transition, o.traceparent
), tried AS (
    INSERT INTO {schema}.attempts (event_id, claim, run, worker, started_at, ended_at, outcome, error, traceparent)
    SELECT id, claim, run, worker, claimed_at, {now},
           {attempt_outcome}, error, traceparent
    FROM left_processing WHERE {attempt_outcome} IS NOT NULL
), answered AS (
    {into_kept_answers}
    SELECT e.id, e.run, k.status, k.headers, k.body, {now}, {now} + make_interval(secs => k.keep)
    FROM unnest($13::uuid[], $14::smallint[], $15::bytea[], $16::bytea[], $17::float8[])
      AS k (event_id, status, headers, body, keep)
    JOIN left_processing AS e ON e.id = k.event_id CROSS JOIN durably
    {unless_kept}
)
SELECT id FROM left_processing

-- name: beat
-- Renew leases; what comes back is still ours.
UPDATE {schema}.events AS e SET leased_until = {now} + make_interval(secs => $3)
FROM unnest($1::uuid[], $2::bigint[]) AS c (id, claim)
WHERE e.id = c.id AND e.claim = c.claim AND e.state = 'processing'
RETURNING e.id
