-- Each query of RULES finds what is wrong with rows of one table. The operation fills in the rest: {among}, the table whole
-- or the rows with the keys of a list (`keyed_…`); {found}, how many there are in all or the keys; {at_most}, a limit.
-- So the same words serve `report`, which reads whole tables in one snapshot, and the check in pieces.
-- PostgreSQL joins whole tables by hashing; SQLite finds what it looks for by primary key, or in a list that it makes
-- once. Counts compared with 0 look rows up by index; PostgreSQL may hash the whole table for an EXISTS.
-- An event that was pruned has a row in `pruned`, in the same commit: what still points at it is not astray.

-- name: few
LIMIT 5

-- name: pruned_event
-- Not a stage, whose source is NAME/STAGE and whose key is its event's.
source NOT LIKE '%/%'

-- name: figures
-- Every book, by entry.
SELECT 'deliveries' AS book, outcome AS entry, count(*) AS n FROM {schema}.deliveries GROUP BY outcome
UNION ALL SELECT 'events', state, count(*) FROM {schema}.events WHERE parent IS NULL GROUP BY state
UNION ALL SELECT 'stages', state, count(*) FROM {schema}.events WHERE parent IS NOT NULL GROUP BY state
UNION ALL SELECT 'quarantine', 'quarantine', count(*) FROM {schema}.events WHERE key_origin = 'quarantine' AND parent IS NULL
UNION ALL SELECT 'pruned', state, count(*) FROM {schema}.pruned WHERE {pruned_event} GROUP BY state
UNION ALL SELECT 'identities', kind, count(*) FROM {schema}.identities GROUP BY kind
UNION ALL SELECT 'attempts', outcome, count(*) FROM {schema}.attempts GROUP BY outcome
UNION ALL SELECT 'effects', state, count(*) FROM {schema}.effects GROUP BY state
UNION ALL SELECT 'calls', coalesce(outcome, 'open'), count(*) FROM {schema}.effect_calls GROUP BY outcome
UNION ALL SELECT 'guards', 'guards', count(*) FROM {schema}.guards HAVING count(*) > 0
UNION ALL SELECT 'guards', CASE WHEN applied THEN 'applied' ELSE 'stale' END, count(*)
          FROM {schema}.guard_answers GROUP BY applied

-- name: our_schema
{schema}

-- name: keyed_deliveries
-- The rows of a table with these keys.
{rows :keys key_0 uuid, key_1 integer} AS k {ordered} JOIN {schema}.deliveries AS d ON d.request_id = k.key_0 AND d.item = k.key_1

-- name: keyed_requests
{rows :keys key_0 uuid} AS k {ordered} JOIN {schema}.requests AS r ON r.id = k.key_0

-- name: keyed_events
{rows :keys key_0 uuid} AS k {ordered} JOIN {schema}.events AS e ON e.id = k.key_0

-- name: keyed_attempts
{rows :keys key_0 uuid, key_1 bigint} AS k {ordered} JOIN {schema}.attempts AS a ON a.event_id = k.key_0 AND a.claim = k.key_1

-- name: keyed_effects
{rows :keys key_0 bytea} AS k {ordered} JOIN {schema}.effects AS f ON f.identity = k.key_0

-- name: keyed_effect_calls
{rows :keys key_0 bytea, key_1 integer} AS k {ordered} JOIN {schema}.effect_calls AS c ON c.identity = k.key_0 AND c.number = k.key_1

-- name: keyed_guards
{rows :keys key_0 bytea} AS k {ordered} JOIN {schema}.guards AS g ON g.identity = k.key_0

-- name: keyed_guard_answers
{rows :keys key_0 uuid, key_1 bigint, key_2 bytea} AS k {ordered} JOIN {schema}.guard_answers AS w
  ON w.event_id = k.key_0 AND w.claim = k.key_1 AND w.identity = k.key_2

-- name: keyed_answers
{rows :keys key_0 uuid} AS k {ordered} JOIN {schema}.answers AS n ON n.event_id = k.key_0

-- name: keyed_identities
{rows :keys key_0 bytea} AS k {ordered} JOIN {schema}.identities AS i ON i.identity = k.key_0

