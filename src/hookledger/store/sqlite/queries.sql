-- SQLite's dialect of the store. ?1 is always the present, in microseconds since 1970, where a query needs it:
-- SQLite lives on this host, so this host's clock is the database's. Durations are microseconds too.
-- Differs from PostgreSQL's because every write runs alone under BEGIN IMMEDIATE: nothing to lock or to skip.

-- name: create_schema
-- The table that says how far the schema has come.
CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)

-- name: has_schema
-- Whether any migration was ever applied.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'

-- name: applied
-- The newest migration applied; -1 in a database that was made before the first release.
SELECT CASE WHEN count(*) FILTER (WHERE version = 1 AND name <> 'initial') > 0 THEN -1 ELSE coalesce(max(version), 0) END
FROM migrations

-- name: note_migration
-- Remember that a migration was applied.
INSERT INTO migrations (version, name, applied_at) VALUES (?2, ?3, ?1)

-- name: probe
-- A real write.
UPDATE probe SET probed_at = ?1

-- name: take_identities
-- The unique constraint decides who is first.
INSERT INTO identities (identity, kind, source, event_id, fingerprint)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: owner
-- Who owns an identity that was taken.
SELECT i.identity, i.event_id, i.fingerprint, e.state, iif(e.emptied_at IS NULL, e.fingerprint, NULL) AS content
FROM identities i LEFT JOIN events e ON e.id = i.event_id WHERE i.identity = ?1

-- name: repoint
-- An identity won by a delivery that became no event belongs to the known event.
UPDATE identities SET event_id = ?2, fingerprint = ?3 WHERE identity = ?1

-- name: release
-- The identity that a conflict won is free again.
DELETE FROM identities WHERE identity = ?1

-- name: bodies_held
-- Whether a delivery with this body met the event before: the first one kept it.
SELECT 1 FROM deliveries
WHERE event_id = ?1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled') AND outcome = 'same_body'
  AND fingerprint = ?2 LIMIT 1

