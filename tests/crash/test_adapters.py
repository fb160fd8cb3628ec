"""kill -9 between a handler's write and the outcome, in every library that the transaction may be in."""

import pytest

from tests.crash.conftest import Install
from tests.crash.processes import event, eventually
from tests.services import forked

LIBRARIES = [
    "asyncpg",
    "asyncpg-plain",
    "sqlalchemy-asyncpg",
    "sqlalchemy-psycopg",
    "sqlalchemy-plain",
    "psycopg",
    "psycopg-plain",
]
LEDGER = "SELECT kind, name, count(*) AS n FROM {h}effects GROUP BY kind, name ORDER BY kind"


# proves R20
@pytest.mark.parametrize("library", LIBRARIES)
def test_killed_between_the_write_and_the_outcome(install: Install, postgres_url: str, library: str) -> None:
    forked.load("sqlalchemy.ext.asyncio", "psycopg", "psycopg_pool")
    installation = install(postgres_url)
    installation.use("tests.crash.adapters_app:inbox", LIBRARY=library)
    database = installation.database
    installation.receive()
    installation.send(event("evt_1"))
    victim = installation.work()
    assert victim.exit_code() == -9
    eventually(
        lambda: not database.rows("SELECT 1 AS one FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"),
        "the server has noticed",
    )
    assert database.effects() == []
    assert database.rows(LEDGER) == []
    left = database.event("evt_1")
    assert (left["state"], left["claim"], left["attempts"]) == ("processing", 1, 1)

    installation.work()
    installation.drain()
    assert [(row["event_key"], row["attempt"]) for row in database.effects()] == [("evt_1", 2)]
    assert database.rows(LEDGER) == [
        {"kind": "later", "name": "note", "n": 1},
        {"kind": "once", "name": "credit", "n": 1},
    ]
    assert database.outcomes("evt_1") == {"crashed": 1, "processed": 1}
    installation.check()
