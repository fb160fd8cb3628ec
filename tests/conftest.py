"""The stores under test. A database that cannot be had fails the test; nothing is ever skipped in silence."""

import logging
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from hookledger import Inbox
from hookledger.cli import common
from hookledger.observe import lines
from tests import soak
from tests.services.databases import SharedDatabase
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Databases, Postgres, ServiceError, complete

LONGEST = (
    *("providers/test_costly.py", "crash/test_copy.py", "attacks/test_attacks.py", "crash/test_provisioning.py"),
    *("adapters/test_trouble.py", "path/test_handler_commits.py", "path/test_api_schemathesis.py"),
    *("path/test_screens.py", "crash/test_audit.py", "contract/test_search_plans.py", "crash/test_bulk.py"),
    *("crash/test_prune.py", "path/test_effects.py", "unit/test_services.py", "crash/test_effects.py"),
)
"""Files that take 15 seconds and more."""
SLOW_FIRST = ("crash", "package", "path", "contract", "adapters")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long goes first, so that no worker is left alone with it at the end."""
    ranks = {name: rank for rank, name in enumerate((*LONGEST, *SLOW_FIRST))}

    def rank(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return ranks.get(f"{folder}/{item.path.name}", ranks.get(folder, len(ranks)))

    for item in items:
        if item.path.parent.name in ("crash", "attacks"):
            item.add_marker("soak")
    items.sort(key=rank)


@pytest.fixture(autouse=True)
def whole_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries in this process come after their whole delay. At random some are due before a drain ends."""
    monkeypatch.setattr("hookledger.retry.random", SimpleNamespace(random=lambda: 1.0))


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What a command that a test runs in this process changes of logging ends with the test."""
    root, probes = logging.getLogger(), logging.getLogger("httpx2")
    before = (root.level, root.handlers[:], probes.filters[:], lines.log.level, common.status.as_json, sys.excepthook)
    yield
    root.setLevel(before[0])
    root.handlers[:], probes.filters[:] = before[1], before[2]
    lines.log.setLevel(before[3])
    common.status.as_json, sys.excepthook = before[4], before[5]
    logging.captureWarnings(False)


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


@pytest.fixture(scope="session")
def shared_postgres(postgres: Databases) -> Iterator[SharedDatabase]:
    database = SharedDatabase(postgres)
    yield database
    database.drop()


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, shared_postgres: SharedDatabase) -> str:
    """A PostgreSQL database with our schema and no rows; empty where the test is marked `unmigrated`. Tables are made
    for the test where it is marked `without_statistics`: those of others may have been analyzed."""
    unmigrated = request.node.get_closest_marker("unmigrated")
    if unmigrated or request.node.get_closest_marker("without_statistics"):
        shared_postgres.empty()
    if not unmigrated:
        shared_postgres.migrate()
    return shared_postgres.url


@pytest.fixture
def pgbouncer(postgres_url: str) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode before that database, which the test may kill and start again.

    Where it cannot be had, the test is skipped and says why; not where everything is to be shown.
    """
    try:
        bouncer = PgBouncer(postgres_url)
    except ServiceError as failure:
        if os.environ.get("CI") == "true" or soak.ANY:
            pytest.fail(f"No PgBouncer: {failure}", pytrace=False)
        warnings.warn(f"not shown: {failure}", stacklevel=1)
        pytest.skip(str(failure))
    with bouncer:
        yield bouncer


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with our schema and no rows, to be copied."""
    file = tmp_path_factory.mktemp("migrated") / "inbox.db"
    complete(Inbox(f"sqlite:///{file}").migrate())
    return file


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A SQLite file with our schema and no rows; one that does not exist where the test is marked `unmigrated`."""
    if not request.node.get_closest_marker("unmigrated"):
        shutil.copyfile(request.getfixturevalue("migrated_sqlite"), tmp_path / "inbox.db")
    return f"sqlite:///{tmp_path}/inbox.db"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each store in turn. PostgreSQL starts only when its turn comes."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