-- name: keep_requests
-- Bytes exactly as received.
INSERT INTO requests (received_at, id, source, query, headers, body, remote, scheme, secret, signed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_events
INSERT INTO events (received_at, run_started_at, due_at, finished_at, id, source, type, key, key_origin,
                    provider_id, object_id, occurred_at, fingerprint, request_id, item, state, reason, cause, account,
                    entity, order_at, hold, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_deliveries
INSERT INTO deliveries (received_at, request_id, item, event_id, source, outcome, event_state, delivery_id, fingerprint,
                        retry)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: waiting
-- Each kind in the queue and when its first event is due: a walk from kind to kind along the index.
WITH RECURSIVE kinds (source, type, version, due_at) AS (
    SELECT * FROM (SELECT source, type, version, due_at FROM events INDEXED BY events_waiting
                   WHERE state IN ('pending', 'retrying') AND crashes < 2
                   ORDER BY source, type, version, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.version, n.due_at FROM kinds k JOIN events n ON n.rowid = (
        SELECT rowid FROM events INDEXED BY events_waiting
        WHERE state IN ('pending', 'retrying') AND crashes < 2 AND {later_kind}
        ORDER BY source, type, version, due_at LIMIT 1)
), alone (source, type, version, due_at) AS (
    SELECT * FROM (SELECT source, type, version, due_at FROM events INDEXED BY events_waiting_alone
                   WHERE state IN ('pending', 'retrying') AND crashes >= 2
                   ORDER BY source, type, version, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.version, n.due_at FROM alone k JOIN events n ON n.rowid = (
        SELECT rowid FROM events INDEXED BY events_waiting_alone
        WHERE state IN ('pending', 'retrying') AND crashes >= 2 AND {later_kind}
        ORDER BY source, type, version, due_at LIMIT 1)
)
SELECT source, type, version, alone, min(due_at) - ?1 AS due_in, {unplaced} AS unplaced
FROM (SELECT *, 0 AS alone FROM kinds UNION ALL SELECT *, 1 FROM alone) AS k
WHERE {not_paused}
GROUP BY source, type, version, alone ORDER BY due_in

-- name: due
-- The first due events of one kind.
SELECT id, due_at FROM events INDEXED BY events_waiting
WHERE source = ?2 AND type = ?3 AND version = ?4 AND state IN ('pending', 'retrying') AND crashes < 2 AND due_at <= ?1
ORDER BY due_at LIMIT ?5

-- name: due_alone
-- The first due event of one kind that has crashed its worker twice.
SELECT id, due_at FROM events INDEXED BY events_waiting_alone
WHERE source = ?2 AND type = ?3 AND version = ?4 AND state IN ('pending', 'retrying') AND crashes >= 2 AND due_at <= ?1
ORDER BY due_at LIMIT ?5

-- name: claim
-- pending, retrying -> processing.
UPDATE events
SET state = 'processing', claim = claim + 1, attempts = attempts + 1, worker = ?3, claimed_at = ?1,
    leased_until = ?1 + ?4, due_at = NULL
WHERE id = ?2 AND state IN ('pending', 'retrying')

-- name: claimed
-- What a worker needs of the event it claimed.
SELECT e.id, e.claim, e.source, e.type, e.version, e.key, e.key_origin, e.provider_id, e.object_id, e.occurred_at,
       e.received_at, e.run, e.attempts, e.snoozes, e.crashes,
       (e.claimed_at - e.run_started_at) / 1e6 AS run_age, e.item, r.headers, r.query, r.body, e.entity,
       iif(e.waiting_since >= e.run_started_at, (e.claimed_at - e.waiting_since) / 1e6, NULL) AS waited,
       e.approval_id
FROM events e JOIN requests r ON r.id = e.request_id WHERE e.id = ?1

-- name: once
-- absent -> done, with the handler's own writes.
INSERT INTO effects (planned_at, created_at, finished_at, identity, kind, source, name, key, event_id, claim,
                     arguments, arguments_digest, downstream, state)
VALUES (?1, ?1, ?1, ?2, 'once', ?3, ?4, ?5, ?6, ?7, ?8, ?9, '', 'done')
ON CONFLICT (identity) DO NOTHING
RETURNING 1

-- name: place
-- The next place in a lane.
INSERT INTO effect_lanes (name, lane, next) VALUES (?1, ?2, 2)
ON CONFLICT (name, lane) DO UPDATE SET next = next + 1
RETURNING next - 1

-- name: plan
-- absent -> planned.
INSERT INTO effects (planned_at, due_at, created_at, identity, kind, source, name, key, event_id, claim,
                     arguments, arguments_digest, repeat, downstream, lane, place, state, traceparent, correlation_id)
VALUES (?1, ?1, ?1, ?2, 'later', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 'planned', ?14, ?15)

-- name: known
SELECT kind, state, arguments_digest FROM effects WHERE identity = ?1

-- name: adopt
-- planned, failed -> planned: a handler's call that did not happen becomes an outbox row.
UPDATE effects
SET kind = 'later', state = 'planned', fence = fence + 1, tries = 0, planned_at = ?1, due_at = ?1, leased_until = NULL,
    lane = ?3, place = ?4
WHERE identity = ?2 AND kind = 'call' AND state IN ('planned', 'failed')

-- name: guard
SELECT * FROM guards WHERE identity = ?1

-- name: set_guard
-- The event of a guard comes after the one that set it, or is that one.
INSERT INTO guards (applied_at, identity, source, name, key, kind, version, position, rank, received_at, event_id,
                    event_key, claim, ties, tie, replaced_version, replaced_event_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (identity) DO UPDATE
SET applied_at = excluded.applied_at, name = excluded.name, key = excluded.key, kind = excluded.kind,
    version = excluded.version, position = excluded.position, rank = excluded.rank, received_at = excluded.received_at,
    event_id = excluded.event_id, event_key = excluded.event_key, claim = excluded.claim, ties = excluded.ties,
    tie = excluded.tie, replaced_version = excluded.replaced_version, replaced_event_id = excluded.replaced_event_id

-- name: answer
-- What an attempt is answered.
{into_answers} VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?1) {or_again}

-- name: count_tie
UPDATE guards SET ties = ties + 1 WHERE identity = ?1

-- name: settle
-- Every way out of processing that the claim's owner has, each under a new claim number.
UPDATE events
SET state = ?5, claim = claim + 1, reason = ?6, result = ?8, error = ?9, cause = ?10, leased_until = NULL,
    due_at = iif(?5 IN ('pending', 'retrying'), ?1 + ?7, NULL),
    finished_at = iif(?5 IN ('processed', 'skipped', 'failed'), ?1, NULL),
    first_processed_at = iif(?5 = 'processed', coalesce(first_processed_at, ?1), first_processed_at),
    attempts = attempts - (?4 IN ('wait', 'release')),
    snoozes = snoozes + (?4 = 'wait'),
    alert = iif(?5 IN ('processed', 'skipped'), NULL, alert), waits_for = ?11,
    waiting_since = CASE WHEN ?5 NOT IN ('pending', 'retrying') THEN NULL
                         WHEN waiting_since >= run_started_at THEN waiting_since
                         WHEN ?11 IS NOT NULL THEN claimed_at END,
    approval_id = iif(?5 IN ('pending', 'retrying'), approval_id, NULL)
WHERE id = ?2 AND claim = ?3 AND state = 'processing'
RETURNING id, claim - 1 AS claim, run, worker, claimed_at, error

-- name: tried
-- The attempt that ended.
INSERT INTO attempts (event_id, claim, run, worker, started_at, error, ended_at, outcome, traceparent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: beat
-- Renew a lease; a row comes back if it is still ours.
UPDATE events SET leased_until = ?1 + ?4 WHERE id = ?2 AND claim = ?3 AND state = 'processing' RETURNING id