-- name: keyed_pruned
{rows :keys key_0 uuid} AS k {ordered} JOIN {schema}.pruned AS p ON p.event_id = k.key_0

-- name: deliveries_without_event
-- Acked as new, and lost; or two deliveries made one event, which names one of them.
SELECT {found}, d.event_id AS id, NULL AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = d.event_id
WHERE d.outcome IN ('accepted', 'invalid', 'reconciled')
  AND (e.id IS NULL OR e.request_id <> d.request_id OR e.item <> d.item) {at_most}

-- name: deliveries_astray
-- A delivery that made no event belongs to one, to one that was pruned, or to an import of keys.
SELECT {found}, d.request_id AS id, NULL AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = d.event_id
LEFT JOIN {schema}.actions AS a ON a.id = d.event_id AND a.name = 'import-keys'
LEFT JOIN {schema}.pruned AS p ON p.event_id = d.event_id
WHERE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') AND e.id IS NULL AND a.id IS NULL AND p.event_id IS NULL {at_most}

-- name: events_without_delivery
-- An event names the delivery that made it, or the quarantined one that an operator accepted; a stage that of its event.
SELECT {found}, e.id, NULL AS label
FROM {among} LEFT JOIN {schema}.deliveries AS d ON d.request_id = e.request_id AND d.item = e.item
WHERE d.request_id IS NULL OR CASE e.key_origin
    WHEN 'quarantine' THEN d.outcome NOT IN ('conflict', 'same_body')
    ELSE d.outcome NOT IN ('accepted', 'invalid', 'reconciled') OR d.event_id <> coalesce(e.parent, e.id) END {at_most}

-- name: requests_missing
-- The bytes of all but plain duplicates are kept. An event without them could not be claimed.
SELECT {found}, d.event_id AS id, NULL AS label
FROM {among} LEFT JOIN {schema}.requests AS r ON r.id = d.request_id
WHERE d.outcome <> 'duplicate' AND r.id IS NULL {at_most}

-- name: requests_astray
-- Bytes that nothing came of.
SELECT {found}, r.id, NULL AS label FROM {among}
WHERE NOT EXISTS (SELECT 1 FROM {schema}.deliveries AS d WHERE d.request_id = r.id) {at_most}

-- name: identities_astray
-- A delivery with this identity would be a duplicate of no event. An identity that came with an imported key belongs
-- to the import, whatever its fingerprint.
SELECT {found}, i.event_id AS id, i.kind AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = i.event_id
LEFT JOIN {schema}.actions AS a ON a.id = i.event_id AND a.name = 'import-keys'
LEFT JOIN {schema}.pruned AS p ON p.event_id = i.event_id
WHERE e.id IS NULL AND a.id IS NULL AND p.event_id IS NULL {at_most}

-- name: events_without_identity
-- An accepted event owns its content under a key that is another's.
SELECT {found}, e.id, NULL AS label FROM {among}
WHERE e.parent IS NULL AND NOT EXISTS (
    SELECT 1 FROM {schema}.identities AS i
    WHERE i.event_id = e.id AND i.kind <> 'body' AND (i.kind = 'quarantine') = (e.key_origin = 'quarantine')) {at_most}

-- name: events_without_identity (sqlite)
-- Differs because SQLite would read all identities for each event: they have no index by event.
SELECT {found}, e.id, NULL AS label FROM {among}
WHERE e.parent IS NULL AND CASE e.key_origin
    WHEN 'quarantine' THEN e.id NOT IN (SELECT event_id FROM {schema}.identities WHERE kind = 'quarantine' {owners})
    ELSE e.id NOT IN (SELECT event_id FROM {schema}.identities WHERE kind = 'key' {owners}) END {at_most}

-- name: pruned_without_identity
-- A pruned event keeps its key, so that its redelivery is always a duplicate.
SELECT {found}, p.event_id AS id, p.state AS label FROM {among}
WHERE p.{pruned_event} AND NOT EXISTS (SELECT 1 FROM {schema}.identities AS i WHERE i.event_id = p.event_id AND i.kind <> 'body') {at_most}

-- name: pruned_without_identity (sqlite)
-- Differs because SQLite would read all identities for each row, as above.
SELECT {found}, p.event_id AS id, p.state AS label FROM {among}
WHERE p.{pruned_event} AND p.event_id NOT IN (SELECT event_id FROM {schema}.identities WHERE kind <> 'body' {owners}) {at_most}

