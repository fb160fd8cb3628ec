"""The stores under test. A database that cannot be had fails the test; nothing is ever skipped in silence."""

import os
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Databases, Postgres, ServiceError

SLOW_FIRST = ("attacks", "crash", "path", "contract")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long goes first, so that nobody is left alone with it at the end."""
    ranks = {name: rank for rank, name in enumerate(SLOW_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.parent.name, len(ranks)))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Databases]:
    """The PostgreSQL shared by the whole run: DATABASE_URL's, or one of our own. Do not stop it."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield _given(given)
        return
    with ExitStack() as stack:
        try:
            server = stack.enter_context(Postgres())
        except ServiceError as failure:
            pytest.fail(f"No PostgreSQL: {failure}\nDATABASE_URL may name another to use.", pytrace=False)
        yield server


def _given(url: str) -> Databases:
    databases = Databases(url)
    try:
        databases.fetchval("SELECT 1")
    except Exception as failure:
        reason = type(failure).__name__  # no more than that: messages and tracebacks may show a password
    else:
        return databases
    pytest.fail(f"DATABASE_URL is set but cannot be used: {reason}", pytrace=False)


@pytest.fixture
def postgres_server() -> Iterator[Postgres]:
    """A running server for this test alone, which it may stop, kill and restart. Takes about a second."""
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Databases) -> Iterator[str]:
    """A fresh, empty PostgreSQL database."""
    name = f"hookledger_test_{uuid.uuid4().hex}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def pgbouncer(postgres_url: str) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode before that database, which the test may kill and start again.

    Where it cannot be had, the test is skipped and says why; not where everything is to be shown.
    """
    try:
        bouncer = PgBouncer(postgres_url)
    except ServiceError as failure:
        if os.environ.get("CI") == "true" or os.environ.get("HOOKLEDGER_SOAK") == "1":
            pytest.fail(f"No PgBouncer: {failure}", pytrace=False)
        warnings.warn(f"not shown: {failure}", stacklevel=1)
        pytest.skip(str(failure))
    with bouncer:
        yield bouncer


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path}/inbox.db"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each store in turn. PostgreSQL starts only when its turn comes."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
