"""Blocking calls on one connection: never two at a time, and none forgotten."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hookledger.contrib import blocking
from hookledger.contrib.blocking import Blocking


async def test_a_call_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "PATIENCE", 0.05)
    calls, order, go_on = Blocking(), list[str](), threading.Event()

    def slow() -> None:
        assert go_on.wait(30)
        order.append("call")

    caller = asyncio.create_task(calls(slow))
    await asyncio.sleep(0.02)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    with pytest.raises(RuntimeError, match="still running"):
        await calls(order.append, "at the same time")
    await calls.afterwards(lambda: order.append("cleanup"))
    assert order == []
    go_on.set()
    while "cleanup" not in order:
        await asyncio.sleep(0.01)
    assert order == ["call", "cleanup"]


async def test_a_cancelled_caller_knows_how_a_short_call_ended() -> None:
    calls, done = Blocking(), threading.Event()

    def commit() -> None:
        threading.Event().wait(0.1)
        done.set()

    caller = asyncio.create_task(calls(commit))
    await asyncio.sleep(0.02)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done.is_set()


async def test_a_failure_is_the_callers() -> None:
    def fail() -> None:
        raise OSError("gone")

    calls = Blocking()
    with pytest.raises(OSError, match="gone"):
        await calls(fail)
    assert await calls(lambda: 7) == 7


async def test_one_thread_from_begin_to_end() -> None:
    """Whatever the event loop's own threads are doing, and no thread is left behind."""

    def who() -> int:
        return threading.get_ident()

    def threads() -> int:
        return sum(thread.name == "hookledger-transaction" for thread in threading.enumerate())

    before, calls = threads(), [Blocking() for _ in range(40)]
    waiting = threading.Barrier(40, timeout=60)
    owners = await asyncio.gather(*(one(who) for one in calls))
    await asyncio.gather(*(one(waiting.wait) for one in calls))  # more at once than any shared pool has threads
    assert len(set(owners)) == 40
    assert await asyncio.gather(*(one(who) for one in calls)) == owners
    beside = await calls[0].beside(who)
    assert beside not in owners
    for one in calls:
        one.end()
    while threads() > before:
        await asyncio.sleep(0.01)