-- name: settled
-- Whether an operator settled event `e` by hand.
((SELECT count(*) FROM {schema}.actions AS s WHERE s.event_id = e.id AND s.name = 'settle') > 0)

-- name: events_without_attempt
-- Every way out of processing but `release` writes the attempt of the claim that it ends, and increases the number.
-- Events have no attempt if intake skipped or failed them or put them in review (claim 0), or if they have no
-- handler; an operator may have made them pending, and has made them discarded. One that an operator settled has the
-- attempt that asked for the review, one number before, or came into review at intake.
SELECT {found}, e.id, e.state AS label
FROM {among} LEFT JOIN {schema}.attempts AS a ON a.event_id = e.id AND a.claim = e.claim - 1
WHERE NOT {attempt_explains_state}
  AND (e.claim > 0 OR e.state NOT IN ('skipped', 'failed', 'needs_review'))
  AND (e.state <> 'skipped' OR e.reason <> 'no handler')
  AND (e.state <> 'processed' OR NOT {settled} OR (
      e.claim > 1 AND (SELECT count(*) FROM {schema}.attempts AS r WHERE r.event_id = e.id AND r.claim = e.claim - 2
                       AND r.outcome = 'needs_review') = 0)) {at_most}

-- name: events_unlike_attempts
-- Once processed, always known to have been, in whatever run, or settled by hand.
SELECT {found}, e.id, e.state AS label FROM {among}
WHERE (e.first_processed_at IS NOT NULL) <> (
    (SELECT count(*) FROM {schema}.attempts AS a WHERE a.event_id = e.id AND a.outcome = 'processed') > 0
    OR {settled}) {at_most}

-- name: attempts_astray
-- An attempt ends its claim, so the event's number is greater.
SELECT {found}, a.event_id AS id, 'claim ' || a.claim AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = a.event_id
WHERE e.id IS NULL OR a.claim >= e.claim OR a.run > e.run {at_most}

-- name: events_without_action
-- The audit log has what only an operator can do.
SELECT {found}, e.id, e.state AS label FROM {among}
WHERE e.run - 1 <> (SELECT count(*) FROM {schema}.actions AS a WHERE a.event_id = e.id AND a.name IN ('replay', 'approve'))
   OR (e.state = 'discarded' AND (SELECT count(*) FROM {schema}.actions AS a
                                  WHERE a.event_id = e.id AND a.name IN ('discard', 'reject')) = 0)
   OR (e.key_origin = 'quarantine' AND e.parent IS NULL) <> (
       (SELECT count(*) FROM {schema}.actions AS a WHERE a.event_id = e.id AND a.name = 'accept') > 0) {at_most}

-- name: stages_astray
-- A stage is committed with the processing of its event, and pruned with it.
SELECT {found}, e.id, e.stage AS label
FROM {among} LEFT JOIN {schema}.events AS o ON o.id = e.parent
LEFT JOIN {schema}.pruned AS p ON p.event_id = e.parent
WHERE e.parent IS NOT NULL AND p.event_id IS NULL
  AND (o.id IS NULL OR o.parent IS NOT NULL OR o.first_processed_at IS NULL) {at_most}

-- name: entities_overlap
-- One event of an entity at a time is first.
SELECT {found}, e.id, e.source || ' ' || e.entity AS label
FROM {among} JOIN {schema}.events AS o ON o.source = e.source AND o.entity = e.entity AND o.id > e.id
WHERE e.order_at IS NOT NULL AND (e.leased_until IS NOT NULL OR e.due_at < {never})
  AND o.order_at IS NOT NULL AND (o.leased_until IS NOT NULL OR o.due_at < {never}) {at_most}

