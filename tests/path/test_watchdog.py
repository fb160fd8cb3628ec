"""A handler that blocks the event loop is named while it does, with its stack; a process that stood still is not."""

import asyncio
import logging
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from hookledger import Event, Op, State
from hookledger.observe.watchdog import EVERY, Beat, Looks, Watchdog
from tests.asgi_client import Site, stripe_event
from tests.crash.processes import eventually, process_state
from tests.services.forked import Forked

BLOCKED = "has blocked the event loop"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if BLOCKED in record.getMessage()]


def look_up_the_slow_way(caplog: pytest.LogCaptureFixture) -> None:
    """Blocks until it was noticed."""
    deadline = time.monotonic() + 60
    while not said(caplog) and time.monotonic() < deadline:
        time.sleep(0.05)


async def test_a_blocking_handler(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: object) -> None:
        look_up_the_slow_way(caplog)

    await site.deliver(stripe_event("evt_1"))
    await site.inbox.asgi.stop()
    await site.work()
    [row] = await site.events()
    assert row.state is State.PROCESSED
    [line] = said(caplog)
    assert f"look_up_the_slow_way has blocked the event loop for over 1 s at {__file__}:" in line
    assert (
        f"paid of event {row.id} (stripe: invoice.paid): until it returns, no other handler of this worker runs"
        in line
    )
    assert "look_up_the_slow_way(caplog)\n" in line, "the stack"
    assert "work/run.py" not in line, "not our own frames"
    [record] = [record for record in caplog.records if BLOCKED in record.getMessage()]
    assert (record.levelno, record.event_id) == (logging.WARNING, str(row.id))  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["call", "later", "check"])
async def test_a_blocking_effect(site: Site, way: str, caplog: pytest.LogCaptureFixture) -> None:
    @site.inbox.effect(repeat="never") if way != "check" else site.inbox.ensure()
    async def book(op: Op, cents: int) -> None:
        if way != "check":
            look_up_the_slow_way(caplog)

    @book.check
    async def booked(op: Op, cents: int) -> bool:
        if way == "check":
            look_up_the_slow_way(caplog)
        return False

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        await (event.later(book, "k", cents=5) if way == "later" else event.call(book, "k", cents=5))

    await site.deliver(stripe_event("evt_1"))
    await site.inbox.asgi.stop()
    await site.work()
    [row] = await site.events()
    [line] = said(caplog)
    assert f"look_up_the_slow_way has blocked the event loop for over 1 s at {__file__}:" in line
    assert f"in effect book 'k' of event {row.id}: until it returns, no other handler of this worker runs" in line
    [record] = [record for record in caplog.records if BLOCKED in record.getMessage()]
    assert (record.effect, record.event_id) == ("book", str(row.id))  # type: ignore[attr-defined]


# ── when it is blocked: a fake clock ──


class Watched:
    """A loop and a thread whose times the test sets."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0
        self.beat = Beat(0, 0.0)
        self.running = True
        self.looks = Looks(self.now)

    def look(self, after: float = EVERY, *, cpu: float = 0.0, beats: bool = False) -> bool:
        """Look after so many seconds. `beats`: the loop beat first; `cpu`: then its thread worked so long."""
        if beats:
            self.beat = Beat(self.beat.number + 1, self.cpu)
        self.now += after
        self.cpu += cpu
        return self.looks.blocked(self.now, self.cpu, self.beat, self.running)


def test_looks_without_a_beat_are_counted() -> None:
    watched = Watched()
    assert not any(watched.look(beats=True) for _ in range(20))
    assert [watched.look() for _ in range(8)] == [False] * 4 + [True] + [False] * 3, "once for each time"
    assert not watched.look(beats=True)
    assert [watched.look() for _ in range(5)] == [False] * 4 + [True]


def test_code_that_holds_the_interpreter_is_known_by_its_processor_time() -> None:
    """`sum(range(10**9))`, or a regular expression: the interpreter's lock is held all the while."""
    watched = Watched()
    watched.look(beats=True)
    assert watched.look(after=4.0, cpu=3.9)
    assert not watched.look(after=4.0, cpu=3.9), "once"
    assert not watched.look(beats=True)
    assert watched.look(after=4.0, cpu=3.9, beats=True), "though it beat just before"
    assert not watched.look(beats=True)
    assert [watched.look(after=0.7, cpu=0.6) for _ in range(3)] == [False, True, False], "several such calls in a row"


