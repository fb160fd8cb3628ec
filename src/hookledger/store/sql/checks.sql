-- Consistency checks as they are stored, and the keys of the rows that they look at.

-- name: next_keys
-- The keys of the next rows of a table, in their order.
SELECT {columns} FROM {among} WHERE ({key}) > ({after}) AND ({key}) <= ({last}) ORDER BY {key} LIMIT :most OFFSET :skip

-- name: last_key
SELECT {columns} FROM {among} ORDER BY {backwards} LIMIT 1

-- name: acted_events
-- The events that operators acted on, in the order of actions.
SELECT id, event_id FROM {schema}.actions WHERE id > :after AND id <= :last ORDER BY id LIMIT :most

-- name: attempts_to_check
-- The keys of what belongs to some events.
SELECT a.event_id AS key_0, a.claim AS key_1 FROM {schema}.attempts AS a WHERE a.event_id IN {list :events uuid}

-- name: effects_to_check
SELECT f.identity AS key_0 FROM {schema}.effects AS f WHERE f.event_id IN {list :events uuid}

-- name: calls_to_check
SELECT c.identity AS key_0, c.number AS key_1 FROM {schema}.effect_calls AS c WHERE c.identity IN {list :identities bytea}

-- name: guards_to_check
SELECT g.identity AS key_0 FROM {schema}.guards AS g WHERE g.event_id IN {list :events uuid}

-- name: answers_to_check
SELECT w.event_id AS key_0, w.claim AS key_1, w.identity AS key_2
FROM {schema}.guard_answers AS w WHERE w.event_id IN {list :events uuid}

-- name: kept_answers_to_check
SELECT n.event_id AS key_0 FROM {schema}.answers AS n WHERE n.event_id IN {list :events uuid}

-- name: covered
-- Up to which arrival checks have looked, and the present.
SELECT max(CASE kind WHEN 'full' THEN started_at ELSE until END) AS covered_until, {now} AS now_at
FROM {schema}.consistency_checks WHERE ended_at IS NOT NULL AND problem IS NULL

-- name: check_of_slot
SELECT ended_at IS NOT NULL AS ended, coalesce(leased_until > {now}, false) AS held
FROM {schema}.consistency_checks WHERE kind = :kind AND (slot = :slot OR ended_at IS NULL) ORDER BY ended_at IS NULL DESC

-- name: open_check
-- The one of its kind that has not ended; locked until the commit.
SELECT c.*, c.leased_until > {now} AS held, c.started_at < {now} - {seconds :stale} AS stale
FROM {schema}.consistency_checks AS c WHERE c.kind = :kind AND c.ended_at IS NULL {lock}

-- name: take_check
-- From a process that died, or that gave it up.
UPDATE {schema}.consistency_checks SET fence = fence + 1, holder = :holder, leased_until = {now} + {seconds :lease}
WHERE id = :id RETURNING *

-- name: begin_check
INSERT INTO {schema}.consistency_checks (id, kind, slot, since, until, started_at, holder, leased_until)
VALUES (:id, :kind, :slot, :since, :until, {now}, :holder, {now} + {seconds :lease})
ON CONFLICT DO NOTHING
RETURNING *

-- name: renew_check
UPDATE {schema}.consistency_checks SET leased_until = {now} + {seconds :lease}
WHERE id = :id AND fence = :fence AND ended_at IS NULL RETURNING id

-- name: advance_check
-- How far it has come, in the transaction that stores what it found until there.
UPDATE {schema}.consistency_checks
SET position = :position, row_count = row_count + :more, leased_until = {now} + {seconds :lease}, problem = NULL
WHERE id = :id AND fence = :fence AND ended_at IS NULL RETURNING id

-- name: count_violations
INSERT INTO {schema}.consistency_violations AS v (check_id, rule, count, sample)
SELECT :id::uuid, given.rule, given.count, given.sample FROM {rows :found rule text, count bigint, sample text} AS given
WHERE true
ON CONFLICT (check_id, rule) DO UPDATE SET count = v.count + excluded.count, sample = excluded.sample

-- name: give_up_check
-- The next process may take it up immediately.
UPDATE {schema}.consistency_checks SET leased_until = {now}, problem = :problem
WHERE id = :id AND fence = :fence AND ended_at IS NULL RETURNING id

-- name: end_check
UPDATE {schema}.consistency_checks
SET ended_at = {now}, leased_until = NULL, position = NULL, row_count = row_count + :more, problem = :problem
WHERE id = :id AND fence = :fence AND ended_at IS NULL RETURNING *

-- name: forget_violations
-- Of checks that ended long ago.
DELETE FROM {schema}.consistency_violations WHERE check_id IN (
    SELECT id FROM {schema}.consistency_checks WHERE ended_at < {now} - {seconds :keep})

-- name: forget_checks
DELETE FROM {schema}.consistency_checks WHERE ended_at < {now} - {seconds :keep}

-- name: last_checks
-- The last of each kind. There are some hundreds: older ones are deleted.
SELECT * FROM (
    SELECT c.*, row_number() OVER (PARTITION BY kind ORDER BY started_at DESC, id DESC) AS n
    FROM {schema}.consistency_checks AS c
) AS c WHERE n <= :most ORDER BY started_at DESC, id DESC

-- name: violations_of
SELECT check_id, rule, count, sample FROM {schema}.consistency_violations
WHERE check_id IN {list :checks uuid} ORDER BY check_id, rule

-- name: last_full
-- When the last full check that came to its end began and ended.
SELECT started_at, ended_at FROM {schema}.consistency_checks
WHERE kind = 'full' AND ended_at IS NOT NULL AND problem IS NULL ORDER BY started_at DESC LIMIT 1

-- name: standing_violations
-- What the last full check found, and every check that began later, even if it still runs: the most of each rule.
SELECT v.rule, max(v.count) AS count FROM {schema}.consistency_violations AS v
JOIN {schema}.consistency_checks AS c ON c.id = v.check_id
WHERE c.started_at >= :begun GROUP BY v.rule ORDER BY v.rule
