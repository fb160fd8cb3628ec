"""Events that a person should look at: marked once, until they are well or somebody sends them round."""

from __future__ import annotations

import asyncio

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData
from hookledger.ids import new_id
from hookledger.model import Kind
from hookledger.states import State
from hookledger.store.protocol import Store
from tests.builders import (
    KIND,
    SOURCE,
    Raw,
    Way,
    claimed,
    crash,
    delivered,
    event,
    history,
    reach,
    record,
    recorded,
    settle,
)
from tests.contract.conftest import OpenStore

ALARMING = {State.FAILED, State.RETRYING, State.PROCESSING, State.NEEDS_REVIEW}


@pytest.mark.parametrize("state", sorted(ALARMING))
async def test_alert_once(store: Store, state: State) -> None:
    row = await reach(store, state, KIND)
    assert await store.alerts.alert(row.id, "came 4 times while it fails")
    assert not await store.alerts.alert(row.id, "again")
    found = await history(store, row.id)
    assert found.event.alert == "came 4 times while it fails"
    assert (found.event.state, found.event.claim) == (row.state, row.claim), "nobody loses a claim by it"
    [action] = found.actions
    assert (action.name, action.actor, action.reason) == ("alert", "hookledger", "came 4 times while it fails")
    assert (action.from_state, action.to_state, action.subject) == (state, state, None)


@pytest.mark.parametrize("state", sorted(set(State) - ALARMING))
async def test_no_alert_about_what_is_well(store: Store, raw: Raw, state: State) -> None:
    row = await reach(store, state, KIND)
    before = await raw.all("actions")
    assert not await store.alerts.alert(row.id, "words")
    assert not await store.alerts.alert(new_id(), "words")
    assert (await event(store, row.id)).alert is None
    assert await raw.all("actions") == before


@pytest.mark.parametrize(
    ("way", "stays"),
    [("complete", False), ("skip", False), ("fail", True), ("reschedule", True), ("review", True), ("release", True)],
)
async def test_when_the_mark_goes(store: Store, way: Way, stays: bool) -> None:
    owner = await claimed(store)
    assert await store.alerts.alert(owner.id, "words")
    assert await settle(store, owner, way)
    row = await event(store, owner.id)
    assert row.alert == ("words" if stays else None)
    if way in ("fail", "reschedule", "review"):
        await store.retry(owner.id, row.state, "ada", "fixed")
        assert (await event(store, owner.id)).alert is None


async def test_the_mark_through_a_crash_and_no_handler(store: Store, clock: Clock) -> None:
    ident = await recorded(store)
    await crash(store, clock)
    assert await store.alerts.alert(ident, "words")
    await crash(store, clock, due_in=None)
    assert ((row := await event(store, ident)).state, row.alert) == (State.FAILED, "words")
    given_back = await claimed(store, "evt_2", type="unheard")
    assert await store.alerts.alert(given_back.id, "words")
    assert await settle(store, given_back, "release")
    clock.offset += 1000
    assert await store.skip_unhandled(Kind(SOURCE, "unheard"), 10, 10) == 1
    assert ((row := await event(store, given_back.id)).state, row.alert) == (State.SKIPPED, None)


@pytest.mark.parametrize("words", ["", "\ud800"])
async def test_an_alert_says_something(store: Store, words: str) -> None:
    owner = await claimed(store)
    with pytest.raises(BadData):
        await store.alerts.alert(owner.id, words)
    found = await history(store, owner.id)
    assert (found.event.alert, found.actions) == (None, ())


async def test_alerts_race_with_the_outcome_and_each_other(store: Store, open_store: OpenStore, raw: Raw) -> None:
    other = await open_store()
    for n in range(10):
        owner = await claimed(store, f"evt_{n}")
        alerted, settled, also = await asyncio.gather(
            other.alerts.alert(owner.id, "words"),
            settle(store, owner, "complete"),
            other.alerts.alert(owner.id, "more"),
        )
        assert settled, "an alert never takes a claim away"
        assert not (alerted and also)
        found = await history(store, owner.id)
        assert (found.event.state, found.event.alert) == (State.PROCESSED, None)
        assert len(found.actions) == alerted + also


async def test_how_often_again(store: Store) -> None:
    once, often = await recorded(store, "once"), await recorded(store, "often", b"one")
    await record(store, *(delivered("often", b"one") for _ in range(4)), delivered("often", b"two"))
    unknown = new_id()
    assert await store.alerts.again([once, often, unknown, often]) == {once: 0, often: 5, unknown: 0}
    assert await store.alerts.again([]) == {}
