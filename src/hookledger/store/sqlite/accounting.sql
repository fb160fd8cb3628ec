-- SQLite's dialect of the books. Each query but `figures` finds what is wrong: how many rows in all, and an id and a
-- name of a few. They read whole tables; what is looked for in them is found by primary key or in a list made once.
-- An event that was pruned has a row in `pruned`, in the same commit: what still points at it is not astray.

-- name: begin
-- One snapshot for all of it. Deferred: a read waits for nobody, and nobody waits for it.
BEGIN DEFERRED

-- name: few
-- What comes back of the rows found.
LIMIT 5

-- name: figures
-- Every book, by entry.
SELECT 'deliveries' AS book, outcome AS entry, count(*) AS n FROM deliveries GROUP BY outcome
UNION ALL SELECT 'events', state, count(*) FROM events GROUP BY state
UNION ALL SELECT 'admitted', 'admitted', count(*) FROM events WHERE key_origin = 'admitted'
UNION ALL SELECT 'pruned', state, count(*) FROM pruned GROUP BY state
UNION ALL SELECT 'identities', kind, count(*) FROM identities GROUP BY kind
UNION ALL SELECT 'attempts', outcome, count(*) FROM attempts GROUP BY outcome
UNION ALL SELECT 'effects', state, count(*) FROM effects GROUP BY state
UNION ALL SELECT 'calls', coalesce(outcome, 'open'), count(*) FROM effect_calls GROUP BY outcome

-- name: deliveries_without_event
-- Acked as new, and lost.
SELECT count(*) OVER () AS n, d.event_id, NULL
FROM deliveries d LEFT JOIN events e ON e.id = d.event_id
WHERE d.outcome IN ('accepted', 'invalid', 'reconciled') AND e.id IS NULL {few}

-- name: deliveries_astray
-- A delivery that made no event belongs to one, to one that was pruned, or to an import of keys.
SELECT count(*) OVER () AS n, d.request_id, NULL
FROM deliveries d LEFT JOIN events e ON e.id = d.event_id
LEFT JOIN actions a ON a.id = d.event_id AND a.name = 'import-keys'
LEFT JOIN pruned p ON p.event_id = d.event_id
WHERE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND e.id IS NULL AND a.id IS NULL AND p.event_id IS NULL {few}

-- name: events_without_delivery
-- An event names the delivery that made it, or the odd one that it was made of.
SELECT count(*) OVER () AS n, e.id, NULL
FROM events e LEFT JOIN deliveries d ON d.request_id = e.request_id AND d.item = e.item
WHERE d.request_id IS NULL OR CASE e.key_origin
    WHEN 'admitted' THEN d.outcome NOT IN ('conflict', 'same_body')
    ELSE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') OR d.event_id <> e.id END {few}

-- name: requests_missing
-- The bytes of all but plain duplicates are kept. An event without them could not be claimed.
SELECT count(*) OVER () AS n, d.event_id, NULL
FROM deliveries d LEFT JOIN requests r ON r.id = d.request_id
WHERE d.outcome <> 'duplicate' AND r.id IS NULL {few}

-- name: requests_astray
-- Bytes that nothing came of.
SELECT count(*) OVER () AS n, r.id, NULL FROM requests r
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.request_id = r.id) {few}

-- name: identities_astray
-- Whoever comes with this identity is called a duplicate, of nothing. One that an imported key took along belongs to
-- the import, whatever its fingerprint.
SELECT count(*) OVER () AS n, i.event_id, i.kind
FROM identities i LEFT JOIN events e ON e.id = i.event_id
LEFT JOIN actions a ON a.id = i.event_id AND a.name = 'import-keys'
LEFT JOIN pruned p ON p.event_id = i.event_id
WHERE e.id IS NULL AND a.id IS NULL AND p.event_id IS NULL {few}

-- name: events_without_identity
-- An admitted event owns its content under a key that is another's.
SELECT count(*) OVER () AS n, e.id, NULL FROM events e
WHERE CASE e.key_origin
    WHEN 'admitted' THEN e.id NOT IN (SELECT event_id FROM identities WHERE kind = 'admitted')
    ELSE e.id NOT IN (SELECT event_id FROM identities WHERE kind = 'key') END {few}

-- name: pruned_without_identity
-- What is pruned keeps its key, so that it is a duplicate for ever.
SELECT count(*) OVER () AS n, p.event_id, p.state FROM pruned p
WHERE p.event_id NOT IN (SELECT event_id FROM identities WHERE kind <> 'body') {few}

-- name: events_without_attempt
-- Every way out of processing but `release` writes the attempt of the claim that it ends, and takes the next number.
-- Nobody tried what was skipped, failed or put to review at intake (claim 0) or skipped because nobody handles it; what
-- is pending may have come by an operator, as what is discarded has.
SELECT count(*) OVER () AS n, e.id, e.state
FROM events e LEFT JOIN attempts a ON a.event_id = e.id AND a.claim = e.claim - 1
WHERE CASE e.state
    WHEN 'processed' THEN a.outcome IS NOT 'processed'
    WHEN 'retrying' THEN coalesce(a.outcome, '') NOT IN ('retrying', 'waiting', 'crashed')
    WHEN 'failed' THEN e.claim > 0 AND coalesce(a.outcome, '') NOT IN ('failed', 'crashed')
    WHEN 'needs_review' THEN e.claim > 0 AND a.outcome IS NOT 'needs_review'
    WHEN 'skipped' THEN e.claim > 0 AND e.reason <> 'no handler' AND a.outcome IS NOT 'skipped'
    ELSE false END {few}

