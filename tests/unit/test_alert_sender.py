"""The sender of alerts, where something fails that should not."""

import asyncio
import contextlib
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hookledger.operate.alerts import sender
from hookledger.operate.alerts.sender import AlertSender
from hookledger.operate.alerts.settings import AlertSettings


async def test_messages_that_cannot_be_deleted_stop_no_alert(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = asyncio.Event()
    context = SimpleNamespace(store=None, alerts=AlertSettings(), clock=None)
    alerts = AlertSender(cast(Any, context))

    async def fail() -> None:
        raise ZeroDivisionError

    async def look(target: object) -> None:
        if caplog.records:
            rounds.set()

    monkeypatch.setattr(alerts, "prune", fail)
    monkeypatch.setattr(alerts, "round", look)
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)
    monkeypatch.setattr(sender, "targets", lambda _: ([SimpleNamespace(name="team")], []))
    task = asyncio.create_task(alerts.run())
    try:
        await asyncio.wait_for(rounds.wait(), 30)
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert "old messages not deleted: internal error" in caplog.text


async def test_old_messages_of_removed_targets_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = asyncio.Event()
    alerts = AlertSender(cast(Any, SimpleNamespace(store=None, alerts=AlertSettings(), clock=None)))

    async def prune() -> None:
        pruned.set()

    monkeypatch.setattr(alerts, "prune", prune)
    monkeypatch.setattr(sender, "targets", lambda _: ([], []))
    task = asyncio.create_task(alerts.run())
    try:
        await asyncio.wait_for(pruned.wait(), 30)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
