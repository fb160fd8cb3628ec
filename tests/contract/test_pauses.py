"""Pauses: workers leave alone what is paused; deliveries are accepted all the same."""

from __future__ import annotations

import asyncio

import pytest

from hookledger.clock import Clock
from hookledger.errors import ConfigError, WrongState
from hookledger.model import Kind
from hookledger.operate import pauses
from hookledger.operate.audit import by
from hookledger.operate.context import Context
from hookledger.states import State
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, Raw, claim, crash, event, keys, recorded, settle
from tests.contract.conftest import OpenStore

TYPES = ("invoice.paid", "invoice.made", "invoice", "order%", "order_x")


async def claimable(store: Store, source: str = "stripe") -> list[str]:
    """Which types a worker that handles all of them gets; they are given back."""
    kinds = [Kind(source, name) for name in TYPES]
    found = await store.claim(WORKER, kinds, 100, LEASE)
    assert {w.kind.type for w in await store.waiting() if w.kind.source == source} == set()
    for owner in found:
        assert await settle(store, owner, "release")
    assert {w.kind.type for w in await store.waiting() if w.kind.source == source} == {o.type for o in found}
    return sorted(owner.type for owner in found)


@pytest.mark.parametrize(
    ("pattern", "stopped"),
    [
        ("*", set(TYPES)),
        ("invoice.paid", {"invoice.paid"}),
        ("invoice.*", {"invoice.paid", "invoice.made"}),
        ("invoice*", {"invoice.paid", "invoice.made", "invoice"}),
        ("order%", {"order%"}),
        ("order_*", {"order_x"}),
        ("nothing", set()),
    ],
)
async def test_nothing_of_it_is_claimed(store: Store, pattern: str, stopped: set[str]) -> None:
    for name in TYPES:
        await recorded(store, name, type=name)
    await recorded(store, "elsewhere", source="github", type="invoice.paid")
    context = Context(store)
    await pauses.pause(context, by("ada", "the bank is down"), "stripe", pattern)
    assert await claimable(store) == sorted(set(TYPES) - stopped)
    assert await claimable(store, "github") == ["invoice.paid"]
    await pauses.resume(context, by("ada", "it is up"), "stripe", pattern)
    assert await claimable(store) == sorted(TYPES)


async def test_what_crashed_twice_waits_too(store: Store, clock: Clock) -> None:
    kind = Kind("stripe", "t")
    await recorded(store, "evt", type="t")
    for _ in range(2):
        await crash(store, clock, kind)
    await pauses.pause(Context(store), by("ada", "poison?"), "stripe")
    assert await store.claim_alone(WORKER, [kind], LEASE) == []
    assert await store.waiting() == []
    await pauses.resume(Context(store), by("ada", "no"), "stripe")
    assert keys(await store.claim_alone(WORKER, [kind], LEASE)) == ["evt"]


async def test_what_is_being_processed_finishes_and_deliveries_are_accepted(store: Store) -> None:
    ident = await recorded(store)
    owner = await claim(store)
    await pauses.pause(Context(store), by("ada", "the bank is down"), "stripe")
    await recorded(store, "evt_2")
    assert await settle(store, owner, "complete")
    assert (await event(store, ident)).state is State.PROCESSED
    assert await store.counts() == {State.PROCESSED: 1, State.PENDING: 1}


async def test_paused_events_are_not_skipped_for_want_of_a_handler(store: Store, clock: Clock) -> None:
    ident = await recorded(store, type="t")
    await pauses.pause(Context(store), by("ada", "the bank is down"), "stripe", "t")
    clock.offset += 10_000
    assert await store.skip_unhandled(Kind("stripe", "t"), 10.0, 100) == 0
    assert (await event(store, ident)).state is State.PENDING
    await pauses.resume(Context(store), by("ada", "up"), "stripe", "t")
    assert await store.skip_unhandled(Kind("stripe", "t"), 10.0, 100) == 1


async def test_audited_and_shown(store: Store, raw: Raw) -> None:
    context = Context(store)
    await pauses.pause(context, by("ada", "the bank is down"), "stripe")
    made = await pauses.pause(context, by("ada", "not these"), "stripe", "invoice.*")
    assert (made.source, made.pattern, made.actor, made.reason) == ("stripe", "invoice.*", "ada", "not these")
    assert [(p.source, p.pattern) for p in await pauses.pauses(context)] == [("stripe", "*"), ("stripe", "invoice.*")]
    await pauses.resume(context, by("ada", "up again"), "stripe")
    assert await pauses.pauses(context) == [made]
    noted = await raw.run("SELECT name, actor, reason, subject, from_state, to_state FROM actions ORDER BY at, id")
    assert noted == [
        ("pause", "ada", "the bank is down", "source stripe", "open", "paused"),
        ("pause", "ada", "not these", "source stripe, type invoice.*", "open", "paused"),
        ("resume", "ada", "up again", "source stripe", "paused", "open"),
    ]


async def test_two_operators(store: Store, open_store: OpenStore, raw: Raw) -> None:
    """One pauses; the other is told who did, when and why."""
    other = await open_store()
    ends = await asyncio.gather(
        pauses.pause(Context(store), by("ada", "says ada"), "stripe"),
        pauses.pause(Context(other), by("bob", "says bob"), "stripe"),
        return_exceptions=True,
    )
    [error] = [end for end in ends if isinstance(end, WrongState)]
    [pause] = await pauses.pauses(Context(store))
    since = f"{pause.since:%Y-%m-%d %H:%M:%S} UTC"
    assert f"paused already, by {pause.actor} since {since} (says {pause.actor})" in str(error)
    assert await raw.count("actions") == 1
    await pauses.resume(Context(store), by("ada", "up"), "stripe")
    with pytest.raises(WrongState, match="source stripe is not paused"):
        await pauses.resume(Context(other), by("bob", "up"), "stripe")
    assert await raw.count("actions") == 2


@pytest.mark.parametrize("pattern", ["", "a*b", "*a", "a\0"])
async def test_what_is_no_pattern(store: Store, pattern: str) -> None:
    with pytest.raises(ConfigError, match="event type"):
        await pauses.pause(Context(store), by("ada", "why not"), "stripe", pattern)