-- name: entities_stuck
-- An event waits for its turn, none is first, none holds it, and no change is left from which a worker would see that.
SELECT {found}, e.id, e.source || ' ' || e.entity AS label FROM {among}
WHERE e.order_at IS NOT NULL AND e.due_at = {never} AND e.waits_for IS NULL
  AND NOT EXISTS (SELECT 1 FROM {schema}.entity_changes AS c WHERE c.source = e.source AND c.entity = e.entity)
  AND NOT EXISTS (SELECT 1 FROM {schema}.events AS a
                  WHERE a.source = e.source AND a.entity = e.entity AND a.order_at IS NOT NULL
                    AND (a.leased_until IS NOT NULL OR a.due_at < {never}))
  AND NOT EXISTS (SELECT 1 FROM {schema}.events AS b
                  WHERE b.source = e.source AND b.entity = e.entity AND b.hold AND b.order_at <= e.order_at
                    AND b.state IN ('failed', 'needs_review')) {at_most}

-- name: approvals_astray
-- An approval is of the event, and of the run that it began.
SELECT {found}, e.id, 'run ' || e.run AS label
FROM {among} LEFT JOIN {schema}.actions AS a ON a.id = e.approval_id
WHERE e.approval_id IS NOT NULL AND (
    a.id IS NULL OR a.name <> 'approve' OR a.event_id <> e.id
    OR substr(a.subject, 1, length('run ' || e.run || ',')) <> 'run ' || e.run || ',') {at_most}

-- name: effects_without_event
-- Effects of events that do not exist.
SELECT {found}, f.event_id AS id, f.name || ':' || f.key AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = f.event_id
LEFT JOIN {schema}.pruned AS p ON p.event_id = f.event_id
WHERE e.id IS NULL AND p.event_id IS NULL {at_most}

-- name: pruned_and_here
-- An event is here, or it was pruned.
SELECT {found}, e.id, e.state AS label FROM {among} JOIN {schema}.events AS e ON e.id = p.event_id {at_most}

-- name: effects_without_attempt
-- A `once` is committed with the outcome of its claim. Only a handler that commits the transaction itself can be
-- between the two.
SELECT {found}, f.event_id AS id, f.name || ':' || f.key AS label
FROM {among} JOIN {schema}.events AS e ON e.id = f.event_id
LEFT JOIN {schema}.attempts AS a ON a.event_id = f.event_id AND a.claim = f.claim
WHERE f.kind = 'once' AND a.event_id IS NULL AND NOT (e.state = 'processing' AND e.claim = f.claim) {at_most}

-- name: calls_missing
-- Calls are numbered from 1 without a gap.
SELECT {found}, f.event_id AS id, f.name || ':' || f.key AS label FROM {among}
WHERE f.number <> (SELECT count(*) FROM {schema}.effect_calls AS c WHERE c.identity = f.identity)
   OR f.number <> (SELECT coalesce(max(c.number), 0) FROM {schema}.effect_calls AS c WHERE c.identity = f.identity) {at_most}

-- name: identity_in_hex
encode(c.identity, 'hex')

-- name: identity_in_hex (sqlite)
-- Differs because SQLite has no encode().
lower(hex(c.identity))

-- name: calls_astray
-- A call without the effect that it was made for.
SELECT {found}, f.event_id AS id, coalesce(f.name || ':' || f.key, {identity_in_hex}) AS label
FROM {among} LEFT JOIN {schema}.effects AS f ON f.identity = c.identity
WHERE f.identity IS NULL OR c.generation > f.generation {at_most}

-- name: effects_unlike_calls
-- The state that store/call_outcome.py derives from the calls of the current generation. `maybe`: a call has an
-- unknown outcome, and was not decided not to have happened. {again}: the same effects once more, as `g`.
SELECT {found}, f.event_id AS id, f.name || ':' || f.key AS label
FROM {among} LEFT JOIN (
    SELECT c.identity, count(*) FILTER (WHERE c.outcome = 'done') > 0 AS done,
           count(*) FILTER (WHERE c.outcome = 'refused') > 0 AS refused,
           count(*) FILTER (WHERE coalesce(c.outcome, 'unknown') = 'unknown' AND c.number >
               CASE WHEN g.decided = 'did_not_happen' THEN g.decided_number ELSE 0 END) > 0 AS maybe,
           count(*) FILTER (WHERE c.number = g.number AND c.outcome IS NULL) > 0 AS running
    FROM {again}
    JOIN {schema}.effect_calls AS c ON c.identity = g.identity AND c.generation = g.generation
    GROUP BY c.identity
) AS c ON c.identity = f.identity
WHERE f.kind <> 'once' AND NOT coalesce(CASE f.state
    WHEN 'planned' THEN NOT coalesce(c.done OR c.maybe, false)
    WHEN 'started' THEN c.running
    WHEN 'done' THEN coalesce(c.done, false) OR coalesce(f.decided = 'happened', false)
    WHEN 'failed' THEN c.refused AND NOT c.done AND NOT c.maybe
    WHEN 'unknown' THEN c.maybe AND NOT c.done
    WHEN 'cancelled' THEN NOT coalesce(c.maybe, false) END, false) {at_most}

