-- What queries of several files have in common.

-- name: deliveries
-- How often an event `e` came.
1 + (SELECT count(*) FROM {schema}.deliveries AS d
     WHERE d.event_id = e.id AND d.outcome NOT IN ('accepted', 'invalid', 'reconciled')) AS deliveries

-- name: in_few_states
-- The states of the index `events_in_state`, in the words that it has.
state IN ('retrying', 'skipped', 'failed', 'needs_review', 'discarded')

-- name: marked
-- Marked for operators, in the words of the index `events_marked`.
(attention OR alert IS NOT NULL)

-- name: marked (sqlite)
-- Differs because SQLite uses a partial index only for its very words, and those compare with 1.
(attention = 1 OR alert IS NOT NULL)

-- name: effect_columns
-- An effect `e`, and what the clock makes of it. `unknown_for` counts from the first call that may have been sent:
-- not refused, and not decided not to have happened. Calls are counted because PostgreSQL may hash the whole table
-- for an EXISTS.
e.identity, e.kind, e.source, e.name, e.key, e.event_id, e.claim, e.arguments, e.arguments_digest, e.repeat,
e.downstream, e.lane, e.state, e.generation, e.fence, e.number, e.tries, e.due_at, e.leased_until, e.worker,
e.created_at, e.finished_at, e.result, e.error, e.alert, e.decided, e.traceparent, e.correlation_id,
(SELECT k.key FROM {schema}.events AS k WHERE k.id = e.event_id) AS event_key,
(SELECT count(*) > 0 FROM {schema}.effect_calls AS n
 WHERE n.identity = e.identity AND n.generation = e.generation AND n.outcome = 'done') AS called_done,
coalesce(e.state = 'started' AND e.leased_until < {now}, false) AS expired,
{greatest}(coalesce({elapsed e.leased_until - {now}}, 0.0), 0.0) AS lease_left,
(SELECT {elapsed {now} - min(n.started_at)} FROM {schema}.effect_calls AS n
 WHERE n.identity = e.identity AND n.generation = e.generation AND n.outcome IS DISTINCT FROM 'refused'
   AND n.number > CASE WHEN e.decided = 'did_not_happen' THEN e.decided_number ELSE 0 END) AS unknown_for,
{elapsed {now} - e.planned_at} AS age

-- name: into_answers
-- What an attempt is answered by a guard, in the order of the columns here.
INSERT INTO {schema}.guard_answers (event_id, claim, identity, name, key, kind, version, position, rank, applied, tie,
                                    other_version, other_event_id, at)

-- name: or_again
-- Asked again by the same attempt, the guard's last answer counts.
ON CONFLICT (event_id, claim, identity) DO UPDATE
SET kind = excluded.kind, version = excluded.version, position = excluded.position, rank = excluded.rank,
    applied = excluded.applied, tie = excluded.tie, other_version = excluded.other_version,
    other_event_id = excluded.other_event_id, at = excluded.at

-- name: not_paused
-- This kind `k` is not paused, except for workers of earlier releases (decision 0063). A pattern that ends in `*` is every type with that prefix.
NOT EXISTS (SELECT 1 FROM {schema}.pauses AS p WHERE p.source = k.source AND NOT p.older AND (
    p.pattern = k.type OR substr(k.type, 1, length(p.pattern) - 1) || '*' = p.pattern))

-- name: later_kind
-- Whether an event in the queue is of a kind after `k`.
(source, type, version) > (k.source, k.type, k.version)

-- name: later_kind (sqlite)
-- Differs because SQLite begins at the first row that is equal to these columns, and would walk the whole kind: no event
-- is due at the last moment. It compares columns in the index only with what is no column: hence the plus.
(source, type, version, due_at) > (+k.source, +k.type, +k.version, 9223372036854775807)

-- name: kinds_waiting
-- The kinds in the queue and when the first event of each is due: a walk from kind to kind along the index.
kinds (source, type, version, due_at) AS (
    SELECT * FROM (SELECT source, type, version, due_at FROM {schema}.events {indexed events_waiting}
                   WHERE state IN ('pending', 'retrying') AND crashes < 2
                   ORDER BY source, type, version, due_at LIMIT 1) AS first
    UNION ALL
    SELECT n.source, n.type, n.version, n.due_at FROM kinds AS k JOIN {schema}.events AS n ON n.id = (
        SELECT id FROM {schema}.events {indexed events_waiting}
        WHERE state IN ('pending', 'retrying') AND crashes < 2 AND {later_kind}
        ORDER BY source, type, version, due_at LIMIT 1)
)

-- name: later_type
-- Whether an event is of a source and type after `k`.
(source, type) > (k.source, k.type)

-- name: later_type (sqlite)
-- Differs as `later_kind` does: no event has the last id.
(source, type, id) > (+k.source, +k.type, x'ffffffffffffffffffffffffffffffff')

-- name: never
-- When an event is due that is not the first of its entity.
'9999-01-01 00:00:00+00'

-- name: never (sqlite)
-- Differs because times are microseconds.
253370764800000000

-- name: claimable
-- A delivery of this event `k` may claim it, due or not: a worker could claim it when it is due.
k.state IN ('pending', 'retrying') AND k.due_at < {never} AND {not_paused}

-- name: unplaced
-- Whether it is to be decided which event of some entity is first.
(SELECT EXISTS (SELECT 1 FROM {schema}.entity_changes)
        OR EXISTS (SELECT 1 FROM {schema}.events {indexed events_to_poll}
                   WHERE waits_for IS NOT NULL AND order_at IS NOT NULL AND ready_at <= {now}))
