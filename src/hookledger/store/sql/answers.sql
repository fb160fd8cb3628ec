-- The answers of handlers (decision 0061). What guards answered is in guards.sql.

-- name: into_kept_answers
-- The first answer of an event stays until it expires: a sender that repeats the request gets the same, also after a
-- replay. See `unless_kept`.
INSERT INTO {schema}.answers AS a (event_id, run, status, headers, body, answered_at, expires_at)

-- name: unless_kept
ON CONFLICT (event_id) DO UPDATE
SET run = excluded.run, status = excluded.status, headers = excluded.headers, body = excluded.body,
    answered_at = excluded.answered_at, expires_at = excluded.expires_at
WHERE a.expires_at <= excluded.answered_at

-- name: keep_answer
-- Of an event that is settled.
{into_kept_answers}
SELECT e.id, e.run, :status::smallint, :headers::bytea, :body::bytea, {now}, {now} + {seconds :keep::float8}
FROM {schema}.events AS e WHERE e.id = :event_id::uuid
{unless_kept}

-- name: may_be_claimed
-- Whether one event has had no other claim since this number was seen, and waits.
SELECT 1 FROM {schema}.events AS k WHERE k.id = :event_id AND k.claim = :seen AND (k.crashes < 2 OR :crashed::boolean)
  AND {claimable}

-- name: present
-- The database's clock.
SELECT {now} AS asked_at

-- name: answer_states
-- What a delivery that met these events can be answered: their states, and their answers where there are any.
SELECT e.id, e.source, e.type, e.version, e.state, e.claim, e.run, e.attempts, e.crashes, e.worker,
       e.waits_for IS NOT NULL AS waits, e.first_processed_at IS NOT NULL AS processed_before,
       {elapsed {now} - e.run_started_at} AS run_age, {elapsed e.leased_until - {now}} AS lease_left,
       a.status, a.headers, a.body
FROM {schema}.events AS e LEFT JOIN {schema}.answers AS a ON a.event_id = e.id AND a.expires_at > {now}
WHERE e.id IN {list :events uuid}

-- name: answer_of_event
-- For an operator, expired or not.
SELECT run, status, headers, body, answered_at, expires_at, expires_at <= {now} AS expired
FROM {schema}.answers WHERE event_id = :event_id

-- name: prune_expired_answers
-- Chosen once: a planner may run a subquery again, which then skips what it has locked and takes more than :most.
WITH expired AS MATERIALIZED (
    SELECT event_id FROM {schema}.answers {indexed answers_expiring}
    WHERE expires_at <= {now} ORDER BY expires_at LIMIT :most {lock_free answers})
DELETE FROM {schema}.answers WHERE event_id IN (SELECT event_id FROM expired)
RETURNING event_id

-- name: delete_answers
-- With their events, or because an event is erased: an answer is personal data.
DELETE FROM {schema}.answers WHERE event_id IN {list :events uuid}
