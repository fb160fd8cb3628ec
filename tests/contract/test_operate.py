"""What operators read and do."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.ids import new_id
from hookledger.model import Kind
from hookledger.states import BY_NAME, State
from hookledger.store.ops.filters import Filter
from hookledger.store.protocol import Store
from tests.builders import (
    KIND,
    LEASE,
    Raw,
    claim,
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

# ── retry ────────────────────────────────────────────────────────────────────


# proves R43
@pytest.mark.parametrize("state", sorted(BY_NAME["retry"].sources))
async def test_retry_with_a_fresh_budget(store: Store, clock: Clock, state: State) -> None:
    before = await reach(store, state, KIND)
    clock.offset += 100
    await store.retry(before.id, state, "ada", "fixed the handler")
    found = await history(store, before.id)
    row = found.event
    assert (row.state, row.claim, row.run) == (State.PENDING, before.claim + 1, before.run)
    assert (row.attempts, row.snoozes, row.reason, row.finished_at) == (0, 0, None, None)
    [action] = found.actions
    assert (action.name, action.actor, action.reason) == ("retry", "ada", "fixed the handler")
    assert (action.from_state, action.to_state) == (state, State.PENDING)
    assert (action.at - row.received_at).total_seconds() >= 100
    assert len(found.attempts) == 1, "history stays"
    owner = await claim(store)
    assert (owner.attempts, owner.run) == (1, 1)
    assert owner.run_age < 60
    assert await settle(store, owner, "complete")


@pytest.mark.parametrize("state", sorted(set(State) - BY_NAME["retry"].sources))
async def test_retry_is_refused_from_other_states(store: Store, raw: Raw, state: State) -> None:
    row = await reach(store, state, KIND)
    before = await raw.all("events"), await raw.all("actions")
    with pytest.raises(WrongState, match="only failed, needs_review, retrying can be retried"):
        await store.retry(row.id, state, "ada", "please")
    assert (await raw.all("events"), await raw.all("actions")) == before


async def test_retry_when_the_state_has_changed(store: Store, raw: Raw) -> None:
    row = await reach(store, State.FAILED, KIND)
    before = await raw.all("events")
    with pytest.raises(WrongState):
        await store.retry(row.id, State.RETRYING, "ada", "please")
    with pytest.raises(WrongState):
        await store.retry(new_id(), State.FAILED, "ada", "please")
    assert await raw.all("events") == before
    assert await raw.count("actions") == 0


async def test_racing_retries_one_wins(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    row = await reach(store, State.FAILED, KIND)
    results = await asyncio.gather(
        *(stores[n % 2].retry(row.id, State.FAILED, f"op{n}", "now") for n in range(8)), return_exceptions=True
    )
    assert [type(r) for r in results].count(WrongState) == 7
    [action] = (await history(store, row.id)).actions
    assert results[int(action.actor[2:])] is None


async def test_retry_of_an_event_that_was_processed_since(store: Store, raw: Raw) -> None:
    row = await reach(store, State.FAILED, KIND)
    await store.retry(row.id, State.FAILED, "ada", "first", seen=row.claim)
    assert await settle(store, await claim(store), "fail")
    before = await raw.all("events")
    with pytest.raises(WrongState, match=r"is failed again now, in run 1: it has run since then.*ada.*first"):
        await store.retry(row.id, State.FAILED, "bob", "second", seen=row.claim)
    assert await raw.all("events") == before
    assert [action.actor for action in (await history(store, row.id)).actions] == ["ada"]


async def test_retry_needs_an_actor_and_a_reason(store: Store, raw: Raw) -> None:
    row = await reach(store, State.FAILED, KIND)
    before = await raw.all("events")
    for actor, reason in (("", "why"), ("ada", "")):
        with pytest.raises(BadData):
            await store.retry(row.id, State.FAILED, actor, reason)
    assert await raw.all("events") == before


async def test_retry_of_a_poison_event_still_runs_alone(store: Store, clock: Clock) -> None:
    ident = await recorded(store)
    await crash(store, clock)
    await crash(store, clock, due_in=1000.0)
    await store.retry(ident, State.RETRYING, "ada", "memory added")
    assert await store.claim("w", [KIND], 1, LEASE) == []
    [owner] = await store.claim_alone("w", [KIND], LEASE)
    assert (owner.attempts, owner.crashes) == (1, 2)


# ── find ─────────────────────────────────────────────────────────────────────


async def test_find_by_id_prefix_and_key(store: Store) -> None:
    await store.know_sources(["stripe", "github"])
    await store.know_sources(["github"])
    ident = await recorded(store, "evt_1")
    other = await recorded(store, "evt_2", source="github")
    assert await store.find(str(ident)) == [ident]
    assert await store.find(ident.hex.upper()) == [ident]
    assert sorted(await store.find(str(ident)[:9])) == sorted([ident, other])
    assert await store.find("evt_1") == [ident]
    assert await store.find("evt_2") == [other]
    assert await store.find("evt_3") == []
    assert await store.find("") == []
    assert await store.find(str(new_id())) == []


async def test_find_a_key_in_several_sources(store: Store) -> None:
    await store.know_sources(["a", "b", "c"])
    idents = {await recorded(store, "same", source=source) for source in ("a", "b", "c")}
    assert set(await store.find("same")) == idents


async def test_find_a_key_that_looks_like_an_id(store: Store) -> None:
    await store.know_sources(["stripe"])
    ident = await recorded(store, "deadbeef")
    assert await store.find("deadbeef") == [ident]


async def test_find_is_bounded(store: Store) -> None:
    await record(store, *(delivered(f"evt_{n}") for n in range(20)))
    [newest] = await store.search.events(limit=1)
    assert len(await store.find(newest.id.hex[:8])) == 10


# ── read ─────────────────────────────────────────────────────────────────────


async def test_history_of_nothing(store: Store) -> None:
    assert await store.history(new_id()) is None


# proves R44, R51
async def test_history_tells_everything(store: Store, clock: Clock) -> None:
    ident = await recorded(store)
    owner = await claim(store)
    await settle(store, owner, "fail", error="boom")
    await record(store, delivered())
    await store.retry(ident, State.FAILED, "ada", "again")
    await settle(store, await claim(store), "complete", result="ok")
    await record(store, delivered(body=b"other"))
    found = await history(store, ident)
    assert [(d.outcome.value, d.event_state) for d in found.deliveries] == [
        ("accepted", None),
        ("duplicate", State.FAILED),
        ("conflict", State.PROCESSED),
    ]
    assert [(a.claim, a.outcome.value, a.error) for a in found.attempts] == [
        (1, "failed", "boom"),
        (4, "processed", None),
    ]
    assert [a.name for a in found.actions] == ["retry"]
    assert (found.event.state, found.event.result, found.event.deliveries) == (State.PROCESSED, "ok", 3)


async def test_events_newest_first_in_pages(store: Store) -> None:
    idents = [await recorded(store, f"evt_{n}") for n in range(7)]
    seen = []
    before = None
    while page := await store.search.events(before=before, limit=3):
        assert len(page) <= 3
        seen += [row.id for row in page]
        before = page[-1].id
    assert seen == idents[::-1]


async def test_events_by_source_state_and_type(store: Store) -> None:
    a = await recorded(store, "a")
    b = await recorded(store, "b", source="github", type="push")
    c = (await claimed(store, "c", source="github", type="pull")).id

    async def found(*, before: UUID | None = None, **filters: Any) -> list[UUID]:
        rows = await store.search.events(Filter(**filters), before=before)
        assert before is not None or await store.search.count(Filter(**filters)) == len(rows)
        return [row.id for row in rows]

    assert await found() == [c, b, a]
    assert await found(source="github") == [c, b]
    assert await found(states=(State.PENDING,)) == [b, a]
    assert await found(states=(State.PENDING, State.PROCESSING)) == [c, b, a]
    assert await found(type="pu*") == [c, b]
    assert await found(key="b") == [b]
    assert await found(text="{}") == await found()
    assert await found(text="nowhere") == await found(error="nowhere") == await found(attention=True) == []
    since = (await event(store, b)).received_at
    assert await found(since=since) == [c, b]
    assert await found(until=since) == [a]
    assert await found(type="push") == [b]
    assert await found(source="github", states=(State.PENDING,), type="push") == [b]
    assert await found(source="github", before=c) == [b]
    assert await found(source="nobody") == []
    [row] = await store.search.events(Filter(type="pull"))
    assert row == await event(store, c)


async def test_counts(store: Store) -> None:
    assert await store.counts() == {}
    assert await store.delivery_counts() == {}
    for n, state in enumerate(State):
        await reach(store, state, Kind("s", f"t{n}"))
    await record(store, delivered("a"), delivered("a"), delivered("a", b"2"))
    assert await store.counts() == {state: 2 if state is State.PENDING else 1 for state in State}
    assert await store.delivery_counts() == {"accepted": 9, "duplicate": 1, "conflict": 1}
