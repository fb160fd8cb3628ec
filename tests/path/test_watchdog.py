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

from hookledger import State
from hookledger.observe.watchdog import Watchdog
from tests.asgi_client import Site, stripe_event
from tests.crash.processes import eventually, process_state
from tests.services.forked import Forked

BLOCKED = "blocks the event loop"


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
    assert f"look_up_the_slow_way blocks the event loop for over 1 s at {__file__}:" in line
    assert f"paid of event {row.id} (stripe: invoice.paid): no other handler of this worker runs meanwhile" in line
    assert "look_up_the_slow_way(caplog)\n" in line, "the stack"
    assert "work/run.py" not in line, "not our own frames"
    [record] = [record for record in caplog.records if BLOCKED in record.getMessage()]
    assert (record.levelno, record.event_id) == (logging.WARNING, str(row.id))  # type: ignore[attr-defined]


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
    assert "no delivery is answered meanwhile" in line
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
        place = r"blocks the event loop for over 1 s at .*shop_watched\.py:\d+, in handler blocks"
        assert re.search(place, log.read_text())
