"""What duplicates of troubled work bring about: for each of them, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import pytest

from hookledger.errors import HookledgerError, StoreError, Unavailable, WrongState
from hookledger.ids import new_id
from hookledger.model import Recorded
from hookledger.providers.catalogue import find
from hookledger.receive.duplicates import MAX_WAITING, DuplicateRules
from hookledger.receive.endpoint import Endpoint
from hookledger.states import DeliveryOutcome, State
from tests.builders import item
from tests.endpoints import configure

DUPLICATE = DeliveryOutcome.DUPLICATE


class Ledger:
    """A store and its cases: what was asked of them. `errors`: what the next askings meet."""

    def __init__(self, count: int = 0, *, marks: bool = True) -> None:
        self.count = count
        self.marks = marks
        self.errors: list[HookledgerError] = []
        self.asked: list[UUID] = []
        self.retried: list[tuple[UUID, State, str, str]] = []
        self.alerts: list[tuple[UUID, str]] = []

    async def again(self, event_ids: Sequence[UUID]) -> dict[UUID, int]:
        self.asked += event_ids
        self._fail()
        return dict.fromkeys(event_ids, self.count)

    async def alert(self, event_id: UUID, words: str) -> bool:
        self._fail()
        self.alerts.append((event_id, words))
        return self.marks

    async def warn(self, event_id: UUID, words: str) -> bool:
        return await self.alert(event_id, words)

    async def retry(self, event_id: UUID, expected: State, actor: str, reason: str) -> None:
        self._fail()
        self.retried.append((event_id, expected, actor, reason))

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


@asynccontextmanager
async def running(ledger: Ledger) -> AsyncIterator[DuplicateRules]:
    aftercare = DuplicateRules(ledger, ledger)
    task = asyncio.create_task(aftercare.run())
    yield aftercare
    await asyncio.wait_for(aftercare.settled(), 60)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def endpoint(**rules: Any) -> Endpoint:
    return configure("stripe", find("stripe"), ["whsec_made_up_for_the_tests"], **rules)


def duplicate(state: State | None, outcome: DeliveryOutcome = DUPLICATE) -> Recorded:
    return Recorded(outcome, new_id(), state)


@pytest.mark.parametrize("state", [State.FAILED, State.RETRYING, State.NEEDS_REVIEW])
async def test_more_redeliveries_than_allowed_raise_an_alert(state: State) -> None:
    item = duplicate(state)
    for count, words in ((3, []), (4, [(item.event_id, "delivered 5 times, and its handler still fails")])):
        ledger = Ledger(count)
        async with running(ledger) as aftercare:
            aftercare.look(endpoint(redelivery_alert=3), [item])
        assert (ledger.asked, ledger.alerts, ledger.retried) == ([item.event_id], words, [])


@pytest.mark.parametrize("on_failed", ["record", "retry", "alert"])
async def test_only_failed_work_is_what_on_failed_is_about(on_failed: str) -> None:
    failed, others = duplicate(State.FAILED), [duplicate(State.RETRYING), duplicate(State.NEEDS_REVIEW)]
    ledger = Ledger()
    async with running(ledger) as aftercare:
        aftercare.look(endpoint(on_failed=on_failed, redelivery_alert=0), [*others, failed])
    assert ledger.asked == [], "without a limit nobody counts"
    said = (failed.event_id, "redelivered after it became a dead letter")
    done = (failed.event_id, State.FAILED, "hookledger", "the provider redelivered it")
    assert ledger.alerts == ([said] if on_failed == "alert" else [])
    assert ledger.retried == ([done] if on_failed == "retry" else [])


@pytest.mark.parametrize("state", [None, *sorted(set(State) - {State.FAILED, State.RETRYING, State.NEEDS_REVIEW})])
async def test_a_duplicate_of_what_is_well_brings_nothing(state: State | None) -> None:
    ledger = Ledger(count=100)
    async with running(ledger) as aftercare:
        aftercare.look(endpoint(on_failed="retry", redelivery_alert=1), [duplicate(state)])
    assert (ledger.asked, ledger.alerts, ledger.retried) == ([], [], [])


@pytest.mark.parametrize("outcome", sorted(set(DeliveryOutcome) - {DUPLICATE}))
async def test_what_is_no_duplicate_brings_nothing(outcome: DeliveryOutcome) -> None:
    """A conflict of failed work is somebody's to look at, and no reason to run what failed."""
    ledger = Ledger(count=100)
    async with running(ledger) as aftercare:
        aftercare.look(endpoint(on_failed="retry", redelivery_alert=1), [duplicate(State.FAILED, outcome)])
    assert (ledger.asked, ledger.alerts, ledger.retried) == ([], [], [])


@pytest.mark.parametrize("error", [WrongState(), Unavailable(), StoreError(), HookledgerError()])
@pytest.mark.parametrize("redelivery_alert", [0, 3])
async def test_what_goes_wrong_for_one_is_not_the_others_loss(
    error: HookledgerError, redelivery_alert: int, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = duplicate(State.FAILED), duplicate(State.FAILED)
    ledger = Ledger()
    ledger.errors.append(error)
    with caplog.at_level(logging.WARNING):
        async with running(ledger) as aftercare:
            aftercare.look(endpoint(on_failed="retry", redelivery_alert=redelivery_alert), [first, second])
    assert [event_id for event_id, *_ in ledger.retried] == [second.event_id]
    # Who finds that somebody was there first has nothing to say.
    assert (str(first.event_id) in caplog.text) is not isinstance(error, WrongState)
    assert str(second.event_id) not in caplog.text


async def test_more_than_can_wait_is_left_to_the_next_duplicate() -> None:
    ledger = Ledger()
    items = [duplicate(State.FAILED) for _ in range(MAX_WAITING + 1)]
    async with running(ledger) as aftercare:
        aftercare.look(endpoint(), items)
        await aftercare.settled()
        assert ledger.asked == [item.event_id for item in items[:-1]]
        aftercare.look(endpoint(), items[-1:])
    assert ledger.asked[-1] == items[-1].event_id


@pytest.mark.parametrize("marks", [True, False])
async def test_an_alert_is_said_once(marks: bool, caplog: pytest.LogCaptureFixture) -> None:
    item, ledger = duplicate(State.RETRYING), Ledger(9, marks=marks)
    async with running(ledger) as aftercare:
        aftercare.look(endpoint(), [item])
    assert (f"ALERT event {item.event_id}" in caplog.text) is marks


@pytest.mark.parametrize("outcome", [DeliveryOutcome.CONFLICT, DeliveryOutcome.SAME_BODY])
async def test_a_quarantined_delivery_raises_its_alert_once(outcome: DeliveryOutcome) -> None:
    """Whoever sends a captured request again chooses how often."""
    ledger, known = Ledger(), Recorded(outcome, new_id(), State.PROCESSED)
    async with running(ledger) as aftercare:
        for _ in range(100):
            aftercare.look(endpoint(), [known], [item(alert="look at it")])
        aftercare.look(endpoint(), [known], [item()])
        accepted = Recorded(DeliveryOutcome.ACCEPTED, new_id())
        aftercare.look(endpoint(), [accepted], [item(alert="look at it")])
    assert ledger.alerts == [(known.event_id, "look at it")]
