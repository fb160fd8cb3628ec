"""Functions as targets of alerts, where they misbehave."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from hookledger import Alert
from hookledger.ids import new_id
from hookledger.operate.alerts.targets import Calls, NotSent
from hookledger.operate.alerts.words import test_alert as made_alert


def message() -> Alert:
    return made_alert(new_id(), "shop", datetime.now(UTC))


async def test_a_function_that_hangs_takes_one_thread_and_keeps_no_process() -> None:
    go, calls = threading.Event(), []

    def hang(alert: Alert) -> None:
        calls.append(threading.current_thread())
        go.wait(60)

    target = Calls("hang", hang, frozenset(), timeout=0.02)
    try:
        with pytest.raises(NotSent, match="did not end within"):
            await target.send(message())
        for _ in range(20):
            with pytest.raises(NotSent, match="still runs"):
                await target.send(message())
        while not calls:  # its thread may begin late
            await asyncio.sleep(0.01)
        [thread] = calls
        assert thread.daemon, "a process ends without it"
    finally:
        go.set()
    await asyncio.to_thread(thread.join, 30)
    await asyncio.sleep(0)  # the loop hears of it
    target._timeout = 30.0  # it ends by itself
    await target.send(message())
    assert len(calls) == 2, "once it has ended, it gets the next message"


async def test_what_a_function_raises_is_no_text_of_ours() -> None:
    def fail(alert: Alert) -> None:
        raise RuntimeError("the token is s3cret")

    with pytest.raises(NotSent) as raised:
        await Calls("fail", fail, frozenset()).send(message())
    assert str(raised.value) == "the function raised RuntimeError"
