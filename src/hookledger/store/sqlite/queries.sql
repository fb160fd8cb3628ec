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
-- The newest migration applied.
SELECT coalesce(max(version), 0) FROM migrations

-- name: note_migration
-- Remember that a migration was applied.
INSERT INTO migrations (version, name, applied_at) VALUES (?2, ?3, ?1)

-- name: probe
-- A real write.
UPDATE probe SET probed_at = ?1

-- name: know_sources
-- A source that a receiver serves.
INSERT INTO sources (name) VALUES (?) ON CONFLICT DO NOTHING

-- name: sources
-- Every source that was ever served.
SELECT name FROM sources ORDER BY name

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
-- What a conflict won is nobody's.
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
-- A new event.
INSERT INTO events (received_at, run_started_at, due_at, finished_at, id, source, type, key, key_origin,
                    provider_id, object_id, occurred_at, fingerprint, request_id, item, state, reason, cause, account)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_deliveries
-- One arrival.
INSERT INTO deliveries (received_at, request_id, item, event_id, source, outcome, event_state, delivery_id, fingerprint,
                        retry)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: not_paused
-- Nobody paused this kind `k`. The table has a row for each pause: few or none.
NOT EXISTS (SELECT 1 FROM pauses p WHERE p.source = k.source AND (
    p.pattern = k.type OR (substr(p.pattern, -1) = '*' AND substr(k.type, 1, length(p.pattern) - 1) || '*' = p.pattern)))

-- name: open
-- Whether a kind may be claimed.
SELECT 1 FROM (SELECT ?1 AS source, ?2 AS type) AS k WHERE {not_paused}

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

-- name: due
-- The first due events of one kind.
SELECT id, due_at FROM events INDEXED BY events_waiting
WHERE source = ?2 AND type = ?3 AND state IN ('pending', 'retrying') AND crashes < 2 AND due_at <= ?1
ORDER BY due_at LIMIT ?4

-- name: due_alone
-- The first due event of one kind that has crashed its worker twice.
SELECT id, due_at FROM events INDEXED BY events_waiting_alone
WHERE source = ?2 AND type = ?3 AND state IN ('pending', 'retrying') AND crashes >= 2 AND due_at <= ?1
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
                     arguments, arguments_digest, repeat, downstream, lane, place, state)
VALUES (?1, ?1, ?1, ?2, 'later', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 'planned')

-- name: known
-- What is known of an effect.
SELECT kind, state, arguments_digest FROM effects WHERE identity = ?1

-- name: adopt
-- planned, failed -> planned: a handler's call that did not happen becomes an outbox row.
UPDATE effects
SET kind = 'later', state = 'planned', fence = fence + 1, tries = 0, planned_at = ?1, due_at = ?1, leased_until = NULL,
    lane = ?3, place = ?4
WHERE identity = ?2 AND kind = 'call' AND state IN ('planned', 'failed')

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

-- name: held
-- What a worker holds, whether it knows or not: the answer to its claim may have been lost.
SELECT id, claim FROM events INDEXED BY events_leased WHERE leased_until IS NOT NULL AND state = 'processing' AND worker = ?1

-- name: expired
-- Leases that have run out.
SELECT id, claim, source, type, attempts, crashes, (?1 - run_started_at) / 1e6 AS run_age, worker
FROM events INDEXED BY events_leased WHERE state = 'processing' AND leased_until < ?1
ORDER BY leased_until LIMIT ?2

-- name: rescue
-- processing -> retrying or failed, if the lease is still expired and the claim still that one.
UPDATE events
SET state = iif(?4 IS NULL, 'failed', 'retrying'), claim = claim + 1, crashes = crashes + 1, leased_until = NULL,
    reason = ?5, error = 'the worker crashed, froze or lost its connection', cause = 'the worker died', due_at = ?1 + ?4,
    finished_at = iif(?4 IS NULL, ?1, NULL)
WHERE id = ?2 AND claim = ?3 AND state = 'processing' AND leased_until < ?1
RETURNING id, claim - 1 AS claim, run, worker, claimed_at, error

-- name: skip_unhandled
-- pending -> skipped, a bounded batch at a time.
UPDATE events SET state = 'skipped', reason = 'no handler', alert = NULL, due_at = NULL, finished_at = ?1
WHERE EXISTS (SELECT 1 FROM (SELECT ?2 AS source, ?3 AS type) AS k WHERE {not_paused}) AND (id IN (
    SELECT id FROM events INDEXED BY events_waiting
    WHERE source = ?2 AND type = ?3 AND state IN ('pending', 'retrying') AND crashes < 2 AND due_at <= ?1 - ?4
      AND state = 'pending'
    ORDER BY due_at LIMIT ?5)
OR id IN (
    SELECT id FROM events INDEXED BY events_waiting_alone
    WHERE source = ?2 AND type = ?3 AND state IN ('pending', 'retrying') AND crashes >= 2 AND due_at <= ?1 - ?4
      AND state = 'pending'
    ORDER BY due_at LIMIT ?5))
RETURNING id

-- name: register
-- A worker, and what it handles.
INSERT INTO workers (id, handles, started_at, seen_at) VALUES (?2, ?3, ?1, ?1)
ON CONFLICT (id) DO UPDATE SET handles = excluded.handles, seen_at = excluded.seen_at, left_at = NULL

-- name: workers
-- Everyone seen.
SELECT id, handles, (?1 - seen_at) / 1e6 AS seen_ago, left_at FROM workers

-- name: leave
-- A worker that stopped. What it handled is still known: a deploy may be replacing it.
UPDATE workers SET left_at = ?1 WHERE id = ?2

-- name: forget_workers
-- Those who were not seen for long.
DELETE FROM workers WHERE seen_at < ?1 - ?2

-- name: find_id
-- By id or the beginning of one.
SELECT id FROM events WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 10

-- name: find_key
-- By identity: the digest of source and key. Nothing for a key that came from elsewhere.
SELECT event_id FROM identities WHERE identity = ?1 AND fingerprint <> x''

-- name: find_admitted
-- By the key that an event was given when it was admitted.
SELECT id FROM events WHERE key = ?1 AND key_origin = 'admitted' ORDER BY id LIMIT 10

-- name: event
-- One event.
SELECT e.*, 1 + (SELECT count(*) FROM deliveries d
                 WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries
FROM events e WHERE id = ?1

-- name: request
-- The bytes it came with.
SELECT * FROM requests WHERE id = ?1

-- name: deliveries
-- Its arrivals: the first, which the event names itself, and the later ones.
SELECT d.*, EXISTS (SELECT 1 FROM requests r WHERE r.id = d.request_id AND r.emptied_at IS NULL) AS kept FROM (
    SELECT * FROM deliveries WHERE request_id = ?2 AND item = ?3
    UNION ALL
    SELECT * FROM deliveries WHERE event_id = ?1 AND outcome NOT IN ('accepted', 'invalid', 'reconciled')
) AS d ORDER BY received_at, request_id, item LIMIT 1000

-- name: attempts
-- Its executions.
SELECT * FROM attempts WHERE event_id = ?1 ORDER BY claim

-- name: actions
-- What operators did to it.
SELECT * FROM actions WHERE event_id = ?1 ORDER BY at, id

-- name: counts
-- Events by state.
SELECT state, count(*) AS n FROM events GROUP BY state

-- name: delivery_counts
-- Deliveries by outcome.
SELECT outcome, count(*) AS n FROM deliveries GROUP BY outcome
