"""One busy source does not starve the others: with real workers, on each store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hookledger import Event, Inbox, State
from hookledger.store.protocol import Store
from hookledger.work.loop import Worker
from tests import soak
from tests.asgi_client import Site
from tests.builders import delivered
from tests.path.conftest import SECRET, MakeSite

BACKLOG = soak.amount(5_000, 20_000, 200_000)


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    """With sources `a`, `b` and `c` and no handlers."""
    made = await site_on(database_url)
    for name in "abc":
        made.inbox.source(name, provider="stripe", secrets=[SECRET])
    return made


async def fill(store: Store, source: str, count: int, *types: str) -> None:
    """Record so many events, of each of these types in turn."""
    types = types or ("t",)
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        await store.record(
            [delivered(f"{source}_{n}", b"{}", source=source, type=types[n % len(types)]) for n in numbers]
        )


@asynccontextmanager
async def working(inbox: Inbox, **options: Any) -> AsyncIterator[Worker]:
    """A worker beside the test, stopped at its end."""
    started: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(inbox.work(started=started.set_result, **options))
    worker = await started
    try:
        yield worker
    finally:
        worker.stop()
        await task


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


# proves R72
@pytest.mark.soak
async def test_an_event_overtakes_the_backlog_of_another_source(site: Site) -> None:
    """Processed before the next hundred of a source that has thousands waiting; five times."""
    done: list[str] = []

    @site.inbox.sources["a"].on("*")
    @site.inbox.sources["b"].on("*")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('x')")
        done.append(event.key)

    async with site.inbox.opened() as store:
        await fill(store, "a", BACKLOG)
        async with working(site.inbox):
            for n in range(5):
                await until(lambda n=n: len(done) >= 300 * n + 200)
                await store.record([delivered(f"b_{n}", source="b")])
                before = len(done)
                await until(lambda n=n: f"b_{n}" in done)
                overtaken = BACKLOG - len(done)
                print(n, done.index(f"b_{n}") - before, overtaken)
                assert done.index(f"b_{n}") - before < 100
                assert overtaken > 100, "or it proves nothing"
