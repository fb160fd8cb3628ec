"""A handler may have committed and the database cannot say whether it did: it is never run again by itself."""

import asyncio
import re
import threading
from typing import Any

import msgspec
import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from hookledger import Event, State, SyncEvent
from hookledger.contrib.psycopg import Connections
from hookledger.store.postgres.transaction import commits
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done
from tests.services.postgres import Databases, Postgres

SLOW_COMMIT = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(2); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON done DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()
"""


@pytest.fixture
async def site(site_on: MakeSite, postgres_url: str) -> Site:
    made = await site_on(postgres_url, {"work": {"poll": "10ms", "concurrency": 1}})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


async def idle(site: Site) -> None:
    """Until the server is at nothing more."""
    busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
    async with asyncio.timeout(90):
        while Databases(site.inbox.database or "").fetchval(f"{busy} AND pid <> pg_backend_pid()"):
            await asyncio.sleep(0.05)


async def reviewed(site: Site, rows: set[int]) -> None:
    """However often the worker comes back: one attempt, and not more than one row."""
    await site.deliver(stripe_event("evt", "a"))
    await site.work()
    await site.work(later=3600)
    await idle(site)  # what the server was at may be committed in the meantime
    await site.work(later=3600)
    [row] = await site.events()
    assert (row.state, row.attempts) == (State.NEEDS_REVIEW, 1), row.reason
    assert re.search(r"committed( or rolled back)? `event\.tx`", row.reason or "")
    assert len(await done(site)) in rows


async def test_a_commit_that_outlasts_the_handler(site: Site) -> None:
    async with site.inbox.opened(handlers=1) as store:
        transaction = store.transaction()
        await transaction.tx.execute(SLOW_COMMIT)
        await transaction.commit([])

    @site.inbox.sources["stripe"].on("a", timeout=0.5)
    def handle(event: SyncEvent[Any]) -> None:
        event.tx.execute("INSERT INTO done VALUES ('evt')")
        event.tx.execute("COMMIT")

    await reviewed(site, {0, 1})


async def test_a_time_out_after_the_commit_in_one_message(site: Site) -> None:
    @site.inbox.sources["stripe"].on("a", timeout=0.5)
    def handle(event: SyncEvent[Any]) -> None:
        event.tx.execute("INSERT INTO done VALUES ('evt'); COMMIT; SELECT pg_sleep(2)")

    await reviewed(site, {1})


async def test_a_connection_that_dies_with_the_commit(site: Site) -> None:
    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event[Any]) -> None:
        dies = "SELECT pg_terminate_backend(pg_backend_pid())"
        await event.tx.execute(f"INSERT INTO done VALUES ('evt'); COMMIT; {dies}")

    await reviewed(site, {1})


async def test_a_connection_that_dies_long_after_the_commit(site: Site) -> None:
    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event[Any]) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('evt'); COMMIT; BEGIN")
        await event.tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    await reviewed(site, {1})


async def test_a_task_that_is_left_behind_at_its_commit(site: Site) -> None:
    left: list[asyncio.Task[Any]] = []

    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event[Any]) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('evt')")
        left.append(asyncio.create_task(event.tx.execute("COMMIT; SELECT pg_sleep(0.5)")))
        await asyncio.sleep(0.1)
        raise ValueError("before it was over")

    await reviewed(site, {1})
    await asyncio.gather(*left, return_exceptions=True)


async def test_a_connection_that_dies_without_a_commit(site: Site) -> None:
    """Nothing can have been committed by a handler that never said so, whatever its columns are called."""

    @site.inbox.sources["stripe"].on("a")
    async def handle(event: Event[Any]) -> None:
        await event.tx.execute("INSERT INTO done SELECT commit FROM (VALUES ('evt')) AS pushed (commit)")
        if event.attempt == 1:
            await event.tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    await site.deliver(stripe_event("evt", "a"))
    await site.work()
    await site.work(later=3600)
    [row] = await site.events()
    assert (row.state, row.attempts) == (State.PROCESSED, 2), row.reason
    assert await done(site) == ["evt"]


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        " commit work",
        "INSERT INTO a VALUES (1); Commit; BEGIN",
        "END",
        "select 1;\nend transaction",
        "/* so */ COMMIT AND CHAIN",
        "-- so\nCOMMIT",
        "PREPARE  TRANSACTION 'x'",
    ],
)
def test_statements_that_commit(sql: str) -> None:
    assert commits(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "INSERT INTO pushes (commit) VALUES ($1)",
        "SELECT CASE WHEN a THEN b END",
        "SELECT endless FROM a",
        "INSERT INTO a SELECT commit FROM b",
        "SELECT 1; SELECT commits FROM b",
        "ROLLBACK TO SAVEPOINT a",
    ],
)
def test_statements_that_do_not(sql: str) -> None:
    assert not commits(sql)


async def test_a_worker_that_is_stopped_before_the_database_could_say(
    site_on: MakeSite, postgres_server: Postgres
) -> None:
    """In an outage the fate of a handler's transaction is not known, and the worker cannot wait for it for ever."""
    url = postgres_server.create_database("app")
    site = await site_on(url, {"work": {"poll": "10ms", "concurrency": 2, "lease": "60s"}})
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    committed, go_on = threading.Event(), threading.Event()
    with ConnectionPool(url, min_size=1, max_size=2, open=True) as pool:
        site.inbox.transactions = (Connections(pool),)

        @stripe.on("a")
        def handle(event: SyncEvent[Connection[Any]]) -> None:
            event.tx.execute("INSERT INTO done VALUES (%s)", [event.key])
            event.tx.execute("COMMIT")
            committed.set()
            assert go_on.wait(60)
            raise ValueError("after the commit")

        await site.deliver(stripe_event("evt", "a"))
        work = msgspec.structs.replace(site.inbox.settings.work, shutdown_timeout=0.2)
        worker = asyncio.create_task(site.inbox.work(settings=work))
        assert await asyncio.to_thread(committed.wait, 60)
        await asyncio.to_thread(postgres_server.stop, "fast")
        go_on.set()
        await asyncio.sleep(0.5)
        worker.cancel()
        await asyncio.sleep(3)  # longer than the worker waits for an answer
        await asyncio.to_thread(postgres_server.start)
        await asyncio.wait([worker], timeout=60)
        assert worker.done()
        await site.work(later=3600)
        [row] = await site.events()
        assert (row.state, row.attempts) == (State.NEEDS_REVIEW, 1), row.reason
        assert re.search(r"committed( or rolled back)? `event\.tx`", row.reason or "")
        assert await done(site) == ["evt"]
