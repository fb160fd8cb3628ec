"""What docs/explanation/concurrency.md says fails does fail, and what it says works does, on a real PostgreSQL."""

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from hookledger import Event, Inbox, State
from tests.asgi_client import Site, stripe_event

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "concurrency.md"
SETUP, FAILS, ARITHMETIC, LOCK, ONCE, BOTH = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
AMOUNTS = [100 * number for number in range(1, 17)]

Handler = Callable[[Event[Any]], Awaitable[None]]


class Together:
    """The page's source, whose handlers begin when as many are in flight as there are events."""

    def __init__(self, source: Any) -> None:
        self.source, self.barrier = source, asyncio.Barrier(len(AMOUNTS))

    def on(self, kind: str) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            @functools.wraps(handler)
            async def run(event: Event[Any]) -> None:
                await self.barrier.wait()
                await handler(event)

            self.source.on(kind)(run)
            return handler

        return register


@pytest.fixture
async def page(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """The names of the page after its first block, with its own table on a database of the test's."""
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", "whsec_made_up_for_the_docs")
    names: dict[str, Any] = {}
    code = SETUP.replace("postgresql+asyncpg:///app", postgres_url.replace("postgresql://", "postgresql+asyncpg://"))
    exec(compile(code, PAGE.name, "exec"), names)
    inbox, engine = names["inbox"], names["sessions"].kw["bind"]
    inbox.database = postgres_url
    names["stripe"] = Together(names["stripe"])
    await inbox.migrate()
    async with engine.begin() as connection:
        await connection.run_sync(names["Base"].metadata.create_all)
    async with names["sessions"].begin() as session:
        session.add(names["Account"](customer="cus_1", cents=0))
    yield names
    await inbox.asgi.stop()
    await engine.dispose()


async def cents(names: dict[str, Any], block: str) -> int:
    """The account after 16 payments of one customer were handled at the same time by this block's handler."""
    exec(compile(block, PAGE.name, "exec"), names)
    inbox: Inbox = names["inbox"]
    site = Site(inbox)
    for number, amount in enumerate(AMOUNTS):
        event = stripe_event(f"evt_{number}", "invoice.paid")
        invoice = {"id": f"in_{number}", "customer": "cus_1", "amount_paid": amount}
        await site.deliver({**event, "data": {"object": invoice}})
    await site.work()
    ended = [(row.state, row.attempts) for row in await site.events()]
    assert ended == [(State.PROCESSED, 1)] * len(AMOUNTS), "whatever became of the sum"
    async with names["sessions"]() as session:
        account = await session.get(names["Account"], "cus_1")
        return int(account.cents)


async def test_reading_changing_and_writing_loses(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every handler has read before the first one writes, as may happen any day."""
    read, barrier = AsyncSession.get_one, asyncio.Barrier(len(AMOUNTS))

    async def read_together(self: AsyncSession, *arguments: Any, **options: Any) -> Any:
        found = await read(self, *arguments, **options)
        await barrier.wait()
        return found

    monkeypatch.setattr(AsyncSession, "get_one", read_together)
    assert await cents(page, FAILS) in AMOUNTS, "all but the last to write are lost"


@pytest.mark.parametrize("block", [ARITHMETIC, LOCK, BOTH], ids=["arithmetic", "lock", "once and arithmetic"])
async def test_nothing_is_lost(page: dict[str, Any], block: str) -> None:
    assert await cents(page, block) == sum(AMOUNTS)


async def test_once_lets_one_act(page: dict[str, Any]) -> None:
    assert await cents(page, ONCE) == 500


@pytest.mark.parametrize("order", [("active", "canceled"), ("canceled", "active")])
async def test_the_newest_state_stays_whatever_the_order(postgres_url: str, order: tuple[str, str]) -> None:
    [newest] = re.findall(r" *```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    moments = {"active": datetime(2026, 3, 1, tzinfo=UTC), "canceled": datetime(2026, 3, 2, tzinfo=UTC)}
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("CREATE TABLE subscriptions (id text PRIMARY KEY, status text, changed timestamptz)")
        for status in order:
            await connection.execute(newest, "sub_1", status, moments[status])
        assert await connection.fetchval("SELECT status FROM subscriptions") == "canceled"
    finally:
        await connection.close()


async def test_on_sqlite_the_write_lock_comes_with_the_first_use(sqlite_url: str) -> None:
    inbox = Inbox(sqlite_url)
    await inbox.migrate()
    together = Together(inbox.source("stripe", provider="stripe", secrets=["whsec_made_up_for_the_docs"]))

    @together.on("invoice.paid")
    async def add_credit(event: Event[Any]) -> None:
        found = await event.tx.fetchval("SELECT cents FROM accounts")
        await asyncio.sleep(0)
        await event.tx.execute("UPDATE accounts SET cents = $1", found + event.json["amount"])

    async with inbox.opened(handlers=1) as store:
        transaction = store.transaction()
        await transaction.tx.execute("CREATE TABLE accounts (cents INTEGER)")
        await transaction.tx.execute("INSERT INTO accounts VALUES (0)")
        await transaction.commit([])
    site = Site(inbox)
    for number, amount in enumerate(AMOUNTS):
        await site.deliver({**stripe_event(f"evt_{number}"), "amount": amount})
    await site.work()
    assert {row.state for row in await site.events()} == {State.PROCESSED}
    async with inbox.opened(handlers=1) as store:
        transaction = store.transaction()
        assert await transaction.tx.fetchval("SELECT cents FROM accounts") == sum(AMOUNTS)
        await transaction.rollback()
    await inbox.asgi.stop()
