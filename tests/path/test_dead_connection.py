"""The connection of a handler's transaction is gone: what the event's reason says."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from hookledger import Event, Permanent, State, SyncEvent
from hookledger.store.history import EventRow
from tests.asgi_client import Site, stripe_event
from tests.contract.adapters.libraries import LIBRARIES, Library, made
from tests.path.conftest import SECRET, MakeSite
from tests.services.postgres import Databases

OPEN = "FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
IDLE = f"SELECT count(*) {OPEN}"
KILL = f"SELECT count(pg_terminate_backend(pid)) {OPEN}"


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("noticed", [False, True])
async def test_a_handlers_own_error_is_the_reason(
    site_on: MakeSite, postgres_url: str, name: str, noticed: bool
) -> None:
    def lose() -> None:
        assert Databases(postgres_url).fetchval(KILL) == 1

    def fail(error: Exception | None) -> None:
        raise Permanent("the account is closed") from error

    row = await handled(await site_on(postgres_url), name, lose, uses=noticed, then=fail)
    assert (row.state, row.reason) == (State.FAILED, "the account is closed")


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("used", [False, True])
async def test_an_idle_transaction_names_its_limit(
    site_on: MakeSite, postgres_url: str, name: str, used: bool
) -> None:
    def lose() -> None:
        deadline = time.monotonic() + 60
        while Databases(postgres_url).fetchval(IDLE):
            assert time.monotonic() < deadline, "the server ended no transaction"
            time.sleep(0.1)

    def fail(error: Exception | None) -> None:
        if error is not None:
            raise error

    site = await site_on(postgres_url, {"work": {"poll": "10ms", "lease": "2s"}})
    row = await handled(site, name, lose, uses=used, then=fail)
    assert row.state is State.RETRYING
    assert "idle for longer than the lease (2 s)" in (row.reason or "")
    assert "TransactionIdle" in (row.error or "")


async def handled(
    site: Site, name: str, lose: Callable[[], None], *, uses: bool, then: Callable[[Exception | None], None]
) -> EventRow:
    """An event whose handler's connection is lost; it perhaps uses it once more, and then ends like this."""
    source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    url = site.inbox.database or ""
    async for transactions in made(name, url):
        site.inbox.transactions = (transactions,) if transactions else ()
        async with site.inbox.opened() as store:
            library = Library(name, transactions, store)
        source.on("*")(_plain(library, lose, uses, then) if library.plain else _async(library, lose, uses, then))
        await site.deliver(stripe_event("evt_1", "t"))
        await site.work()
    return (await site.event("evt_1")).event


def _plain(library: Library, lose: Callable[[], None], uses: bool, then: Any) -> Any:
    def handle(event: SyncEvent[Any]) -> None:
        library._blocking(event.tx, "SELECT 1")
        lose()
        failed = None
        try:
            if uses:
                library._blocking(event.tx, "SELECT 1")
        except Exception as error:
            failed = error
        then(failed)

    return handle


def _async(library: Library, lose: Callable[[], None], uses: bool, then: Any) -> Any:
    async def handle(event: Event[Any]) -> None:
        await library.run(event.tx, "SELECT 1")
        await asyncio.to_thread(lose)
        failed = None
        try:
            if uses:
                await library.run(event.tx, "SELECT 1")
        except Exception as error:
            failed = error
        then(failed)

    return handle
