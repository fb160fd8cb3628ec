-- PostgreSQL's dialect of the effect ledger; {schema} and {now} as in queries.sql; {effect_columns} is that of
-- store/sql/columns.sql. All transactions lock in one order: effects by identity, then events by id. A handler's
-- transaction too writes its effects before its outcome.

-- name: durably
-- For a statement without BEGIN: its commit is on disk, and it waits briefly for a lock.
SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '5s', true)

-- name: start
-- absent -> started, each with its first call, in one statement and one round trip; what comes back was absent. Only
-- for an event that its worker still holds. Sorted, so that batches queue and do not deadlock. A handler that has not
-- committed yet may hold one of them: the others do not wait for it long.
WITH durably AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '500ms', true)
), i AS MATERIALIZED (
    SELECT i.*, {now} AS now
    FROM durably, unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::bigint[],
                         $9::bytea[], $10::bytea[], $11::text[], $12::text[], $13::float8[])
      AS i (identity, kind, source, name, key, event_id, claim, arguments, arguments_digest, repeat, downstream, lease)
), new AS (
    INSERT INTO {schema}.effects (identity, kind, source, name, key, event_id, claim, arguments, arguments_digest,
                                  repeat, downstream, state, fence, number, tries, planned_at, created_at,
                                  leased_until, worker)
    SELECT i.identity, i.kind, i.source, i.name, i.key, i.event_id, i.claim, i.arguments, i.arguments_digest,
           i.repeat, i.downstream, 'started', 1, 1, 1, now, now, now + make_interval(secs => i.lease), $1
    FROM i JOIN {schema}.events AS v ON v.id = i.event_id AND v.claim = i.claim AND v.state = 'processing'
    ORDER BY i.identity
    ON CONFLICT DO NOTHING
    RETURNING identity, generation, worker, created_at
), called AS (
    INSERT INTO {schema}.effect_calls (identity, number, generation, worker, started_at)
    SELECT identity, 1, generation, worker, created_at FROM new
)
SELECT identity FROM new

-- name: finish_first
-- started -> done, for effects whose only call so far came back done: one statement and one round trip.
WITH durably AS MATERIALIZED (
    {durably}
), done AS (
    UPDATE {schema}.effects AS e
    SET state = 'done', fence = e.fence + 1, leased_until = NULL, finished_at = {now}, result = c.result,
        error = c.error
    FROM durably, unnest($1::bytea[], $2::bytea[], $3::text[]) AS c (identity, result, error)
    WHERE e.identity = c.identity AND e.state = 'started' AND e.number = 1
    RETURNING e.identity, e.error
), ended AS (
    UPDATE {schema}.effect_calls AS k SET ended_at = {now}, outcome = 'done', error = done.error
    FROM done WHERE k.identity = done.identity AND k.number = 1
)
SELECT identity FROM done

-- name: lock
-- The effects that calls came back for, in one order.
SELECT identity, event_id, source, name, key, generation, kind, repeat, state, number, decided, decided_number, result
FROM {schema}.effects WHERE identity = ANY($1::bytea[]) ORDER BY identity FOR NO KEY UPDATE

-- name: end_calls
-- How calls ended. Keeps an outcome that is known; with `unless_ended`, an unknown one too.
UPDATE {schema}.effect_calls AS k SET ended_at = {now}, outcome = c.outcome, error = c.error
FROM unnest($1::bytea[], $2::integer[], $3::text[], $4::text[], $5::boolean[])
  AS c (identity, number, outcome, error, unless_ended)
WHERE k.identity = c.identity AND k.number = c.number
  AND (k.outcome IS NULL OR (k.outcome = 'unknown' AND NOT c.unless_ended))
RETURNING k.identity, k.generation, k.ended_at

-- name: calls
SELECT * FROM {schema}.effect_calls WHERE identity = ANY($1::bytea[]) ORDER BY identity, number LIMIT 10000

-- name: move
-- What the ends of calls mean for their effects, as call_outcome.py decides. The rows are locked.
UPDATE {schema}.effects AS e
SET state = m.state, fence = e.fence + 1, result = coalesce(e.result, m.result),
    error = CASE WHEN m.state = e.state THEN e.error ELSE m.error END,
    alert = CASE WHEN m.alert IS NULL THEN e.alert ELSE concat_ws(E'\n', e.alert, m.alert) END,
    leased_until = CASE WHEN m.state = 'started' THEN e.leased_until END,
    due_at = CASE WHEN e.kind = 'later' AND m.state IN ('planned', 'unknown')
                  THEN {now} + make_interval(secs => m.due_in) END,
    finished_at = CASE WHEN m.state IN ('done', 'cancelled') THEN coalesce(e.finished_at, {now}) END
FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::float8[], $5::text[], $6::text[])
  AS m (identity, state, result, due_in, error, alert)
WHERE e.identity = m.identity

-- name: waiting
-- The events in review, of one source or of any, whose reason has this prefix: for each of several prefixes. Few
-- events are in review.
SELECT v.id, w.nth FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (source, words, nth)
JOIN {schema}.events AS v
  ON v.state = 'needs_review' AND (w.source IS NULL OR split_part(v.source, '/', 1) = w.source)
 AND starts_with(v.reason, w.words)

