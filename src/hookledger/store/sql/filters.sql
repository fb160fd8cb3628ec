-- The conditions of a filter, on events called e. Each has parameters with different names.

-- name: where_everything
true

-- name: where_equal
-- For each column that is compared as a whole.
e.{column} = :{column}::text

-- name: where_type_begins
e.type >= :type::text AND e.type < :type_end::text

-- name: where_version_begins
e.version >= :version::text AND e.version < :version_end::text AND e.version <> ''

-- name: where_states
-- Written out: the planner must see which partial index they are in.
e.state IN ({states})

-- name: where_since
e.received_at >= :since::timestamptz

-- name: where_until
e.received_at < :until::timestamptz

-- name: where_attention
(e.state IN ('failed', 'needs_review') OR e.attention OR e.alert IS NOT NULL)

-- name: where_error
(strpos(e.reason, :error::text) > 0 OR strpos(e.error, :error::text) > 0)

-- name: where_error (sqlite)
-- Differs because the databases have other functions for this.
(instr(e.reason, :error) > 0 OR instr(e.error, :error) > 0)

-- name: where_lacks_stage
e.state = 'processed' AND e.parent IS NULL AND e.emptied_at IS NULL
AND (SELECT count(*) FROM {schema}.events AS s WHERE s.parent = e.id AND s.stage = :lacks_stage::text) = 0

-- name: where_effect
-- Counted, as below: neither EXISTS nor IN, which the planner may make a join with the whole table of.
(SELECT count(*) FROM {schema}.effects AS f WHERE f.event_id = e.id AND f.name = :effect::text) > 0

-- name: where_effect_key
(SELECT count(*) FROM {schema}.effects AS f
 WHERE f.event_id = e.id AND f.name = :effect::text AND f.key = :effect_key::text) > 0

-- name: where_text
-- Bytes, not words: the body may be anything.
(SELECT position(:text::bytea IN r.body) > 0 FROM {schema}.requests AS r WHERE r.id = e.request_id)

-- name: where_text (sqlite)
-- Differs because the databases have other functions for this.
(SELECT instr(r.body, :text) > 0 FROM {schema}.requests AS r WHERE r.id = e.request_id)