-- name: events_unlike_attempts
-- Once processed, always known to have been, in whatever run.
SELECT count(*) OVER () AS n, e.id, e.state
FROM events e
LEFT JOIN (SELECT DISTINCT event_id FROM attempts WHERE outcome = 'processed') a ON a.event_id = e.id
WHERE (e.first_processed_at IS NULL) <> (a.event_id IS NULL) {few}

-- name: attempts_astray
-- An attempt ends its claim, so the event's number is greater.
SELECT count(*) OVER () AS n, a.event_id, 'claim ' || a.claim
FROM attempts a LEFT JOIN events e ON e.id = a.event_id
WHERE e.id IS NULL OR a.claim >= e.claim OR a.run > e.run {few}

-- name: events_without_action
-- What only an operator can do is in the audit.
SELECT count(*) OVER () AS n, e.id, e.state
FROM events e LEFT JOIN (
    SELECT event_id, count(*) FILTER (WHERE name = 'replay') AS replays, max(name = 'discard') AS discarded,
           max(name = 'admit') AS admitted
    FROM actions WHERE name IN ('replay', 'discard', 'admit') GROUP BY event_id
) a ON a.event_id = e.id
WHERE e.run - 1 <> coalesce(a.replays, 0) OR (e.state = 'discarded' AND NOT coalesce(a.discarded, false))
   OR (e.key_origin = 'admitted') <> coalesce(a.admitted, false) {few}

-- name: effects_without_event
-- Somebody's consequence of nothing.
SELECT count(*) OVER () AS n, f.event_id, f.name || ':' || f.key
FROM effects f LEFT JOIN events e ON e.id = f.event_id
LEFT JOIN pruned p ON p.event_id = f.event_id
WHERE e.id IS NULL AND p.event_id IS NULL {few}

-- name: pruned_and_here
-- An event is here, or it was pruned.
SELECT count(*) OVER () AS n, e.id, e.state FROM events e JOIN pruned p ON p.event_id = e.id {few}

-- name: effects_without_attempt
-- A `once` is committed with the outcome of its claim. Only a handler that commits by itself can be between the two.
SELECT count(*) OVER () AS n, f.event_id, f.name || ':' || f.key
FROM effects f JOIN events e ON e.id = f.event_id
LEFT JOIN attempts a ON a.event_id = f.event_id AND a.claim = f.claim
WHERE f.kind = 'once' AND a.event_id IS NULL AND NOT (e.state = 'processing' AND e.claim = f.claim) {few}

-- name: calls_missing
-- Calls are numbered from 1 without a gap.
SELECT count(*) OVER () AS n, f.event_id, f.name || ':' || f.key
FROM effects f
LEFT JOIN (SELECT identity, count(*) AS n, max(number) AS last FROM effect_calls GROUP BY identity) c
  ON c.identity = f.identity
WHERE f.number <> coalesce(c.n, 0) OR f.number <> coalesce(c.last, 0) {few}

-- name: calls_astray
-- A call without the effect that it was made for.
SELECT count(*) OVER () AS n, f.event_id, coalesce(f.name || ':' || f.key, lower(hex(c.identity)))
FROM effect_calls c LEFT JOIN effects f ON f.identity = c.identity
WHERE f.identity IS NULL OR c.generation > f.generation {few}

-- name: effects_unlike_calls
-- What store/weigh.py makes of the calls of the present generation. In doubt: not known how it ended, and nobody
-- decided that it had not happened.
SELECT count(*) OVER () AS n, f.event_id, f.name || ':' || f.key
FROM effects f LEFT JOIN (
    SELECT c.identity, max(c.outcome IS 'done') AS done,
           max(c.outcome IS 'refused') AS refused,
           max(coalesce(c.outcome, 'unknown') = 'unknown'
                   AND c.number > CASE WHEN g.decided = 'did_not_happen' THEN g.decided_number ELSE 0 END) AS doubtful,
           max(c.number = g.number AND c.outcome IS NULL) AS under_way
    FROM effects g
    JOIN effect_calls c ON c.identity = g.identity AND c.generation = g.generation
    GROUP BY c.identity
) c ON c.identity = f.identity
WHERE f.kind <> 'once' AND NOT coalesce(CASE f.state
    WHEN 'planned' THEN NOT coalesce(c.done OR c.doubtful, false)
    WHEN 'started' THEN c.under_way
    WHEN 'done' THEN coalesce(c.done, false) OR coalesce(f.decided = 'happened', false)
    WHEN 'failed' THEN c.refused AND NOT c.done AND NOT c.doubtful
    WHEN 'unknown' THEN c.doubtful AND NOT c.done
    WHEN 'cancelled' THEN NOT coalesce(c.doubtful, false) END, false) {few}

-- name: stuck_events
-- Leases that ran out long ago.
SELECT count(*) OVER () AS n, id, worker FROM events
WHERE leased_until < ?1 - ?2 ORDER BY leased_until {few}

-- name: stuck_effects
-- The same for effects.
SELECT count(*) OVER () AS n, event_id, name || ':' || key FROM effects
WHERE leased_until < ?1 - ?2 ORDER BY leased_until {few}

-- name: unperformable
-- Outbox entries with a reason that begins like this.
SELECT count(*) OVER () AS n, event_id, name || ':' || key FROM effects
WHERE due_at IS NOT NULL AND substr(error, 1, length(?1)) = ?1 ORDER BY due_at {few}

-- name: settings
-- What durability rests on, as every connection of ours gets it.
SELECT 'journal_mode', journal_mode FROM pragma_journal_mode
UNION ALL SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous

-- name: integrity
-- Every page and every index, but not whether the two agree.
SELECT quick_check FROM pragma_quick_check