-- name: guards_without_event
-- The newest version of nothing that was ever here.
SELECT {found}, g.event_id AS id, g.name || ':' || g.key AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = g.event_id
LEFT JOIN {schema}.pruned AS p ON p.event_id = g.event_id
WHERE e.id IS NULL AND p.event_id IS NULL {at_most}

-- name: guards_without_answer
-- A guard is set in the statement that records the answer. Pruning takes the answers with their event.
SELECT {found}, g.event_id AS id, g.name || ':' || g.key AS label
FROM {among} JOIN {schema}.events AS e ON e.id = g.event_id
LEFT JOIN {schema}.guard_answers AS a
  ON a.event_id = g.event_id AND a.claim = g.claim AND a.identity = g.identity AND a.applied AND a.version = g.version
WHERE a.event_id IS NULL {at_most}

-- name: answers_astray
SELECT {found}, w.event_id AS id, w.name || ':' || w.key AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = w.event_id
LEFT JOIN {schema}.guards AS g ON g.identity = w.identity
WHERE e.id IS NULL OR g.identity IS NULL {at_most}

-- name: answers_without_attempt
-- An answer is committed with the outcome of its claim, as a `once` is.
SELECT {found}, w.event_id AS id, w.name || ':' || w.key AS label
FROM {among} JOIN {schema}.events AS e ON e.id = w.event_id
LEFT JOIN {schema}.attempts AS t ON t.event_id = w.event_id AND t.claim = w.claim
WHERE t.event_id IS NULL AND NOT (e.state = 'processing' AND e.claim = w.claim) {at_most}

-- name: kept_answers_astray
-- An answer is committed with the outcome of its run, and goes with its event.
SELECT {found}, n.event_id AS id, NULL AS label
FROM {among} LEFT JOIN {schema}.events AS e ON e.id = n.event_id
WHERE e.id IS NULL OR n.run > e.run {at_most}

-- name: stuck_events
-- Leases that expired long ago.
SELECT count(*) OVER () AS n, id, worker AS label FROM {schema}.events
WHERE leased_until < {now} - {seconds :longer_than} ORDER BY leased_until {few}

-- name: stuck_effects
-- The same for effects.
SELECT count(*) OVER () AS n, event_id AS id, name || ':' || key AS label FROM {schema}.effects
WHERE leased_until < {now} - {seconds :longer_than} ORDER BY leased_until {few}

-- name: unperformable
-- Outbox entries with a reason that begins like this.
SELECT count(*) OVER () AS n, event_id AS id, name || ':' || key AS label FROM {schema}.effects
WHERE due_at IS NOT NULL AND substr(error, 1, length(:reason::text)) = :reason ORDER BY due_at {few}

-- name: database_settings (postgres)
-- Differs because each database has its own. What durability and isolation rest on, as a new session of ours gets it; and
-- our schema, if tables without one are made there.
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'default_transaction_isolation', 'data_checksums')
UNION ALL SELECT 'current_schema', nspname FROM pg_namespace
WHERE nspname = current_schema() AND oid = to_regnamespace('{schema}')

-- name: database_settings (sqlite)
-- Differs because each database has its own. What durability rests on, as every connection of ours gets it.
SELECT 'journal_mode' AS name, journal_mode AS setting FROM pragma_journal_mode
UNION ALL SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous

-- name: database_damage (postgres)
-- Differs because PostgreSQL checks its pages as it reads them, where checksums are on: there is nothing to ask.
SELECT 'ok' AS finding

-- name: database_damage (sqlite)
-- Differs because only SQLite can be asked. Every page and every index, but not whether the two agree.
SELECT quick_check AS finding FROM pragma_quick_check