def test_a_process_that_had_no_processor_is_not_blamed() -> None:
    watched = Watched()
    watched.look(beats=True)
    assert not watched.look(after=60.0), "stopped"
    assert not any(watched.look(after=1.0, cpu=0.05) for _ in range(10)), "starved"
    assert not any(watched.look(after=0.6, cpu=0.6, beats=True) for _ in range(10)), "busy, and yet it beats"
    watched.running = False
    assert not watched.look(after=4.0, cpu=3.9), "no loop runs"
    watched.running = True
    assert not watched.look(after=0.6, cpu=0.5), "counted from there on"


async def test_a_place_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog("nothing goes on")
    watchdog.start()
    try:
        for _ in range(2):
            look_up_the_slow_way(caplog)
            time.sleep(0.1)
            await asyncio.sleep(0.6)
        first = len(said(caplog))
        time.sleep(1.8)  # as long as the first one took, and more
        await asyncio.sleep(0)
    finally:
        watchdog.stop()
    assert first == 1
    assert len({line.partition(" blocks")[0] for line in said(caplog)}) == len(said(caplog))


async def test_a_mounted_intake_is_watched(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.deliver(stripe_event("evt_1"))
    look_up_the_slow_way(caplog)
    await site.inbox.asgi.stop()
    [line] = said(caplog)
    assert "until it returns, no delivery is answered" in line
    assert not [thread for thread in threading.enumerate() if thread.name == "hookledger-watchdog" and stays(thread)]


def stays(thread: threading.Thread) -> bool:
    thread.join(30)
    return thread.is_alive()


def test_a_loop_that_does_not_run_is_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    """As between two tests that share a loop."""
    loop, watchdog = asyncio.new_event_loop(), Watchdog("nothing goes on")

    async def start() -> None:
        watchdog.start()

    async def blocks() -> None:
        look_up_the_slow_way(caplog)

    loop.run_until_complete(start())
    time.sleep(2.0)
    assert said(caplog) == []
    loop.run_until_complete(blocks())  # it is watched all the same
    watchdog.stop()
    loop.close()
    assert len(said(caplog)) == 1


APP = """
import asyncio, logging, time
from hookledger import Inbox

inbox = Inbox()
stripe = inbox.source("stripe", provider="stripe", secrets=["whsec_made_up"])
started = logging.getLogger("shop")

@stripe.on("invoice.paid")
async def waits(event):
    started.warning("handler started")
    await asyncio.sleep(3)

@stripe.on("invoice.slow")
async def blocks(event):
    time.sleep(3)
"""


@pytest.mark.parametrize(("kind", "stopped"), [("invoice.paid", True), ("invoice.slow", False)])
async def test_a_stopped_process_is_not_blamed(tmp_path: Path, site: Site, kind: str, stopped: bool) -> None:
    (tmp_path / "shop_watched.py").write_text(APP)
    await site.deliver(stripe_event("evt_1", kind))
    await site.inbox.asgi.stop()
    url = site.inbox.database or ""
    env = {**os.environ, "HOOKLEDGER_DATABASE": url, "PYTHONUNBUFFERED": "1"}
    options, log = ["work", "--drain", "--app", "shop_watched:inbox"], tmp_path / "log"
    log.touch()
    worker = Forked("hookledger", options, cwd=tmp_path, env=env, stdout=log, stderr=log)
    if stopped:
        eventually(lambda: "handler started" in log.read_text(), "the handler runs")
        worker.send_signal(signal.SIGSTOP)
        eventually(lambda: process_state(worker.pid) == "T", "the process is stopped")
        await asyncio.sleep(2.5)
        worker.send_signal(signal.SIGCONT)
    assert worker.wait() == 0, log.read_text()
    assert (BLOCKED in log.read_text()) is not stopped, log.read_text()
    assert await site.state("evt_1") is State.PROCESSED
    if not stopped:
        place = r"has blocked the event loop for over 1 s at .*shop_watched\.py:\d+, in handler blocks"
        assert re.search(place, log.read_text())
