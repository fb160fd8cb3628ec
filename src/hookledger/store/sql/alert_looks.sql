-- What a look finds, for alerts to people. Each query reads a range of one index, and no more than :most of it.

-- name: begin_look
-- One process at a time looks for a target.
INSERT INTO {schema}.alert_looks AS l (target, kind, since_at, seen) VALUES (:target, '', {now}, :nothing)
ON CONFLICT (target, kind) DO UPDATE SET seen = l.seen

-- name: time_of_look
SELECT {now} AS now_at

-- name: looks
SELECT kind, since_at, seen FROM {schema}.alert_looks WHERE target = :target

-- name: remember_look
INSERT INTO {schema}.alert_looks (target, kind, since_at, seen) VALUES (:target, :kind, :since_at, :seen)
ON CONFLICT (target, kind) DO UPDATE SET since_at = excluded.since_at, seen = excluded.seen

-- name: failed_since
-- Dead letters, in the order in which they became that.
SELECT id, claim, source, type, coalesce(cause, '') AS cause, finished_at FROM {schema}.events {indexed events_failed_at}
WHERE state = 'failed' AND finished_at >= :since_at ORDER BY finished_at LIMIT :most::integer

-- name: quarantined_since
-- Quarantined deliveries of one source and outcome, in the order of their requests' ids.
SELECT request_id, item, event_id, received_at FROM {schema}.deliveries {indexed deliveries_quarantined}
WHERE outcome IN ('conflict', 'same_body') AND source = :source AND outcome = :outcome AND request_id >= :first
ORDER BY request_id LIMIT :most::integer

-- name: causes_now
-- Each cause that an event fails for: a walk from one to the next along the index.
WITH RECURSIVE walk (cause) AS (
    SELECT min(cause) FROM {schema}.events {indexed events_by_cause} WHERE cause IS NOT NULL
    UNION ALL
    SELECT (SELECT min(e.cause) FROM {schema}.events AS e {indexed events_by_cause}
            WHERE e.cause IS NOT NULL AND e.cause > walk.cause)
    FROM walk WHERE walk.cause IS NOT NULL
)
SELECT cause FROM walk WHERE cause IS NOT NULL LIMIT :most::integer

-- name: newest_of_cause
-- The newest event of a cause, and how its last attempt ended.
SELECT e.id, e.source, e.type, coalesce(e.finished_at, e.claimed_at, e.received_at) AS failed_at,
       (SELECT a.outcome FROM {schema}.attempts AS a WHERE a.event_id = e.id AND a.claim = e.claim - 1) AS outcome
FROM {schema}.events AS e {indexed events_by_cause}
WHERE e.cause IS NOT NULL AND e.cause = :cause ORDER BY e.cause DESC, e.id DESC LIMIT 1

-- name: in_review_now
SELECT id, claim, source, type, coalesce(cause, '') AS cause, coalesce(claimed_at, received_at) AS reviewed_at
FROM {schema}.events {indexed events_in_review} WHERE state = 'needs_review' ORDER BY id DESC LIMIT :most::integer

-- name: unknown_now
-- Effects with an unknown outcome that no policy and no retry of the event settles.
SELECT f.identity, f.generation, f.name, f.source, f.event_id, coalesce(f.called_at, f.created_at) AS called_at
FROM (SELECT u.*, (SELECT c.started_at FROM {schema}.effect_calls AS c
                   WHERE c.identity = u.identity AND c.number = u.number) AS called_at,
             (SELECT e.state FROM {schema}.events AS e WHERE e.id = u.event_id) AS event_state
      FROM (SELECT * FROM {schema}.effects {indexed effects_unknown} WHERE state = 'unknown'
            ORDER BY name, event_id LIMIT :most::integer) AS u) AS f
WHERE f.due_at IS NULL AND f.leased_until IS NULL
  AND coalesce(f.event_state, '') NOT IN ('pending', 'processing', 'retrying')

-- name: effects_of_marked
CROSS JOIN LATERAL (SELECT * FROM {schema}.effects WHERE event_id = m.id OFFSET 0) AS f

-- name: effects_of_marked (sqlite)
-- Differs because SQLite keeps the order of a CROSS JOIN, and has no LATERAL.
CROSS JOIN {schema}.effects AS f {indexed effects_of_event} ON f.event_id = m.id

-- name: marked_effects_now
-- Effects that failed for good, or whose call contradicts a decision, of the newest marked events.
SELECT f.identity, f.fence, f.name, f.source, f.event_id, f.state, f.alert IS NOT NULL AS contradicted, f.created_at
FROM (SELECT id FROM {schema}.events {indexed events_marked} WHERE {marked} AND attention
      ORDER BY id DESC LIMIT :most::integer) AS m
{effects_of_marked}
WHERE f.alert IS NOT NULL OR (f.kind = 'later' AND f.state = 'failed')

-- name: marked_now
-- Events that are redelivered too often while they fail.
SELECT id, source, type, alert, coalesce(claimed_at, received_at) AS marked_at
FROM {schema}.events {indexed events_marked} WHERE {marked} AND alert IS NOT NULL ORDER BY id DESC LIMIT :most::integer

-- name: circuits_open_now
-- Those that failures opened. An operator who tripped one knows.
SELECT downstream, changed_at FROM {schema}.circuits WHERE state <> 'closed' AND NOT tripped

-- name: worker_unseen_for
-- Seconds since a worker was alive; NULL if there was none. A guard of routes is none.
SELECT {elapsed {now} - max(coalesce(stopped_at, seen_at))} AS seconds FROM {schema}.workers
WHERE substr(id, 1, 6) <> 'guard/'

-- name: longest_due
-- Since when an event is due that is not paused.
WITH RECURSIVE {kinds_waiting}
SELECT min(k.due_at) AS due_at FROM kinds AS k WHERE k.due_at < {now} - {seconds :late::float8} AND {not_paused}

-- name: unproved_requests
-- How many requests of each source were ever rejected for one of these reasons.
SELECT source, sum(count)::bigint AS n, max(last_at) AS last_at FROM {schema}.rejection_counts
WHERE source <> '' AND reason IN {list :reasons text} GROUP BY source

-- name: raise_condition
INSERT INTO {schema}.alert_conditions AS c (kind, subject, words, count, raised_at)
VALUES (:kind, :subject, :words, 1, {now})
ON CONFLICT (kind, subject) DO UPDATE
SET words = excluded.words, count = c.count + 1, raised_at = {greatest}(excluded.raised_at, c.raised_at)

-- name: conditions
SELECT kind, subject, words, count, raised_at FROM {schema}.alert_conditions WHERE raised_at >= :since_at

-- name: prune_conditions
DELETE FROM {schema}.alert_conditions WHERE raised_at < {now} - {seconds :keep}