-- name: lock_events
-- Before their attention is looked at in a second statement: of two effects of one event that change at the same
-- moment, the second must see the first.
SELECT id FROM {schema}.events WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE

-- name: attend
-- Whether an operator should look at their effects: one failed for good, has an unknown outcome, be it that its policy
-- is still at it, or an alert. A refused call is its handler's business.
UPDATE {schema}.events AS v SET attention = w.wanted
FROM (
    SELECT i.id, EXISTS (
        SELECT FROM {schema}.effects AS e
        WHERE e.event_id = i.id AND (
            e.alert IS NOT NULL OR e.state = 'unknown' OR (e.kind = 'later' AND e.state = 'failed'))) AS wanted
    FROM unnest($1::uuid[]) AS i (id)
) AS w
WHERE v.id = w.id AND v.attention <> w.wanted

-- name: heads
-- The first entries of the lanes of `w.name` from `w.lane` on that can be claimed: a walk from lane to lane, to the
-- first entry of each that has a time. It must be due, and all entries before it must be finished. Places follow the
-- order of commits, so a transaction that sees an entry sees all entries before it.
WITH RECURSIVE walk AS (
    (SELECT lane, place, identity, due_at FROM {schema}.effects
     WHERE name = w.name AND lane >= w.lane AND due_at IS NOT NULL ORDER BY lane, place LIMIT 1)
    UNION ALL
    SELECT n.* FROM walk CROSS JOIN LATERAL (
        SELECT lane, place, identity, due_at FROM {schema}.effects
        WHERE name = w.name AND lane > walk.lane AND due_at IS NOT NULL ORDER BY lane, place LIMIT 1
    ) AS n
)
SELECT walk.identity FROM walk
WHERE walk.due_at <= {now} AND NOT EXISTS (
    SELECT FROM {schema}.effects AS p
    WHERE p.name = w.name AND p.lane = walk.lane AND p.place < walk.place AND p.finished_at IS NULL)

-- name: claim
-- planned -> started with its next call; a due unknown effect is leased only. As for events: the lock step is
-- materialized, so that LIMIT is the limit. LIMIT 200 is for the planner, which cannot know `most` and would read the
-- whole table to find a tenth of it.
WITH durably AS MATERIALIZED (
    {durably}
), w AS MATERIALIZED (
    SELECT w.* FROM durably, unnest($2::text[], $3::integer[], $4::float8[], $5::text[]) AS w (name, most, lease, lane)
), free AS MATERIALIZED (
    SELECT d.identity, d.due_at, w.name, w.most, w.lease FROM w CROSS JOIN LATERAL (
        SELECT e.identity, e.due_at FROM {schema}.effects AS e
        WHERE e.name = w.name AND e.lane IS NULL AND e.due_at <= {now}
        ORDER BY e.due_at LIMIT w.most FOR NO KEY UPDATE SKIP LOCKED
    ) AS d LIMIT 200
), heads AS MATERIALIZED (
    SELECT d.identity, w.name, w.most, w.lease FROM w CROSS JOIN LATERAL ({heads} LIMIT w.most) AS d LIMIT 200
), laned AS MATERIALIZED (
    SELECT e.identity, e.due_at, heads.name, heads.most, heads.lease
    FROM heads JOIN {schema}.effects AS e USING (identity)
    WHERE e.due_at <= {now} FOR NO KEY UPDATE OF e SKIP LOCKED
), due AS (
    SELECT identity, lease FROM (
        SELECT d.*, row_number() OVER (PARTITION BY name ORDER BY due_at) AS nth
        FROM (SELECT * FROM free UNION ALL SELECT * FROM laned) AS d
    ) AS d WHERE nth <= most
), taken AS (
    UPDATE {schema}.effects AS e
    SET state = CASE e.state WHEN 'planned' THEN 'started' ELSE 'unknown' END, fence = e.fence + 1,
        number = e.number + CASE e.state WHEN 'planned' THEN 1 ELSE 0 END,
        tries = e.tries + CASE e.state WHEN 'planned' THEN 1 ELSE 0 END,
        worker = $1, leased_until = {now} + make_interval(secs => due.lease), due_at = NULL
    FROM due WHERE e.identity = due.identity
    RETURNING {effect_columns}
), called AS (
    INSERT INTO {schema}.effect_calls (identity, number, generation, worker, started_at)
    SELECT identity, number, generation, $1, {now} FROM taken WHERE state = 'started'
)
SELECT * FROM taken

-- name: due
-- Those of the names that have something to be taken.
SELECT w.name FROM unnest($1::text[]) AS w (name) CROSS JOIN LATERAL (
    SELECT FROM {schema}.effects AS e
    WHERE e.name = w.name AND e.lane IS NULL AND e.due_at <= {now} ORDER BY e.due_at LIMIT 1
) AS d
UNION
SELECT w.name FROM unnest($1::text[]) AS u (name) CROSS JOIN LATERAL (SELECT u.name, '' AS lane) AS w
CROSS JOIN LATERAL ({heads} LIMIT 1) AS d
