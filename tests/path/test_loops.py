"""One inbox on several event loops, one after the other or at the same time: tests, and servers that are reloaded."""

import asyncio
import gc
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import pytest
import uvicorn

from hookledger import Inbox
from hookledger.providers.sign import sign
from tests.asgi_client import Answer, Site, ask, stripe_event
from tests.path.conftest import SECRET
from tests.services.databases import OURS
from tests.services.ports import free_port

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def site(database_url: str) -> Site:
    inbox = Inbox(database_url)
    inbox.source("stripe", provider="stripe", secrets=[SECRET])
    asyncio.run(inbox.migrate())
    return Site(inbox)


BEFORE: set[threading.Thread] = set()
"""What other tests left behind."""


@pytest.fixture(autouse=True)
def count_threads() -> None:
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


def threads() -> set[str]:
    new = set(threading.enumerate()) - BEFORE
    return {thread.name for thread in new if thread.name.startswith("hookledger")}


def connections(url: str) -> int:
    """Of others, to this database."""

    async def count() -> int:
        connection = await asyncpg.connect(url)
        try:
            others = f"datname = current_database() AND pid <> pg_backend_pid() AND application_name <> '{OURS}'"
            return int(await connection.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {others}"))
        finally:
            await connection.close()

    return asyncio.run(count())


def gone(site: Site) -> bool:
    """Whether nothing that was opened is left. What was closed may take a moment to end."""
    url = site.inbox.database or ""
    return not threads() and (url.startswith("sqlite") or connections(url) == 0)


def settles(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_each_loop_has_its_own_store(site: Site) -> None:
    """No loop is told that the one before is over: the store is closed with it all the same."""
    answers: list[Answer] = [asyncio.run(site.deliver(stripe_event(f"evt_{n}"))) for n in range(3)]
    assert [answer.status for answer in answers] == [202, 202, 202]
    assert asyncio.run(site.deliver(stripe_event("evt_0"))).status == 200
    assert {row.key for row in asyncio.run(site.events())} == {"evt_0", "evt_1", "evt_2"}
    assert settles(lambda: gone(site)), threads()


def deliver_on_a_loop(site: Site, ident: str) -> int:
    """By hand, without the last steps of asyncio.run."""
    loop = asyncio.new_event_loop()
    status = loop.run_until_complete(site.deliver(stripe_event(ident))).status
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    return status


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_only_closed(site: Site) -> None:
    """A statement that its end cuts off complains when it is collected: here, and not in another test."""
    statuses = []
    for ident in ("evt_1", "evt_2"):
        statuses.append(deliver_on_a_loop(site, ident))
        gc.collect()
    assert statuses == [202, 202]
    assert len(asyncio.run(site.events())) == 2


def test_two_loops_at_the_same_time(site: Site) -> None:
    """Two servers in two threads share the inbox, and neither closes what the other uses."""
    second_done, first_up = threading.Event(), threading.Event()
    statuses: list[int] = []

    async def first() -> None:
        statuses.append((await site.deliver(stripe_event("evt_1"))).status)
        first_up.set()
        await asyncio.to_thread(second_done.wait, 60)
        statuses.append((await site.deliver(stripe_event("evt_1"))).status)
        statuses.append((await site.deliver(stripe_event("evt_2"))).status)
        await site.inbox.asgi.stop()

    async def second() -> None:
        statuses.append((await site.deliver(stripe_event("evt_3"))).status)
        await site.inbox.asgi.stop()

    thread = threading.Thread(target=lambda: asyncio.run(first()))
    thread.start()
    assert first_up.wait(60)
    asyncio.run(second())
    second_done.set()
    thread.join(60)
    assert statuses == [202, 202, 200, 202]
    assert {row.key for row in asyncio.run(site.events())} == {"evt_1", "evt_2", "evt_3"}
    assert settles(lambda: gone(site)), threads()


def test_the_operators_side_too(site: Site) -> None:
    answers = [asyncio.run(ask(site.inbox.operator, "GET", "/readyz")) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert settles(lambda: gone(site)), threads()


def test_a_stopped_inbox_starts_again_on_its_loop(site: Site) -> None:
    async def twice() -> list[int]:
        statuses = []
        for n in range(2):
            statuses.append((await site.deliver(stripe_event(f"evt_{n}"))).status)
            await site.inbox.asgi.stop()
            await site.inbox.asgi.stop()
        return statuses

    assert asyncio.run(twice()) == [202, 202]
    assert len(asyncio.run(site.events())) == 2


def test_a_server_that_is_started_again(site: Site) -> None:
    """Real HTTP, by the same process, as a reload does it."""

    def post(port: int, ident: str) -> int:
        endpoint = site.inbox.sources["stripe"].endpoint
        body = b'{"id": "%s", "type": "invoice.paid"}' % ident.encode()
        headers = dict(sign(endpoint.contract, endpoint.secrets[0].key, body, now=time.time()))
        request = urllib.request.Request(f"http://127.0.0.1:{port}/stripe", data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)

    for ident in ("evt_1", "evt_2"):
        port = free_port()
        server = uvicorn.Server(uvicorn.Config(site.inbox.asgi, port=port, log_config=None))
        thread = threading.Thread(target=server.run)
        thread.start()
        assert settles(lambda server=server: server.started)  # type: ignore[misc]
        assert post(port, ident) == 202
        server.should_exit = True
        thread.join(60)
    assert {row.key for row in asyncio.run(site.events())} == {"evt_1", "evt_2"}
    assert settles(lambda: gone(site)), threads()
