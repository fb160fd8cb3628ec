-- name: oldest_supported
-- The oldest schema version that a release must know to work with this schema. Every schema since version 2 says it.
SELECT oldest FROM {schema}.schema_support
