-- PostgreSQL's dialect of rehearsals; {schema} and {clock} as in queries.sql.

-- name: begin
-- What was asked is audited, so it is on disk.
BEGIN; SET LOCAL synchronous_commit = on

-- name: ask
-- absent -> asked, with its audit row. The event is read, not locked.
WITH event AS (
    SELECT id, source, type, state, run FROM {schema}.events 
    WHERE id = $2 AND state = $3 AND claim = $4
      AND state IN ('processed', 'skipped', 'failed', 'discarded', 'needs_review')
), asked AS (
    INSERT INTO {schema}.rehearsals (id, event_id, source, type, actor, reason, repeat, state, asked_at, expires_at)
    SELECT $1::uuid, e.id, e.source, e.type, $5::text, $6::text, $7::text, 'asked', now,
           now + make_interval(secs => $8::float8)
    FROM event AS e, {clock} AS clock (now)
), noted AS (
    INSERT INTO {schema}.actions (id, at, name, actor, reason, event_id, subject, from_state, to_state)
    SELECT $9::uuid, {clock}, 'rehearse', $5::text, $6::text, id, 'rehearsal ' || $1::uuid, state, state FROM event
)
SELECT run FROM event

-- name: forget
-- The oldest that are over, beyond the number that is kept.
DELETE FROM {schema}.rehearsals
WHERE state NOT IN ('asked', 'running')
  AND id IN (SELECT id FROM {schema}.rehearsals ORDER BY id DESC OFFSET $1::bigint)

-- name: asked
-- Those that a worker may take.
SELECT id, source, type FROM {schema}.rehearsals
WHERE state IN ('asked', 'running') AND state = 'asked' AND expires_at > {clock} ORDER BY id LIMIT 100

-- name: take
-- asked -> running, once and never again: the worker's name is the fence.
UPDATE {schema}.rehearsals
SET state = 'running', worker = $2, started_at = now, leased_until = now + make_interval(secs => $3::float8)
FROM {clock} AS clock (now)
WHERE id = $1 AND state = 'asked' AND expires_at > now
RETURNING {schema}.rehearsals.*

-- name: finish
-- running -> done, failed.
UPDATE {schema}.rehearsals SET state = $3, finished_at = {clock}, leased_until = NULL, result = $4
WHERE id = $1 AND worker = $2 AND state = 'running'
RETURNING id

-- name: lapse
-- asked -> expired, running -> failed, where the time is up. ($1: what is said of those that nobody took, $2: of the
-- others.)
UPDATE {schema}.rehearsals
SET state = CASE state WHEN 'asked' THEN 'expired' ELSE 'failed' END, finished_at = now, leased_until = NULL,
    result = CASE state WHEN 'asked' THEN $1::text ELSE $2::text END
FROM {clock} AS clock (now)
WHERE state IN ('asked', 'running') AND coalesce(leased_until, expires_at) <= now

-- name: get
-- One of them.
SELECT * FROM {schema}.rehearsals WHERE id = $1

-- name: begin_handler
-- As `begin_handler` of queries.sql, on a connection of its own. (%s: mark, mark, milliseconds for a lock, for a
-- statement and in all.)
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL hookledger.mark = '%s'; INSERT INTO {schema}.rehearsal_guard SELECT '%s' FROM generate_series(1, 2);
SET LOCAL lock_timeout = %s; SET LOCAL statement_timeout = %s; SET LOCAL idle_in_transaction_session_timeout = %s

-- name: settings
-- The same for a transaction that the user's own library has begun: one statement.
WITH guard AS (
    INSERT INTO {schema}.rehearsal_guard SELECT mark FROM (VALUES ('%s'), ('%s')) AS twice (mark)
)
SELECT set_config('hookledger.mark', '%s', true), set_config('lock_timeout', '%s', true),
       set_config('statement_timeout', '%s', true), set_config('idle_in_transaction_session_timeout', '%s', true),
       pg_current_xact_id()::text, current_setting('transaction_isolation')

-- name: written
-- What this transaction, and earlier ones of the connection that the server has not counted yet, did to each table.
-- Nothing while nothing is counted.
SELECT relid::bigint, CASE WHEN pg_table_is_visible(relid) THEN relname ELSE schemaname || '.' || relname END,
       n_tup_ins, n_tup_upd, n_tup_del
FROM pg_stat_xact_user_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND relid <> '{schema}.rehearsal_guard'::regclass
ORDER BY 2, 1

-- name: counted
-- Whether the server counts rows.
SELECT current_setting('track_counts') = 'on'

-- name: lift_guard
-- So that the deferred constraints can be checked.
DELETE FROM {schema}.rehearsal_guard WHERE n = $1

-- name: check_constraints
-- What a commit would check.
SET CONSTRAINTS ALL IMMEDIATE
