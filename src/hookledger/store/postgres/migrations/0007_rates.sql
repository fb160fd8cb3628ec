-- Counts over time, for charts (decision 0057).
--
-- Each process adds its own rows of ten seconds; maintenance moves them into rows of a minute without a process, later
-- of ten minutes, later of an hour. A count stands in one row only, so that a sum over all steps is the total.
CREATE TABLE {schema}.rates (
    step    integer NOT NULL CHECK (step IN (10, 60, 600, 3600)),
    at      timestamptz NOT NULL,
    source  text COLLATE "C" NOT NULL,
    what    text COLLATE "C" NOT NULL,
    process text COLLATE "C" NOT NULL,
    n       bigint NOT NULL CHECK (n > 0),
    PRIMARY KEY (step, at, source, what, process)
);

-- The last batch of each process that wrote some: a batch that is written again counts once.
CREATE TABLE {schema}.rate_writers (
    process text COLLATE "C" PRIMARY KEY,
    number  bigint NOT NULL CHECK (number > 0),
    seen_at timestamptz NOT NULL
);
