-- Statements of the last release before schema 2 (commit 79a4420), word for word from its
-- store/sqlite/queries.sql, with what it took from other files. A process of that release may run beside this one after
-- `hookledger migrate`: change nothing here.

-- name: not_paused
-- This kind `k` is not paused. A pattern that ends in `*` is every type with that prefix.
NOT EXISTS (SELECT 1 FROM pauses AS p WHERE p.source = k.source AND (
    p.pattern = k.type OR substr(k.type, 1, length(p.pattern) - 1) || '*' = p.pattern))

-- name: applied
-- The newest migration applied; -1 in a database that was made before the first release.
SELECT CASE WHEN count(*) FILTER (WHERE version = 1 AND name <> 'initial') > 0 THEN -1 ELSE coalesce(max(version), 0) END
FROM migrations

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
                    provider_id, object_id, occurred_at, fingerprint, request_id, item, state, reason, cause, account)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_deliveries
INSERT INTO deliveries (received_at, request_id, item, event_id, source, outcome, event_state, delivery_id, fingerprint,
                        retry)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: waiting
-- Each kind in the queue and when its first event is due: a walk from kind to kind along the index.
WITH RECURSIVE kinds (source, type, due_at) AS (
    SELECT * FROM (SELECT source, type, due_at FROM events INDEXED BY events_waiting
                   WHERE state IN ('pending', 'retrying') AND crashes < 2
                   ORDER BY source, type, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.due_at FROM kinds k JOIN events n ON n.rowid = (
        SELECT rowid FROM events INDEXED BY events_waiting
        WHERE state IN ('pending', 'retrying') AND crashes < 2 AND (source, type) > (k.source, k.type)
        ORDER BY source, type, due_at LIMIT 1)
), alone (source, type, due_at) AS (
    SELECT * FROM (SELECT source, type, due_at FROM events INDEXED BY events_waiting_alone
                   WHERE state IN ('pending', 'retrying') AND crashes >= 2
                   ORDER BY source, type, due_at LIMIT 1)
    UNION ALL
    SELECT n.source, n.type, n.due_at FROM alone k JOIN events n ON n.rowid = (
        SELECT rowid FROM events INDEXED BY events_waiting_alone
        WHERE state IN ('pending', 'retrying') AND crashes >= 2 AND (source, type) > (k.source, k.type)
        ORDER BY source, type, due_at LIMIT 1)
)
SELECT source, type, alone, min(due_at) - ?1 AS due_in
FROM (SELECT *, 0 AS alone FROM kinds UNION ALL SELECT *, 1 FROM alone) AS k
WHERE {not_paused}
GROUP BY source, type, alone ORDER BY due_in

-- name: may_run
-- Whether a kind is not paused.
SELECT 1 FROM (SELECT ?1 AS source, ?2 AS type) AS k WHERE {not_paused}

-- name: due
-- The first due events of one kind.
SELECT id, due_at FROM events INDEXED BY events_waiting
WHERE source = ?2 AND type = ?3 AND state IN ('pending', 'retrying') AND crashes < 2 AND due_at <= ?1
ORDER BY due_at LIMIT ?4

-- name: claim
-- pending, retrying -> processing.
UPDATE events
SET state = 'processing', claim = claim + 1, attempts = attempts + 1, worker = ?3, claimed_at = ?1,
    leased_until = ?1 + ?4, due_at = NULL
WHERE id = ?2 AND state IN ('pending', 'retrying')

-- name: claimed
-- What a worker needs of the event it claimed.
SELECT e.id, e.claim, e.source, e.type, e.key, e.key_origin, e.provider_id, e.object_id, e.occurred_at,
       e.received_at, e.run, e.attempts, e.snoozes, e.crashes,
       (e.claimed_at - e.run_started_at) / 1e6 AS run_age, e.item, r.headers, r.query, r.body
FROM events e JOIN requests r ON r.id = e.request_id WHERE e.id = ?1

-- name: settle
-- Every way out of processing that the claim's owner has, each under a new claim number.
UPDATE events
SET state = ?5, claim = claim + 1, reason = ?6, result = ?8, error = ?9, cause = ?10, leased_until = NULL,
    due_at = iif(?5 IN ('pending', 'retrying'), ?1 + ?7, NULL),
    finished_at = iif(?5 IN ('processed', 'skipped', 'failed'), ?1, NULL),
    first_processed_at = iif(?5 = 'processed', coalesce(first_processed_at, ?1), first_processed_at),
    attempts = attempts - (?4 IN ('wait', 'release')),
    snoozes = snoozes + (?4 = 'wait'),
    alert = iif(?5 IN ('processed', 'skipped'), NULL, alert)
WHERE id = ?2 AND claim = ?3 AND state = 'processing'
RETURNING id, claim - 1 AS claim, run, worker, claimed_at, error

-- name: tried
-- The attempt that ended.
INSERT INTO attempts (event_id, claim, run, worker, started_at, error, ended_at, outcome)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: beat
-- Renew a lease; a row comes back if it is still ours.
UPDATE events SET leased_until = ?1 + ?4 WHERE id = ?2 AND claim = ?3 AND state = 'processing' RETURNING id
