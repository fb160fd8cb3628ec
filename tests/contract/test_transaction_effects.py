"""The handler's transaction: effects that are done or planned with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, ClaimLost, HandlerCommitted
from hookledger.ids import effect_identity
from hookledger.ledger import Intent, Known
from hookledger.model import Claimed, Outcome
from hookledger.states import EffectKind, EffectState, Repeat, State
from hookledger.store.protocol import Store
from tests.builders import KIND, LEASE, Raw, claimed, delivered, event, record, settle, way_out
from tests.contract.conftest import OpenStore
from tests.ledger import CALL, finish, get, plan, reach, take
from tests.ledger import intent as ledger_intent

ONCE = EffectKind.ONCE
LATER = EffectKind.LATER
KNOWN = Known(LATER, EffectState.PLANNED, b"d")


def intent(owner: Claimed, name: str, key: str = "k", kind: EffectKind = ONCE, **other: Any) -> Intent:
    if kind is LATER:
        other = {
            "repeat": Repeat.SAFE,
            "downstream": name,
            "arguments": b"{}",
            "arguments_digest": b"d",
        } | other
    identity = effect_identity(owner.source, *(part.encode("utf-8", "replace").decode() for part in (name, key)))
    return Intent(identity, kind, owner.source, name, key, owner.id, owner.claim, **other)


async def effects(raw: Raw) -> list[tuple[Any, ...]]:
    return await raw.run("SELECT name, key, kind, state FROM effects ORDER BY name, key")


async def several(store: Store, count: int) -> list[Claimed]:
    await record(store, *(delivered(f"evt_{n}") for n in range(count)))
    return await store.claim("w", [KIND], count, LEASE)


# ── with the outcome or not at all ───────────────────────────────────────────


# proves R29
async def test_committed_with_the_outcome(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    assert not tx.begun
    assert not tx.exclusive
    assert await tx.once(intent(owner, "credit"))
    assert tx.begun
    assert await tx.plan(intent(owner, "mail", kind=LATER)) is None
    assert await tx.plan(intent(owner, "mail", "in-order", kind=LATER, lane="customer")) is None
    await tx.commit([way_out(owner, "complete")])
    assert await effects(raw) == [
        ("credit", "k", "once", "done"),
        ("mail", "in-order", "later", "planned"),
        ("mail", "k", "later", "planned"),
    ]
    due = "due_at = planned_at AND planned_at = created_at"
    assert await raw.count(f"effects WHERE kind = 'later' AND {due} AND finished_at IS NULL") == 2
    assert await raw.count("effects WHERE kind = 'once' AND finished_at = created_at AND due_at IS NULL") == 1
    ours = f"event_id = {raw.ident(owner.id)} AND claim = {owner.claim} AND source = '{owner.source}'"
    assert await raw.count(f"effects WHERE {ours}") == 3
    kept = await raw.run("SELECT arguments, arguments_digest, repeat, downstream FROM effects WHERE key = 'in-order'")
    assert kept == [(b"{}", b"d", "safe", "mail")]
    assert (await event(store, owner.id)).state is State.PROCESSED


async def test_rolled_back_with_everything_else(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    assert await tx.once(intent(owner, "credit"))
    assert await tx.plan(intent(owner, "mail", kind=LATER, lane="customer")) is None
    await tx.rollback()
    assert await effects(raw) == []
    assert await raw.count("effect_lanes") == 0
    assert await settle(store, owner, "reschedule")


async def test_a_lost_claim_keeps_none(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    assert await tx.once(intent(owner, "credit"))
    assert await tx.plan(intent(owner, "mail", kind=LATER)) is None
    with pytest.raises(ClaimLost):
        await tx.commit([Outcome(owner.id, owner.claim + 1, "complete")])
    assert await effects(raw) == []


async def test_after_the_handlers_own_commit(store: Store, raw: Raw) -> None:
    """A row would commit alone, and skip for ever what the handler never did."""
    owner = await claimed(store)
    tx = store.transaction()
    await tx.tx.execute("SELECT 1")
    await tx.tx.execute("COMMIT")
    with pytest.raises(HandlerCommitted):
        await tx.once(intent(owner, "credit"))
    with pytest.raises(HandlerCommitted):
        await tx.plan(intent(owner, "mail", kind=LATER, lane="customer"))
    await tx.rollback()
    assert await effects(raw) == []
    assert await raw.count("effect_lanes") == 0


async def test_after_the_end(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.rollback()
    with pytest.raises(ClaimLost):
        await tx.once(intent(owner, "credit"))
    with pytest.raises(ClaimLost):
        await tx.plan(intent(owner, "mail", kind=LATER))
    assert await effects(raw) == []


# ── known already ────────────────────────────────────────────────────────────


async def test_known_by_an_earlier_transaction(store: Store, raw: Raw) -> None:
    first, second = await several(store, 2)
    for owner, new in ((first, True), (second, False)):
        tx = store.transaction()
        assert await tx.once(intent(owner, "credit")) is new
        known = await tx.plan(intent(owner, "mail", kind=LATER, lane="customer", arguments_digest=owner.id.bytes))
        assert known == (None if new else Known(LATER, EffectState.PLANNED, first.id.bytes))
        await tx.commit([way_out(owner, "complete")])
    assert len(await effects(raw)) == 2
    assert await raw.run("SELECT next FROM effect_lanes") == [(2,)]


async def test_known_in_the_same_transaction(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    assert await tx.once(intent(owner, "credit"))
    assert not await tx.once(intent(owner, "credit"))
    assert await tx.plan(intent(owner, "mail", kind=LATER, lane="a")) is None
    assert await tx.plan(intent(owner, "mail", kind=LATER, lane="a", arguments_digest=b"other")) == KNOWN
    await tx.commit([way_out(owner, "complete")])
    assert len(await effects(raw)) == 2


@pytest.mark.parametrize("first_commits", [True, False])
async def test_two_transactions_want_the_same(
    store: Store, open_store: OpenStore, raw: Raw, first_commits: bool
) -> None:
    """The second waits for the first: it wins exactly when the first rolls back."""
    other = await open_store()
    owners = await several(store, 2)
    first, second = store.transaction(), other.transaction()
    assert await first.once(intent(owners[0], "credit"))
    waiting = asyncio.create_task(second.once(intent(owners[1], "credit")))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    if first_commits:
        await first.commit([way_out(owners[0], "complete")])
    else:
        await first.rollback()
    assert await waiting is not first_commits
    await second.commit([way_out(owners[1], "complete")])
    winner = owners[0] if first_commits else owners[1]
    assert await raw.count("effects") == 1
    assert await raw.count(f"effects WHERE event_id = {raw.ident(winner.id)}") == 1


async def test_many_want_the_same(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores = [store, await open_store()]
    owners = await several(store, 16)

    async def handle(n: int, owner: Claimed) -> tuple[bool, bool]:
        tx = stores[n % 2].transaction()
        once = await tx.once(intent(owner, "credit"))
        planned = await tx.plan(intent(owner, "mail", kind=LATER, lane="customer")) is None
        await tx.commit([way_out(owner, "complete")])
        return once, planned

    won = await asyncio.gather(*(handle(n, owner) for n, owner in enumerate(owners)))
    assert sorted(once for once, _ in won) == [False] * 15 + [True]
    assert sorted(planned for _, planned in won) == [False] * 15 + [True]
    assert await raw.count("effects") == 2


# ── a handler's call becomes the outbox's ────────────────────────────────────

DIGEST = b"digest"


@pytest.mark.parametrize("lane", [None, "customer"])
@pytest.mark.parametrize("state", [EffectState.PLANNED, EffectState.FAILED])
async def test_a_call_that_did_not_happen_is_adopted(
    store: Store, clock: Clock, raw: Raw, state: EffectState, lane: str | None
) -> None:
    owner = await claimed(store)
    before = await reach(store, clock, owner, state, CALL)
    if lane:
        await plan(store, owner, "ahead", lane=lane)
    clock.offset += 50
    asked = ledger_intent(owner, kind=LATER, lane=lane, claim=owner.claim + 7)
    for end in ("rollback", "commit"):
        tx = store.transaction()
        assert await tx.plan(asked) is None
        known = await tx.plan(asked)
        assert known == Known(LATER, EffectState.PLANNED, DIGEST), "once only"
        if end == "commit":
            await tx.commit([way_out(owner, "complete")])
            break
        await tx.rollback()
        assert (await get(store, before.identity)).kind is CALL
    after = await get(store, before.identity)
    assert (after.kind, after.state, after.lane) == (LATER, EffectState.PLANNED, lane)
    assert (after.fence, after.tries, after.number) == (before.fence + 1, 0, before.number)
    assert (after.event_id, after.claim, after.leased_until) == (owner.id, owner.claim, None)
    assert after.due_at is not None
    assert after.age < 5
    if lane:
        assert await places(raw) == ["ahead", "k"]
        [ahead] = await take(store, most=5)
        assert ahead.key == "ahead", "it waits for its turn"
        await finish(store, ahead.identity, ahead.number, "done")
    [taken] = await take(store, most=5)
    assert (taken.identity, taken.state, taken.number) == (before.identity, EffectState.STARTED, 2)
    assert await raw.count("effects") == (2 if lane else 1)


@pytest.mark.parametrize("kind", [CALL, LATER])
@pytest.mark.parametrize("state", list(EffectState))
async def test_what_is_not_adopted(
    store: Store, clock: Clock, raw: Raw, state: EffectState, kind: EffectKind
) -> None:
    if state is EffectState.CANCELLED and kind is CALL:
        return
    owner = await claimed(store)
    await reach(store, clock, owner, state, kind)
    before = await raw.all("effects")
    adoptable = kind is CALL and state in (EffectState.PLANNED, EffectState.FAILED)
    tx = store.transaction()
    for digest in (b"other",) if adoptable else (b"other", DIGEST):
        asked = ledger_intent(owner, kind=LATER, lane="customer", arguments_digest=digest)
        assert await tx.plan(asked) == Known(kind, state, DIGEST)
    await tx.commit([])
    assert await raw.all("effects") == before
    assert await raw.count("effect_lanes") == 0


async def test_what_a_handler_did_once_is_not_adopted(store: Store) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    assert await tx.once(intent(owner, "mail", arguments_digest=b"d"))
    known = await tx.plan(intent(owner, "mail", kind=LATER))
    assert known == Known(ONCE, EffectState.DONE, b"d")
    await tx.commit([])


async def test_nothing_is_adopted_after_the_handler_committed(store: Store, clock: Clock, raw: Raw) -> None:
    """An outbox row that commits by itself would be a lie."""
    owner = await claimed(store)
    await reach(store, clock, owner, EffectState.FAILED, CALL)
    before = await raw.all("effects")
    tx = store.transaction()
    await tx.tx.execute("SELECT 1")
    await tx.tx.execute("COMMIT")
    with pytest.raises(HandlerCommitted):
        await tx.plan(ledger_intent(owner, kind=LATER, lane="customer"))
    await tx.rollback()
    assert await raw.all("effects") == before
    assert await raw.count("effect_lanes") == 0


async def test_many_adopt_the_same(store: Store, open_store: OpenStore, clock: Clock) -> None:
    stores = [store, await open_store()]
    owner = await claimed(store)
    known = await reach(store, clock, owner, EffectState.FAILED, CALL)

    async def handle(n: int) -> bool:
        tx = stores[n % 2].transaction()
        planned = await tx.plan(ledger_intent(owner, kind=LATER, lane=f"l{n % 3}")) is None
        await tx.commit([])
        return planned

    assert sorted(await asyncio.gather(*map(handle, range(10)))) == [False] * 9 + [True]
    assert (await get(store, known.identity)).fence == known.fence + 1


# ── lanes ────────────────────────────────────────────────────────────────────


async def places(raw: Raw, lane: str = "customer") -> list[str]:
    return [row[0] for row in await raw.run(f"SELECT key FROM effects WHERE lane = '{lane}' ORDER BY place")]


async def test_places_are_given_in_the_order_of_commits(store: Store, open_store: OpenStore, raw: Raw) -> None:
    stores = [store, await open_store()]
    committed: list[str] = []

    async def handle(n: int, owner: Claimed) -> None:
        tx = stores[n % 2].transaction()
        assert await tx.plan(intent(owner, "mail", owner.key, LATER, lane="customer")) is None
        await asyncio.sleep(0.005 * (n * 7 % 5))
        if n % 4 == 0:
            await tx.rollback()
            return
        committed.append(owner.key)  # nobody else can be between this and the commit: the lane is locked
        await tx.commit([way_out(owner, "complete")])

    await asyncio.gather(*(handle(n, owner) for n, owner in enumerate(await several(store, 16))))
    assert len(committed) == 12
    assert await places(raw) == committed


async def test_lanes_are_of_one_name(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    for name in ("mail", "crm"):
        for key in ("a", "b"):
            await tx.plan(intent(owner, name, key, LATER, lane="customer"))
    await tx.plan(intent(owner, "mail", "c", LATER, lane="another"))
    await tx.plan(intent(owner, "mail", "d", LATER))
    await tx.commit([way_out(owner, "complete")])
    found = await raw.run("SELECT name, lane, key, place FROM effects ORDER BY name, key")
    assert found == [
        ("crm", "customer", "a", 1),
        ("crm", "customer", "b", 2),
        ("mail", "customer", "a", 1),
        ("mail", "customer", "b", 2),
        ("mail", "another", "c", 1),
        ("mail", None, "d", None),
    ]


# ── what no column can hold ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    "bad", [{"key": "lone \ud800"}, {"key": ""}, {"key": "x" * 256}, {"name": ""}, {"name": "lone \udfff"}], ids=ascii
)
@pytest.mark.parametrize("kind", [ONCE, LATER])
async def test_bad_data(store: Store, raw: Raw, kind: EffectKind, bad: dict[str, str]) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    given = intent(owner, **{"name": "credit", **bad}, kind=kind)
    with pytest.raises(BadData):
        await (tx.once(given) if kind is ONCE else tx.plan(given))
    await tx.rollback()
    assert await effects(raw) == []
    tx = store.transaction()  # and the next one works
    assert await tx.once(intent(owner, "credit"))
    await tx.commit([way_out(owner, "complete")])
    assert await raw.count("effects") == 1
