"""One suite, every store: each test here runs unchanged on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from hookledger.clock import Clock
from hookledger.store import SCHEMA_RANGE
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import Raw
from tests.services.postgres import Databases

EMPTY = """DO $$ BEGIN
    SET LOCAL lock_timeout = '10s';
    DROP SCHEMA IF EXISTS hookledger CASCADE;
    DROP SCHEMA public CASCADE;
    CREATE SCHEMA public;
END $$"""

WITHOUT_ROWS = """DO $$ DECLARE name regclass; BEGIN
    SET LOCAL lock_timeout = '10s';
    DROP SCHEMA public CASCADE;
    CREATE SCHEMA public;
    FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'hookledger'::regnamespace AND relkind = 'r'
                AND relname NOT IN ('migrations', 'probe') LOOP
        EXECUTE CASE WHEN pg_relation_size(name) > 1000000 THEN format('TRUNCATE %s', name)
                     ELSE format('DELETE FROM %s', name) END;
    END LOOP;
END $$"""

MADE_OF = """WITH s AS (SELECT oid FROM pg_namespace WHERE nspname = 'hookledger'),
c AS (SELECT oid, relname FROM pg_class WHERE relnamespace IN (SELECT oid FROM s))
SELECT md5(string_agg(part, E'\n' ORDER BY part)) FROM (
    SELECT concat_ws(' ', relname, attname, atttypid, atttypmod, attnotnull, pg_get_expr(adbin, adrelid)) AS part
    FROM c JOIN pg_attribute ON attrelid = c.oid LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
    UNION ALL SELECT concat_ws(' ', conrelid, conname, pg_get_constraintdef(oid)) FROM pg_constraint
              WHERE connamespace IN (SELECT oid FROM s)
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'hookledger'
    UNION ALL SELECT concat_ws(' ', c.relname, tgname, tgenabled) FROM pg_trigger JOIN c ON c.oid = tgrelid
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace IN (SELECT oid FROM s)
    UNION ALL SELECT relname || coalesce(relacl::text, '') FROM pg_class WHERE relnamespace IN (SELECT oid FROM s)
) AS parts"""
"""What the schema consists of: a test may have changed it."""

NEWEST = "SELECT max(version) FROM hookledger.migrations"

MIGRATED = pytest.StashKey[dict[str, str]]()
"""What the schema of a database consisted of after its migrations."""

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture(scope="module")
def shared_postgres_url(postgres: Databases) -> Iterator[str]:
    name = f"hookledger_contract_{uuid.uuid4().hex}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, shared_postgres_url: str) -> str:
    """An empty PostgreSQL database. Emptied, not created, for each test: with fsync on that is ten times as fast; and
    where the test wants a migrated store, and the last one left a schema as migrations make it, only of its rows."""
    database = Databases(shared_postgres_url)
    made_of = request.config.stash.get(MIGRATED, {}).get(shared_postgres_url)
    same = made_of is not None and database.fetchval(MADE_OF) == made_of
    same = same and database.fetchval(NEWEST) == SCHEMA_RANGE[1]
    database.execute(WITHOUT_ROWS if same and "store" in request.fixturenames else EMPTY)
    return shared_postgres_url


@pytest.fixture
def clock() -> Clock:
    """The stores' clock; move its `offset` to let time pass."""
    return Clock()


@pytest.fixture
async def open_store(database_url: str, clock: Clock) -> AsyncIterator[OpenStore]:
    """Opens one more store on the same database, as another process would; not migrated."""
    async with AsyncExitStack() as stack:

        async def opened() -> Store:
            store = connect(database_url, clock=clock)
            await store.open(handlers=8)
            stack.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture
async def store(request: pytest.FixtureRequest, database_url: str, open_store: OpenStore) -> Store:
    """A migrated, open store."""
    store = await open_store()
    if await store.migrate() and database_url.startswith("postgresql"):
        made_of = await asyncio.to_thread(Databases(database_url).fetchval, MADE_OF)
        request.config.stash.setdefault(MIGRATED, {})[database_url] = made_of
    return store


@pytest.fixture
def raw(store: Store) -> Raw:
    return Raw(store)
