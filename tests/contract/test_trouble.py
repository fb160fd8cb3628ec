"""What an operator must see: every event and effect in trouble, counted and listed; and an effect tried now."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import ConfigError, WrongState
from hookledger.ledger import Effect
from hookledger.model import Claimed, Kind
from hookledger.operate.audit import by
from hookledger.operate.context import Context
from hookledger.operate.doctor.trouble import alerts, effects, events
from hookledger.operate.effects import try_now
from hookledger.states import EffectKind, EffectState, Repeat, State
from hookledger.store.ops import attention
from hookledger.store.ops.filters import EffectFilter, Filter
from hookledger.store.protocol import Store
from tests.builders import KIND, LEASE, Raw, claimed, event, history, settle
from tests.builders import reach as event_in
from tests.contract.conftest import OpenStore
from tests.contract.test_search import found
from tests.ledger import CALL, LATER, NAME, calls, finish, get, plan, reach, take

OUTBOX_STATES = (EffectState.PLANNED, EffectState.FAILED, EffectState.UNKNOWN)


async def owner_of(store: Store, key: str) -> Claimed:
    """A claimed event of a type of its own, which may have effects."""
    return await claimed(store, key, type=key)


async def unknown_and_due(store: Store, owner: Claimed, key: str, due_in: float | None) -> Effect:
    """In the outbox; with `due_in`, its policy is at it."""
    [identity] = await plan(store, owner, key, repeat=Repeat.KEYED)
    assert [one.identity for one in await take(store)] == [identity]
    await finish(store, identity, 1, "unknown", due_in=due_in, error="time-out")
    return await get(store, identity)


# ── events ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("due_in", [None, 0.0, 3600.0])
async def test_attention_is_whatever_an_operator_should_look_at(
    store: Store, clock: Clock, due_in: float | None
) -> None:
    expected: list[UUID] = []
    for state in State:
        row = await event_in(store, state, Kind("stripe", f"t.{state}"))
        expected += [row.id] * (state in (State.FAILED, State.NEEDS_REVIEW))
    retrying = await event_in(store, State.RETRYING, Kind("stripe", "alarmed"))
    await store.alerts.alert(retrying.id, "it fails again")
    failed = await owner_of(store, "failed")
    await reach(store, clock, failed, EffectState.FAILED, LATER, "a")
    unknown = await owner_of(store, "unknown")
    await unknown_and_due(store, unknown, "b", due_in)
    refused = await owner_of(store, "refused")
    await reach(store, clock, refused, EffectState.FAILED, CALL, "c")
    for owner in (failed, unknown, refused):
        assert await settle(store, owner, "complete")
    expected += [retrying.id, failed.id, unknown.id]
    assert sorted(await found(store, attention=True)) == sorted(expected), "a refused call is its handler's business"
    assert await found(store, attention=True, states=(State.FAILED,)) == [expected[0]]
    assert await found(store, attention=True, states=(State.PROCESSED,)) == sorted(expected[3:], reverse=True)
    assert sum(portion.count for portion in await store.jobs.breakdown(Filter(attention=True))) == 5, "so do jobs"


async def test_an_unknown_outcome_is_marked_until_it_is_known(store: Store, clock: Clock) -> None:
    owner = await owner_of(store, "unknown")
    known = await unknown_and_due(store, owner, "k", 0.0)
    assert (await event(store, owner.id)).attention
    [leased] = await take(store)
    assert (leased.state, (await event(store, owner.id)).attention) == (EffectState.UNKNOWN, True)
    assert await store.ledger.restart(leased, "w", LEASE)
    assert not (await event(store, owner.id)).attention, "a call is in flight"
    await finish(store, known.identity, 2, "unknown", due_in=5.0)
    assert (await event(store, owner.id)).attention
    assert await store.ledger.conclude(await get(store, known.identity), True, None, None)
    assert not (await event(store, owner.id)).attention


async def test_events_are_counted_no_further_than_needed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await store.attention.events(State.FAILED) == attention.Tally()
    rows = []
    for number in range(4):
        rows.append(await event_in(store, State.FAILED, Kind("stripe", f"t{number}")))
        await event_in(store, State.NEEDS_REVIEW, Kind("stripe", f"t{number}"))
    tally = await store.attention.events(State.FAILED)
    assert (tally.words, tally.oldest, tally.since) == ("4", rows[0].id, rows[0].received_at)
    monkeypatch.setattr(attention, "MOST", 3)
    assert (await store.attention.events(State.FAILED)).words == "3 or more"
    said = await events(Context(store))
    assert [one.level for one in said] == ["problem", "problem"]
    assert said[0].says.startswith("3 or more failed, the oldest since 20")
    assert said[0].says.endswith(str(rows[0].id))
    assert "hookledger failures" in said[0].do


# ── effects ──────────────────────────────────────────────────────────────────


async def pages(store: Store, limit: int, where: EffectFilter) -> list[str]:
    """Keys of all pages, one after the other."""
    keys: list[str] = []
    before: str | None = None
    while True:
        page = await store.attention.effects(where, before=before, limit=limit)
        assert len(page.effects) <= limit
        keys += [one.effect.key for one in page.effects]
        if page.next is None:
            return keys
        before = page.next


async def test_effects_by_state(store: Store, clock: Clock) -> None:
    assert (await store.attention.effects(EffectFilter())).effects == ()
    made: dict[str, EffectState] = {}
    for state in EffectState:
        for kind in (CALL, LATER):
            if (kind, state) == (CALL, EffectState.CANCELLED):
                continue
            owner = await owner_of(store, f"{kind}.{state}")
            for number in range(2):
                key = f"{kind}.{state}.{number}"
                made[key] = (await reach(store, clock, owner, state, kind, key, name=f"n{key}")).state
    newest_first = list(reversed(made))
    for state in EffectState:
        listed = await pages(store, 50, EffectFilter((state,)))
        assert sorted(listed) == sorted(key for key, its in made.items() if its is state)
        owners = [key.rpartition(".")[0] for key in newest_first if made[key] is state]
        assert [key.rpartition(".")[0] for key in listed] == owners, "the newest event first"
    everything = await pages(store, 50, EffectFilter(()))
    assert sorted(everything) == sorted(made)
    assert [await pages(store, limit, EffectFilter(())) for limit in (1, 2, 3, 7)] == [everything] * 4
    over = (EffectState.DONE, EffectState.CANCELLED)
    assert await pages(store, 4, EffectFilter()) == [key for key in everything if made[key] not in over]
    assert await pages(store, 50, EffectFilter((), "nlater.failed.1", "stripe")) == ["later.failed.1"]
    assert await pages(store, 50, EffectFilter((), "nlater.failed.1", "github")) == []
    with pytest.raises(ConfigError):
        await store.attention.effects(EffectFilter(), before="later.failed.1")


async def test_since_when(store: Store, clock: Clock) -> None:
    """An outcome is unknown since its first call that may have happened, however often it was repeated."""
    owner = await owner_of(store, "e")
    first = await unknown_and_due(store, owner, "k", 0.0)
    for number in (2, 3):
        clock.offset += 100
        [leased] = await take(store)
        assert await store.ledger.restart(leased, "w", LEASE)
        await finish(store, first.identity, number, "unknown", due_in=0.0)
    [listed] = (await store.attention.effects(EffectFilter())).effects
    told = (await history(store, owner.id)).effects[0].calls
    assert abs((listed.since - told[0].started_at).total_seconds()) < 1
    assert listed.effect.number == 3


async def test_doctor_on_effects(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(store)
    assert [one.level for one in await effects(context)] == ["ok"]
    owner = await owner_of(store, "e")
    await unknown_and_due(store, owner, "young", 60.0)
    [young] = await effects(context)
    assert (young.level, "their policies handle them" in young.says) == ("warn", True)
    assert f"{NAME}:young of {owner.id}" in young.says
    left = await unknown_and_due(store, owner, "left", None)
    [waits] = await effects(context)
    assert (waits.level, waits.says.startswith("2 with an unknown outcome")) == ("problem", True)
    await store.ledger.conclude(left, True, None, None)
    await reach(store, clock, owner, EffectState.FAILED, LATER, "refused")
    await reach(store, clock, owner, EffectState.FAILED, CALL, "handled")
    await plan(store, owner, "planned", name="other")
    found = await effects(context)
    assert [(one.level, one.says.split(",")[0]) for one in found] == [
        ("warn", "1 with an unknown outcome"),
        ("problem", "1 of the outbox failed"),
    ]
    clock.offset += 400
    overdue = (await effects(context))[-1]
    assert (overdue.level, overdue.says.startswith("1 planned and due for more than 5 min")) == ("problem", True)
    await store.register("w", [("stripe", "*")])
    assert [one.level for one in await effects(context)][-1] == "warn", "somebody is at it"
    monkeypatch.setattr(attention, "MOST", 1)
    assert (await store.attention.overdue(300.0)).words == "1 or more"


async def test_alerts_are_found_however_much_failed_since(store: Store) -> None:
    context = Context(store)
    assert [one.level for one in await alerts(context)] == ["ok"]
    alerted = await event_in(store, State.FAILED, KIND)
    await store.alerts.alert(alerted.id, "it fails again")
    owner = await owner_of(store, "mailed")
    [mail] = await plan(store, owner, "k")
    assert [one.identity for one in await take(store)] == [mail]
    await finish(store, mail, 1, "unknown")
    await store.ledger.resolve(await get(store, mail), "did_not_happen", None, "ada", "not there")
    await finish(store, mail, 1, "done")
    for number in range(4):
        await event_in(store, State.FAILED, Kind("stripe", f"t{number}"))
    said = await alerts(context)
    assert [(one.level, one.about) for one in said] == [
        ("problem", f"event {alerted.id}"),
        ("problem", f"event {owner.id}"),
    ]
    assert said[1].says.startswith(f"effect {NAME}:k: call 1 came back done")


# ── try now ──────────────────────────────────────────────────────────────────


async def tries(store: Store, event_id: UUID) -> list[tuple[str, str | None, str, str]]:
    found = (await history(store, event_id)).actions
    return [(one.actor, one.subject, one.from_state, one.to_state) for one in found if one.name == "try"]


@pytest.mark.parametrize("state", OUTBOX_STATES)
async def test_try_now(store: Store, clock: Clock, state: EffectState) -> None:
    owner = await owner_of(store, "e")
    before = await reach(store, clock, owner, state, LATER, repeat=Repeat.SAFE)
    assert (await event(store, owner.id)).attention == (state is not EffectState.PLANNED)
    if state is EffectState.PLANNED:  # a backoff
        [taken] = await take(store)
        await finish(store, taken.identity, 1, "refused", due_in=3600.0)
        before = await get(store, taken.identity)
    assert await take(store) == []
    made = await calls(store, before)
    told = await try_now(Context(store), by("ada", "the bank is back"), before)
    after = await get(store, before.identity)
    kept = EffectState.UNKNOWN if state is EffectState.UNKNOWN else EffectState.PLANNED
    assert (after.state, after.tries, after.number) == (kept, 0, before.number)
    assert after.fence == before.fence + 1
    assert after.due_at is not None
    assert await calls(store, after) == made, "no call is forgotten: the window counts from the first"
    assert told.event.attention == (state is EffectState.UNKNOWN)
    assert await tries(store, owner.id) == [("ada", f"{NAME}:k", state.value, kept.value)]
    assert [one.identity for one in await take(store)] == [before.identity]
    assert (await store.consistency.report()).imbalances == ()


REFUSED = [
    *((CALL, state, None, "hookledger retry") for state in OUTBOX_STATES),
    (CALL, EffectState.STARTED, None, "a call of its handler"),
    (LATER, EffectState.STARTED, None, "a worker is performing it now"),
    (LATER, EffectState.DONE, None, "--repeat-effect"),
    (LATER, EffectState.CANCELLED, None, "nothing is left to try"),
    (LATER, EffectState.UNKNOWN, Repeat.NEVER, "its policy is never"),
]


@pytest.mark.parametrize(("kind", "state", "repeat", "words"), REFUSED)
async def test_what_may_not_be_tried(
    store: Store, clock: Clock, raw: Raw, kind: EffectKind, state: EffectState, repeat: Repeat | None, words: str
) -> None:
    owner = await owner_of(store, "e")
    known = await reach(store, clock, owner, state, kind, repeat=repeat or Repeat.SAFE)
    before = await raw.all("effects"), await raw.all("actions")
    with pytest.raises(WrongState) as refused:
        await try_now(Context(store), by("ada", "again"), known)
    assert words in str(refused.value)
    assert (await raw.all("effects"), await raw.all("actions")) == before


async def test_a_check_that_is_planned_can_be_asked_now(store: Store, clock: Clock) -> None:
    """`never` with a check: its policy asks, and repeats nothing."""
    owner = await owner_of(store, "e")
    [identity] = await plan(store, owner, "k", repeat=Repeat.NEVER)
    await take(store)
    await finish(store, identity, 1, "unknown", due_in=3600.0)
    await try_now(Context(store), by("ada", "the bank answers again"), await get(store, identity))
    [leased] = await take(store)
    assert (leased.state, leased.number) == (EffectState.UNKNOWN, 1), "leased to be checked; no call"


async def test_erased_arguments_cannot_be_performed(store: Store, clock: Clock, raw: Raw) -> None:
    owner = await owner_of(store, "e")
    known = await reach(store, clock, owner, EffectState.FAILED, LATER)
    erased = msgspec.structs.replace(known, arguments=b"")
    with pytest.raises(WrongState, match="arguments were erased"):
        await try_now(Context(store), by("ada", "again"), erased)
    assert await tries(store, owner.id) == []


async def test_what_changed_since_it_was_looked_at(store: Store, clock: Clock) -> None:
    owner = await owner_of(store, "e")
    [identity] = await plan(store, owner, "k")
    seen = await get(store, identity)
    await take(store)
    with pytest.raises(WrongState, match="it was planned, and is started"):
        await try_now(Context(store), by("ada", "again"), seen)
    await finish(store, identity, 1, "done")
    with pytest.raises(WrongState, match="it was planned, and is done"):
        await try_now(Context(store), by("ada", "again"), seen)
    assert (await get(store, identity)).state is EffectState.DONE
    assert await tries(store, owner.id) == []
    assert await calls(store, seen) == [(1, "done")]


async def test_two_operators_and_a_worker_concurrently(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """Whoever comes second is told so; no call is lost, and none is made twice."""
    other = await open_store()
    for number in range(10):
        owner = await owner_of(store, f"e{number}")
        [identity] = await plan(store, owner, f"k{number}")
        seen = await get(store, identity)

        async def tried(where: Store, who: str, seen: Effect = seen) -> bool:
            with suppress(WrongState):
                await try_now(Context(where), by(who, "again"), seen)
                return True
            return False

        ada, bob, taken = await asyncio.gather(tried(store, "ada"), tried(other, "bob"), take(other))
        assert len(await tries(store, owner.id)) == ada + bob <= 1
        taken = taken or await take(store)
        assert [one.identity for one in taken] == [identity]
        assert await calls(store, seen) == [(1, None)]
        await finish(store, identity, 1, "done")
        assert (await get(store, identity)).state is EffectState.DONE
    assert (await store.consistency.report()).imbalances == ()
