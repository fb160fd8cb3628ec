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

-- name: since
e.received_at >= {0}::timestamptz

-- name: until
e.received_at < {0}::timestamptz

-- name: attention
(e.attention OR e.alert IS NOT NULL)

-- name: error
(strpos(e.reason, {0}::text) > 0 OR strpos(e.error, {0}::text) > 0)

-- name: text
-- Bytes, not words: the body may be anything.
EXISTS (SELECT FROM {schema}.requests AS r WHERE r.id = e.request_id AND position({0}::bytea IN r.body) > 0)
