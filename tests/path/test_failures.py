"""A handler that fails: what becomes of the event, what the log says, and how failures are grouped."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import httpx2
import pytest

from hookledger import Event, RetryPolicy, Seconds, State, SyncEvent
from hookledger.observe import report
from hookledger.observe.lines import HANDLER_FAILED
from hookledger.observe.traces import MAX_TRACE
from hookledger.operate import search
from hookledger.store.causes import MAX_CAUSE
from hookledger.store.history import EventRow
from hookledger.store.ops.filters import Filter
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite

HERE = "tests/path/test_failures.py"


@pytest.fixture
async def shop(site_on: MakeSite, database_url: str) -> Site:
    """With a source `stripe`, on each store; retries are due at once."""
    site = await site_on(
        database_url, {"work": {"poll": "10ms", "retry": {"initial_delay": "1ms", "max_delay": "1ms"}}}
    )
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return site


async def row(site: Site, key: str = "evt_1") -> EventRow:
    return (await site.event(key)).event


async def until_settled(site: Site) -> None:
    """Work until no event waits for another attempt."""
    for _ in range(40):
        await site.work()
        if not any(event.state in (State.PENDING, State.RETRYING) for event in await site.events()):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it is retried again and again")


def line(function: Callable[..., Any], after: int = 1) -> str:
    return f"{HERE}:{function.__code__.co_firstlineno + after}"


def plan_of(body: dict[str, Any]) -> Any:
    return body["plan_v2"]


def customer_of(body: dict[str, Any]) -> Any:
    return body["customer"]


# ── bugs ──


# proves R22
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_bug_has_three_attempts(shop: Site, plain: bool) -> None:
    on = shop.inbox.sources["stripe"].on("invoice.paid")
    if plain:

        @on
        def plainly(event: SyncEvent) -> None:
            plan_of(event.json)

    else:

        @on
        async def handle(event: Event) -> None:
            plan_of(event.json)

    await shop.deliver(stripe_event())
    await until_settled(shop)
    event = await row(shop)
    assert (event.state, event.attempts) == (State.FAILED, 3)
    assert event.reason == f"attempts exhausted (3): a bug in {line(plan_of)}: KeyError: 'plan_v2'"
    assert "in plan_of" in (event.error or "")
    assert "hookledger/work" not in (event.error or "")


async def test_a_handlers_own_policy_wins(shop: Site) -> None:
    @shop.inbox.sources["stripe"].on(
        "invoice.paid", retry=RetryPolicy(attempts=5, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))
    )
    async def handle(event: Event) -> None:
        plan_of(event.json)

    await shop.deliver(stripe_event())
    await until_settled(shop)
    assert (await row(shop)).attempts == 5


async def test_settings_decide_how_many(site_on: MakeSite, sqlite_url: str) -> None:
    fast = {"initial_delay": "1ms", "max_delay": "1ms"}
    site = await site_on(sqlite_url, {"work": {"poll": "10ms", "bug_attempts": 4, "retry": fast}})

    @site.inbox.source("stripe", provider="stripe", secrets=[SECRET]).on("invoice.paid")
    async def handle(event: Event) -> None:
        plan_of(event.json)

    await site.deliver(stripe_event())
    await until_settled(site)
    assert (await row(site)).attempts == 4


async def test_a_librarys_key_error_may_be_an_outage(shop: Site) -> None:
    text = "def get(reply):\n    return reply['data']\n"
    library: dict[str, Any] = {"__name__": "client.http"}
    exec(compile(text, "/opt/x/lib/python3.11/site-packages/client/http.py", "exec"), library)

    @shop.inbox.sources["stripe"].on("invoice.paid")
    async def handle(event: Event) -> None:
        library["get"]({})

    await shop.deliver(stripe_event())
    await until_settled(shop)
    event = await row(shop)
    assert (event.state, event.attempts) == (State.FAILED, 20)
    assert event.reason == "attempts exhausted (20): KeyError: 'data'"


async def test_tasks_that_fail_together(shop: Site) -> None:
    @shop.inbox.sources["stripe"].on("invoice.paid")
    async def handle(event: Event) -> None:
        async def task() -> None:
            plan_of(event.json)

        async with asyncio.TaskGroup() as group:
            group.create_task(task())

    await shop.deliver(stripe_event())
    await until_settled(shop)
    event = await row(shop)
    assert event.attempts == 3
    assert f"a bug in {line(plan_of)}: KeyError: 'plan_v2' (in ExceptionGroup: " in (event.reason or "")
    assert "in plan_of" in (event.error or "")


# ── causes ──


async def causes(site: Site) -> dict[str, int]:
    """How many events each has; what a person types finds exactly these."""
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        groups = await search.failures(context)
        for group in groups:
            assert len(group.cause) <= MAX_CAUSE
            where = Filter(source=group.source, type=group.type, cause=group.cause)
            assert await search.count(context, where) == group.count
        return {group.cause: group.count for group in groups}


async def test_two_bugs_are_two_causes(shop: Site) -> None:
    @shop.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        plan_of(event.json)

    @shop.inbox.sources["stripe"].on("invoice.void")
    async def void(event: Event) -> None:
        plan_of(event.json)

    @shop.inbox.sources["stripe"].on("customer.*")
    async def customer(event: Event) -> None:
        customer_of(event.json) if event.type == "customer.created" else plan_of(event.json)

    kinds = ["invoice.paid", "invoice.void", "customer.created", "customer.updated"]
    for number, kind in enumerate(kinds * 2):
        await shop.deliver(stripe_event(f"evt_{number}", kind))
    await until_settled(shop)
    found = await causes(shop)
    assert set(found.values()) == {2}
    assert len(found) == 4
    endings = sorted(cause.rpartition("causes.")[2] for cause in found)
    assert endings == [
        f"customer at {line(plan_of)}",
        f"customer at {line(customer_of)}",
        f"paid at {line(plan_of)}",
        f"void at {line(plan_of)}",
    ]
    assert sum(cause.startswith("KeyError: 'plan_v2' in …") for cause in found) == 3


async def test_ids_make_no_causes(shop: Site) -> None:
    @shop.inbox.sources["stripe"].on("invoice.paid")
    async def handle(event: Event) -> None:
        {}[event.json["data"]["object"]["id"]]

    for number in range(3):
        await shop.deliver(stripe_event(f"evt_{number}", data={"object": {"id": f"in_1Nff{number}"}}))
    await until_settled(shop)
    [(cause, count)] = (await causes(shop)).items()
    assert count == 3
    assert cause.startswith("KeyError: … in ")
    assert cause.endswith(f"handle at {HERE}:{handle.__code__.co_firstlineno + 2}")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def recurse(n: int) -> None:
    recurse(n + 1)


HARD: list[tuple[str, Callable[[], None]]] = []


def hard(act: Callable[[], None]) -> Callable[[], None]:
    HARD.append((act.__name__, act))
    return act


@hard
def long() -> None:
    raise ValueError("secret-of-ada " * 1_000_000)


@hard
def mute() -> None:
    raise Mute


@hard
def deep() -> None:
    recurse(0)


@hard
def odd() -> None:
    raise ValueError("a\0b \ud800 \x07 \u202e 'quo\nted'")


@hard
def silent() -> None:
    raise ValueError


@pytest.mark.parametrize("act", [act for _, act in HARD], ids=[name for name, _ in HARD])
async def test_exceptions_that_are_hard_to_keep(
    shop: Site, act: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    @shop.inbox.sources["stripe"].on(
        "invoice.paid", retry=RetryPolicy(attempts=2, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))
    )
    async def handle(event: Event) -> None:
        act()

    await shop.deliver(stripe_event())
    await until_settled(shop)
    event = await row(shop)
    assert (event.state, event.attempts) == (State.FAILED, 2)
    assert len(event.reason or "") <= 500
    assert len(event.error or "") <= MAX_TRACE
    assert f"in {act.__name__}" in (event.error or "")
    assert list(await causes(shop)) == [event.cause]
    said = [caplog.handler.format(record) + str(vars(record).get("traceback", "")) for record in caplog.records]
    assert max(map(len, said)) < 12_000
    assert f"in {act.__name__}" in "\n".join(said)


# ── the log ──


# proves R73
async def test_the_first_failure_has_its_traceback(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    @shop.inbox.sources["stripe"].on("invoice.paid")
    async def handle(event: Event) -> None:
        plan_of(event.json)

    for number in range(3):
        await shop.deliver(stripe_event(f"evt_{number}"))
    caplog.set_level(logging.INFO)
    await shop.work()
    first, *later = [record for record in caplog.records if record.getMessage() == "handler failed"]
    assert (first.levelno, vars(first)["failures"]) == (logging.ERROR, 1)
    assert vars(first)["reason"] == f"a bug in {line(plan_of)}: KeyError: 'plan_v2'"
    told = caplog.handler.format(first)
    assert "in plan_of" in told
    assert "hookledger/work" not in told
    assert len(later) >= 2
    for number, record in enumerate(later, 2):
        assert record.exc_info is None
        assert (record.levelno, vars(record)["failures"]) == (logging.WARNING, number)
        assert vars(record)["event_id"]


async def test_another_line_has_its_own_traceback(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    @shop.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        plan_of(event.json) if event.type == "invoice.paid" else customer_of(event.json)

    await shop.deliver(stripe_event("evt_1", "invoice.paid"))
    await shop.deliver(stripe_event("evt_2", "invoice.void"))
    await shop.work()
    assert caplog.text.count("in plan_of") == 1
    assert caplog.text.count("in customer_of") == 1


REFUSED = "ConnectionError: refused"


async def test_an_outage_has_no_traceback(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    @shop.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        raise ConnectionError("refused")

    await shop.deliver(stripe_event())
    await shop.work()
    ended = [record for record in caplog.records if record.getMessage() == "attempt ended"]
    assert {record.levelno for record in ended} == {logging.WARNING}
    assert all(vars(record)["reason"].endswith(REFUSED) for record in ended)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no such file", "plans.json"),
        PermissionError(errno.EACCES, "not allowed", "plans.json"),
        IsADirectoryError(errno.EISDIR, "a directory", "plans"),
        OSError(errno.ENOSPC, "no space left"),
        OSError("something of its own"),
        ssl.SSLCertVerificationError(1, "certificate has expired"),
        urllib.error.HTTPError("https://bank.test", 500, "oops", Message(), None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_files_has_its_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert report.Reporter().tell(HANDLER_FAILED, "handler a", error)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert type(error).__name__ in caplog.handler.format(record)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError("too slow"),
        socket.gaierror(socket.EAI_NONAME, "unknown name"),
        OSError(errno.EHOSTUNREACH, "no route to host"),
        OSError(errno.ENETUNREACH, "network is unreachable"),
        urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("too slow"),
        type("ConnectionError", (OSError,), {})("refused"),  # as requests and redis call it
        type("ReadTimeout", (type("Timeout", (OSError,), {}),), {})("too slow"),  # requests
        type("ServerDisconnectedError", (type("ClientConnectionError", (Exception,), {}),), {})(),  # aiohttp
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_network_has_no_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert not report.Reporter().tell(HANDLER_FAILED, "handler a", error)
    assert caplog.records == []


@pytest.mark.parametrize("way", ["call", "later"])
async def test_an_effects_bug_has_its_traceback(shop: Site, way: str, caplog: pytest.LogCaptureFixture) -> None:
    @shop.inbox.effect(repeat="never")
    async def send(op: Any) -> None:
        customer_of({})

    @shop.inbox.sources["stripe"].on("*", transaction=way == "later")
    async def handle(event: Event) -> None:
        await (event.call(send, "k") if way == "call" else event.later(send, "k"))

    await shop.deliver(stripe_event())
    await shop.work()
    assert caplog.text.count("in customer_of") == 1
    assert caplog.text.count("KeyError: 'customer'") >= 1


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    reporter = report.Reporter()
    for number in range(report.MAX_KINDS + 10):
        reporter.tell(HANDLER_FAILED, f"handler {number}", ValueError("x"))
    reporter.tell(HANDLER_FAILED, f"handler {number}", ValueError("x"))
    assert vars(caplog.records[-1])["failures"] == 2
    reporter.tell(HANDLER_FAILED, "handler 0", ValueError("x"))
    assert caplog.records[-1].levelno == logging.ERROR
    assert len(reporter._counts) == report.MAX_KINDS
