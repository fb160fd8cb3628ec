-- Keys that providers publish and that proved a request, so that a restart needs no fetch.
CREATE TABLE {schema}.published_keys (
    digest     bytea PRIMARY KEY CHECK (length(digest) = 32),
    provider   text NOT NULL,
    url        text NOT NULL CHECK (length(url) <= 1024),
    content    bytea NOT NULL CHECK (length(content) BETWEEN 1 AND 65536),
    fetched_at timestamptz NOT NULL,
    lifetime   double precision NOT NULL CHECK (lifetime >= 0)
);
