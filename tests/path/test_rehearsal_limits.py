"""What a rehearsal must not do, whatever its handler does: nothing is left, and nobody waits long for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import asyncpg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from hookledger import Event, State, SyncEvent
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from hookledger.rehearsals import Ended, Write
from hookledger.states import RehearsalState
from tests.contract.conftest import postgres_url, shared_postgres_url  # noqa: F401 - a database, emptied for each test
from tests.path.rehearsing import CREDIT, Shop, labels, make_shop, writes  # noqa: F401 - a fixture
from tests.path.remote import Running, deliver, eventually

# ── limits ──


async def test_a_lock_that_another_holds(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        await event.tx.execute(CREDIT)

    await shop.processed()
    other = await asyncpg.connect(shop.url)
    try:
        await other.execute("BEGIN")
        await other.execute("UPDATE accounts SET credit = 100 WHERE id = 'acme'")
        found = await shop.rehearse()
        await other.execute("COMMIT")
    finally:
        await other.close()
    assert found.ended is Ended.TIMED_OUT
    assert found.words.startswith("a statement waited 2 s for a lock that another transaction holds: a real run may")
    assert await shop.sql("SELECT credit FROM accounts WHERE id = 'acme'") == [(100,)]


async def test_a_statement_that_takes_long(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        if event.rehearsal:
            await event.tx.execute("SELECT pg_sleep(60)")

    await shop.processed()
    found = await shop.rehearse()
    assert (found.ended, writes(found)) == (Ended.TIMED_OUT, None)
    assert "longer than 5 s" in found.words


async def test_a_handler_that_takes_long(shop: Shop) -> None:  # proves R45
    @shop.on(timeout=0.5)
    async def handle(event: Event) -> None:
        await event.tx.execute(CREDIT)
        if event.rehearsal:
            await asyncio.sleep(60)

    await shop.processed()
    found = await shop.rehearse()
    assert (found.ended, found.words) == (Ended.TIMED_OUT, "it took longer than 0.5 s")
    assert writes(found) == (Write("accounts", updated=1), Write("audit", 1))


async def test_a_plain_function_that_takes_long(shop: Shop) -> None:  # proves R45
    go_on, late = threading.Event(), list[str]()

    @shop.on(timeout=0.5)
    def handle(event: SyncEvent) -> None:
        event.tx.execute(CREDIT)
        if event.rehearsal:
            assert go_on.wait(30)
            try:
                event.tx.execute(CREDIT)
            except Exception as error:
                late.append(type(error).__name__)

    await shop.processed()
    found = await shop.rehearse()
    assert (found.ended, writes(found)) == (Ended.TIMED_OUT, None)
    go_on.set()
    await eventually(lambda: late == ["ClaimLost"], "the thread went on")


async def test_a_plain_function(shop: Shop) -> None:  # proves R45
    @shop.on()
    def handle(event: SyncEvent) -> None:
        event.call(shop.charge, event.key, cents=5)
        event.tx.execute(CREDIT)
        if event.rehearsal:
            event.call(shop.charge, "another", cents=5)

    await shop.processed()
    found = await shop.rehearse()
    assert (found.ended, labels(found)) == (Ended.STOPPED, [("charge:evt", "done"), ("charge:another", "called")])
    assert writes(found) == (Write("accounts", updated=1), Write("audit", 1))


# ── what must not be ──


async def test_a_commit_is_refused_by_the_database(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        if event.rehearsal:
            await event.tx.execute(CREDIT)
            await event.tx.execute("COMMIT")

    await shop.processed()
    found = await shop.rehearse()
    assert found.result is not None
    assert found.ended is Ended.NEEDS_REVIEW
    assert found.result.alert is not None
    assert "commits by itself. The database refused that" in found.result.alert


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_whoever_ends_the_transaction_can_only_read(shop: Shop, end: str) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        if event.rehearsal:
            for statement in (CREDIT, end, CREDIT):
                try:
                    await event.tx.execute(statement)
                except asyncpg.PostgresError:
                    continue

    await shop.processed()
    found = await shop.rehearse()
    assert found.result is not None
    assert found.ended is Ended.NEEDS_REVIEW
    assert found.result.alert is not None
    assert "ended its transaction by itself: nothing was written" in found.result.alert


@pytest.mark.parametrize("again", ["ROLLBACK AND CHAIN", "ROLLBACK; BEGIN READ WRITE"])
async def test_whoever_asks_for_more_may_have_written(shop: Shop, again: str) -> None:  # proves R45
    """Nothing can stop a handler that begins a transaction of its own: the alert must not promise too much."""

    @shop.on()
    async def handle(event: Event) -> None:
        if event.rehearsal:
            for statement in (again, CREDIT, "COMMIT"):
                await event.tx.execute(statement)

    await shop.processed()
    async with Running(shop.site):
        found = await shop.ask()
    assert await shop.sql("SELECT credit FROM accounts WHERE id = 'acme'") == [(2,)]
    assert found.result is not None
    assert found.ended is Ended.NEEDS_REVIEW
    assert "unless it asked for that by READ WRITE or AND CHAIN" in (found.result.alert or "")


async def test_the_next_handler_on_that_connection_writes_again(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        await event.tx.execute(CREDIT)

    await shop.processed()
    async with Running(shop.site):
        assert (await shop.ask()).ended is Ended.PROCESSED
        await deliver(shop.site, "evt_2", "a")

        async def is_processed() -> bool:
            return await shop.site.state("evt_2") is State.PROCESSED

        await eventually(is_processed, "evt_2")
    assert await shop.sql("SELECT credit FROM accounts WHERE id = 'acme'") == [(3,)]


async def test_a_constraint_that_a_commit_would_check(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        if event.rehearsal:
            await event.tx.execute("INSERT INTO later_checked VALUES (1), (1)")

    await shop.processed()
    found = await shop.rehearse()
    assert found.ended is Ended.WOULD_RETRY
    assert found.words.startswith("at the commit: UniqueViolationError")
    assert "later_checked" in found.words


async def test_the_event_is_processed_meanwhile(shop: Shop) -> None:  # proves R45
    there, go_on = asyncio.Event(), asyncio.Event()

    @shop.on()
    async def handle(event: Event) -> None:
        if await event.once("credit", f"{event.key} {event.run}"):
            await event.tx.execute("INSERT INTO other.log VALUES ($1)", f"run {event.run}")
        if event.rehearsal:
            there.set()
            await go_on.wait()

    await shop.processed()
    async with Running(shop.site):
        asked = asyncio.create_task(shop.ask())
        await there.wait()
        async with shop.site.inbox.opened() as store:
            history = await shop.site.inbox.insight(store).event("evt")
            await shop.site.inbox.actions(store, "bob").replay(history.event, "now")

        async def is_processed() -> bool:
            row = (await shop.site.event("evt")).event
            return (row.state, row.run) == (State.PROCESSED, 2)

        await eventually(is_processed, "it waited for its rehearsal")
        go_on.set()
        found = await asked
    assert (found.ended, labels(found)) == (Ended.PROCESSED, [("credit:evt 2", "happens")])
    assert await shop.sql("SELECT line FROM other.log ORDER BY 1") == [("run 1",), ("run 2",)]


# ── the user's own sessions ──


@pytest.fixture
async def sessions(shop: Shop) -> AsyncIterator[Shop]:
    url = shop.url.replace("postgresql://", "postgresql+psycopg://")
    engine, async_engine = create_engine(url), create_async_engine(url.replace("+psycopg", "+asyncpg"))
    libraries = (AsyncSessions(async_sessionmaker(async_engine)), Sessions(sessionmaker(engine)))
    shop.site.inbox.transactions = libraries
    yield shop
    await async_engine.dispose()
    engine.dispose()


def in_both(shop: Shop, act: Callable[[Any, Callable[[str], Any]], Coroutine[Any, Any, None]]) -> None:
    """The same steps in an async session and, by a plain function, in a plain one."""

    @shop.on("a")
    async def handle(event: Event[AsyncSession]) -> None:
        if event.rehearsal:
            await act(event, lambda sql: event.tx.execute(text(sql)))

    @shop.on("b")
    def plain(event: SyncEvent[Session]) -> None:
        async def execute(sql: str) -> None:
            event.tx.execute(text(sql))

        if event.rehearsal:
            steps = act(event, execute)
            try:
                while True:
                    steps.send(None)
            except StopIteration:
                return


@pytest.mark.parametrize("kind", ["a", "b"])
async def test_in_sessions(sessions: Shop, kind: str) -> None:  # proves R20, R45
    async def act(event: Any, execute: Callable[[str], Any]) -> None:
        await execute(CREDIT)
        await execute("INSERT INTO other.log VALUES ('x')")

    in_both(sessions, act)
    await sessions.processed(kind=kind)
    found = await sessions.rehearse()
    assert found.ended is Ended.PROCESSED, found.words
    assert set(writes(found) or ()) == {Write("accounts", updated=1), Write("audit", 1), Write("other.log", 1)}


@pytest.mark.parametrize("kind", ["a", "b"])
async def test_a_constraint_in_sessions(sessions: Shop, kind: str) -> None:  # proves R20, R45
    async def act(event: Any, execute: Callable[[str], Any]) -> None:
        await execute("INSERT INTO later_checked VALUES (1), (1)")

    in_both(sessions, act)
    await sessions.processed(kind=kind)
    found = await sessions.rehearse()
    assert found.ended is Ended.WOULD_RETRY
    assert found.words.startswith("at the commit: ")
    assert "later_checked" in found.words


@pytest.mark.parametrize("kind", ["a", "b"])
async def test_a_session_that_commits(sessions: Shop, kind: str) -> None:  # proves R20, R45
    async def act(event: Any, execute: Callable[[str], Any]) -> None:
        await execute(CREDIT)
        done = event.tx.commit()
        if done is not None:
            await done

    in_both(sessions, act)
    await sessions.processed(kind=kind)
    found = await sessions.rehearse()
    assert found.result is not None
    assert found.result.alert is not None
    assert "The database refused that, and nothing was written" in found.result.alert


@pytest.mark.parametrize("kind", ["a", "b"])
async def test_sessions_without_the_right_to_rehearse(sessions: Shop, kind: str) -> None:  # proves R20, R45
    async def act(event: Any, execute: Callable[[str], Any]) -> None:
        pytest.fail("it was run without its guard")

    in_both(sessions, act)
    await sessions.processed(kind=kind)
    await sessions.sql("DROP TABLE hookledger.rehearsal_guard", "SELECT 1")
    found = await sessions.rehearse()
    assert (found.state, found.ended) == (RehearsalState.FAILED, Ended.REFUSED)
    assert "cannot be begun" in found.words


async def test_one_without_its_guard(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        await event.tx.execute(CREDIT)

    await shop.processed()
    await shop.sql("DROP TABLE hookledger.rehearsal_guard", "SELECT 1")
    found = await shop.rehearse()
    assert (found.state, found.ended) == (RehearsalState.FAILED, Ended.REFUSED)
    assert "cannot be begun" in found.words


async def test_the_users_own_checks_of_constraints(shop: Shop) -> None:  # proves R45
    """They meet the guard, and are taken for a commit: refused, with an alert, and nothing is left."""

    @shop.on()
    async def handle(event: Event) -> None:
        await event.tx.execute("SET CONSTRAINTS ALL IMMEDIATE")

    await shop.processed()
    found = await shop.rehearse()
    assert found.result is not None
    assert (found.ended, bool(found.result.alert)) == (Ended.NEEDS_REVIEW, True)
