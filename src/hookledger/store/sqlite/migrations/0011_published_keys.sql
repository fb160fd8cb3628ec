-- Keys that providers publish and that proved a request, so that a restart needs no fetch.
CREATE TABLE published_keys (
    digest     BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32),
    provider   TEXT NOT NULL,
    url        TEXT NOT NULL CHECK (length(url) <= 1024),
    content    BLOB NOT NULL CHECK (length(content) BETWEEN 1 AND 65536),
    fetched_at INTEGER NOT NULL,
    lifetime   REAL NOT NULL CHECK (lifetime >= 0)
) STRICT;
