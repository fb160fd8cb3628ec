-- SQLite's dialect of a filter: conditions about events called e. {0} and {1} are where the parameters go.

-- name: everything
1

-- name: source
e.source = {0}

-- name: type
e.type = {0}

-- name: type_begins
e.type >= {0} AND e.type < {1}

-- name: states
e.state IN ({0})

-- name: key
e.key = {0}

-- name: object_id
e.object_id = {0}

-- name: account
e.account = {0}

-- name: since
e.received_at >= {0}

-- name: until
e.received_at < {0}

-- name: attention
(e.state IN ('failed', 'needs_review') OR e.attention = 1 OR e.alert IS NOT NULL)

-- name: cause
e.cause = {0}

-- name: error
(instr(e.reason, {0}) > 0 OR instr(e.error, {0}) > 0)

-- name: effect
(SELECT count(*) FROM effects AS f WHERE f.event_id = e.id AND f.name = {0}) > 0

-- name: effect_key
(SELECT count(*) FROM effects AS f WHERE f.event_id = e.id AND f.name = {0} AND f.key = {1}) > 0

-- name: text
-- Bytes, not words: the body may be anything.
(SELECT instr(r.body, {0}) > 0 FROM requests AS r WHERE r.id = e.request_id)
