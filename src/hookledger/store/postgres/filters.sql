-- PostgreSQL's dialect of a filter: conditions about events called e. {schema} as in queries.sql; {0} and {1} are
-- where the parameters go.

-- name: everything
true

-- name: source
e.source = {0}::text

-- name: type
e.type = {0}::text

-- name: type_begins
e.type >= {0}::text AND e.type < {1}::text

-- name: states
e.state IN ({0})

-- name: key
e.key = {0}::text

-- name: object_id
e.object_id = {0}::text

-- name: account
e.account = {0}::text

-- name: since
e.received_at >= {0}::timestamptz

-- name: until
e.received_at < {0}::timestamptz

-- name: attention
(e.state IN ('failed', 'needs_review') OR e.attention OR e.alert IS NOT NULL)

-- name: cause
e.cause = {0}::text

-- name: error
(strpos(e.reason, {0}::text) > 0 OR strpos(e.error, {0}::text) > 0)

-- name: effect
-- Counted, as below: neither EXISTS nor IN, which the planner may make a join with the whole table of.
(SELECT count(*) FROM {schema}.effects AS f WHERE f.event_id = e.id AND f.name = {0}::text) > 0

-- name: effect_key
(SELECT count(*) FROM {schema}.effects AS f WHERE f.event_id = e.id AND f.name = {0}::text AND f.key = {1}::text) > 0

-- name: text
-- Bytes, not words: the body may be anything.
(SELECT position({0}::bytea IN r.body) > 0 FROM {schema}.requests AS r WHERE r.id = e.request_id)
