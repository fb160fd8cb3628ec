"""The handler's transaction: its writes and the outcome are one commit, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hookledger.clock import Clock
from hookledger.errors import ClaimLost, HandlerCommitted
from hookledger.model import Claimed, Outcome
from hookledger.states import State
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store, Transaction
from tests.builders import (
    KIND,
    LEASE,
    WAYS,
    Raw,
    Way,
    claim,
    claimed,
    delivered,
    event,
    history,
    record,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore


@pytest.fixture
async def ledger(raw: Raw) -> Callable[[], Any]:
    """A table of the application's own; returns its rows."""
    await raw.run("CREATE TABLE ledger (entry text PRIMARY KEY)")

    async def entries() -> list[str]:
        return [row[0] for row in await raw.run("SELECT entry FROM ledger ORDER BY entry")]

    return entries


def table(store: Store) -> str:
    """The raw connection made it in the store's schema, where handlers name it in full."""
    return "ledger" if type(store).__name__ == "SqliteStore" else "hookledger.ledger"


async def write(store: Store, tx: Transaction, entry: str) -> None:
    await tx.tx.execute(f"INSERT INTO {table(store)} VALUES ('{entry}')")


# proves R20
@pytest.mark.parametrize("way", WAYS)
async def test_writes_and_outcome_commit_together(store: Store, ledger: Callable[[], Any], way: Way) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    assert not tx.begun
    await write(store, tx, "credit")
    assert tx.begun
    await tx.commit([way_out(owner, way, result="done")])
    assert await ledger() == ["credit"]
    found = await history(store, owner.id)
    assert found.event.state is not State.PROCESSING
    assert (found.event.claim, found.event.result) == (2, "done")
    assert len(found.attempts) == (0 if way == "release" else 1)


async def test_rollback_leaves_neither(store: Store, ledger: Callable[[], Any], raw: Raw) -> None:
    owner = await claimed(store)
    before = await raw.all("events")
    tx = store.transaction()
    await write(store, tx, "credit")
    await tx.rollback()
    assert await ledger() == []
    assert await raw.all("events") == before
    assert await settle(store, owner, "reschedule")


async def test_rollback_of_what_was_not_begun(store: Store) -> None:
    tx = store.transaction()
    await tx.rollback()
    await tx.rollback()
    with pytest.raises(ClaimLost):
        await tx.tx.execute("SELECT 1")


async def test_outcome_without_any_statement(store: Store) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.commit([way_out(owner, "complete")])
    assert (await event(store, owner.id)).state is State.PROCESSED


async def test_reading_and_writing_by_every_method(store: Store, ledger: Callable[[], Any]) -> None:
    owner = await claimed(store)
    tx, name = store.transaction(), table(store)
    await tx.tx.execute(f"INSERT INTO {name} VALUES ($1)", "a")
    await tx.tx.executemany(f"INSERT INTO {name} VALUES ($1)", [("b",), ("c",)])
    assert [row["entry"] for row in await tx.tx.fetch(f"SELECT entry FROM {name} ORDER BY entry")] == ["a", "b", "c"]
    row = await tx.tx.fetchrow(f"SELECT entry, 7 AS n FROM {name} WHERE entry = $1", "b")
    assert row is not None
    assert (row["entry"], row["n"], row[0]) == ("b", 7, "b")
    assert await tx.tx.fetchrow(f"SELECT entry FROM {name} WHERE entry = 'z'") is None
    assert await tx.tx.fetchval(f"SELECT count(*) FROM {name}") == 3
    assert await tx.tx.fetchval(f"SELECT entry FROM {name} WHERE entry = 'z'") is None
    await tx.commit([way_out(owner, "complete")])
    assert await ledger() == ["a", "b", "c"]


async def test_gathered_statements_share_one_transaction(store: Store, ledger: Callable[[], Any]) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await asyncio.gather(*(write(store, tx, f"e{n}") for n in range(5)))
    await tx.rollback()
    assert await ledger() == []
    tx = store.transaction()
    await asyncio.gather(*(write(store, tx, f"e{n}") for n in range(5)))
    await tx.commit([way_out(owner, "complete")])
    assert len(await ledger()) == 5


async def test_savepoints_are_the_handlers_own(store: Store, ledger: Callable[[], Any]) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await write(store, tx, "kept")
    await tx.tx.execute("SAVEPOINT s")
    await write(store, tx, "undone")
    await tx.tx.execute("ROLLBACK TO SAVEPOINT s")
    await tx.tx.execute("RELEASE SAVEPOINT s")
    await tx.commit([way_out(owner, "complete")])
    assert await ledger() == ["kept"]


async def test_a_failing_statement(store: Store, ledger: Callable[[], Any]) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await write(store, tx, "once")
    with pytest.raises(Exception, match=r"(?i)unique"):
        await write(store, tx, "once")
    await tx.rollback()
    assert await ledger() == []
    assert await settle(store, owner, "fail")


# ── not ours any more ────────────────────────────────────────────────────────


async def _rescued(store: Store, clock: Clock, owner: Claimed) -> None:
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "died")]) == 1


async def test_claim_lost_before_the_first_statement(store: Store, clock: Clock, ledger: Callable[[], Any]) -> None:
    zombie = await claimed(store)
    await _rescued(store, clock, zombie)
    tx = store.transaction()
    await write(store, tx, "zombie")
    with pytest.raises(ClaimLost):
        await tx.commit([way_out(zombie, "complete")])
    assert await ledger() == []
    assert (await event(store, zombie.id)).state is State.RETRYING


async def test_claim_lost_and_taken_by_another(store: Store, clock: Clock, ledger: Callable[[], Any]) -> None:
    zombie = await claimed(store)
    await _rescued(store, clock, zombie)
    owner = await claim(store, worker="worker-2")
    for attempt in (zombie, owner):
        tx = store.transaction()
        await write(store, tx, attempt.id.hex)
        if attempt is zombie:
            with pytest.raises(ClaimLost):
                await tx.commit([way_out(zombie, "complete")])
        else:
            await tx.commit([way_out(owner, "complete")])
    assert await ledger() == [owner.id.hex]
    found = await history(store, owner.id)
    assert [(a.claim, a.outcome.value) for a in found.attempts] == [(1, "crashed"), (3, "processed")]


async def test_a_lost_claim_leaves_the_transaction_over(store: Store) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.tx.execute("SELECT 1")
    with pytest.raises(ClaimLost):
        await tx.commit([Outcome(owner.id, owner.claim + 1, "complete")])
    await tx.rollback()
    with pytest.raises(ClaimLost):
        await tx.tx.execute("SELECT 1")
    assert await settle(store, owner, "complete")


# ── the handler ended it ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ending", "kept"),
    [
        (["COMMIT"], ["credit"]),
        (["ROLLBACK"], []),
        (["COMMIT", "BEGIN"], ["credit"]),
        (["ROLLBACK", "BEGIN"], []),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
async def test_handler_ends_the_transaction_itself(
    store: Store, ledger: Callable[[], Any], ending: list[str], kept: list[str]
) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await write(store, tx, "credit")
    for statement in ending:
        await tx.tx.execute(statement)
    if "BEGIN" in ending:
        await write(store, tx, "after")
    with pytest.raises(HandlerCommitted):
        await tx.commit([way_out(owner, "complete")])
    await tx.rollback()
    # What the handler committed is committed; the event is still its worker's to send to review.
    assert await ledger() == kept
    row = await event(store, owner.id)
    assert (row.state, row.claim) == (State.PROCESSING, owner.claim)
    assert await settle(store, owner, "review", reason="the handler committed by itself")
    # The connection goes back clean: the next transaction is whole.
    other = await claimed(store, "evt_2")
    tx = store.transaction()
    await write(store, tx, "next")
    await tx.commit([way_out(other, "complete")])
    assert await ledger() == sorted([*kept, "next"])


async def test_handler_ended_it_and_there_is_no_outcome(store: Store) -> None:
    tx = store.transaction()
    await tx.tx.execute("COMMIT")
    with pytest.raises(HandlerCommitted):
        await tx.commit([])


# ── several ──────────────────────────────────────────────────────────────────


async def test_several_outcomes_all_or_none(store: Store, ledger: Callable[[], Any], raw: Raw) -> None:
    owners = [await claimed(store, f"evt_{n}") for n in range(3)]
    tx = store.transaction()
    await write(store, tx, "three")
    await tx.commit([way_out(o, "complete") for o in owners])
    assert await ledger() == ["three"]
    assert await store.counts() == {State.PROCESSED: 3}
    owners = [await claimed(store, f"more_{n}") for n in range(3)]
    await settle(store, owners[1], "fail")
    before = await raw.all("events"), await raw.all("attempts")
    tx = store.transaction()
    await write(store, tx, "none")
    with pytest.raises(ClaimLost):
        await tx.commit([way_out(o, "complete") for o in owners])
    assert await ledger() == ["three"]
    assert (await raw.all("events"), await raw.all("attempts")) == before


async def test_many_concurrent_transactions(store: Store, open_store: OpenStore, ledger: Callable[[], Any]) -> None:
    stores = [store, await open_store()]
    await record(store, *(delivered(f"evt_{n}") for n in range(24)))
    owners = await store.claim("w", [KIND], 24, LEASE)

    async def handle(n: int, owner: Claimed) -> None:
        tx = stores[n % 2].transaction()
        await write(store, tx, owner.key)
        if n % 3 == 0:
            await tx.rollback()
        else:
            await tx.commit([way_out(owner, "complete")])

    await asyncio.gather(*(handle(n, o) for n, o in enumerate(owners)))
    assert await ledger() == sorted(o.key for n, o in enumerate(owners) if n % 3)
    assert await store.counts() == {State.PROCESSED: 16, State.PROCESSING: 8}


async def test_two_handlers_of_one_claim(store: Store, ledger: Callable[[], Any]) -> None:
    owner = await claimed(store)

    async def handle(entry: str) -> bool:
        tx = store.transaction()
        await write(store, tx, entry)
        try:
            await tx.commit([way_out(owner, "complete")])
        except ClaimLost:
            return False
        return True

    won = await asyncio.gather(handle("a"), handle("b"))
    assert sorted(won) == [False, True]
    assert await ledger() == ["ab"[won.index(True)]]


# ── cut short ────────────────────────────────────────────────────────────────


async def test_cancelled_in_the_middle(store: Store, ledger: Callable[[], Any]) -> None:
    owner = await claimed(store)
    reached = asyncio.Event()

    async def handle() -> None:
        tx = store.transaction()
        try:
            await write(store, tx, "half")
            reached.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.shield(tx.rollback())

    task = asyncio.create_task(handle())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ledger() == []
    assert await settle(store, owner, "release")


async def test_cancelled_at_every_step(store: Store, ledger: Callable[[], Any]) -> None:
    """Wherever the cancellation strikes, it is all or nothing, and the next transaction works."""

    async def handle(tx: Transaction, owner: Claimed) -> None:
        try:
            await write(store, tx, owner.key)
            await tx.commit([way_out(owner, "complete")])
        finally:
            await asyncio.shield(tx.rollback())

    for steps in range(25):
        owner = await claimed(store, f"evt_{steps:02}")
        task = asyncio.create_task(handle(store.transaction(), owner))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        done = (await event(store, owner.id)).state is State.PROCESSED
        assert (owner.key in await ledger()) is done
        if not done:
            tx = store.transaction()
            await handle(tx, owner)


async def test_rolled_back_while_a_statement_waits_for_its_turn(store: Store) -> None:
    """A thread that overran its time-out may still be asking when its transaction is given up."""
    holders = [store.transaction() for _ in range(8)]
    await holders[0].tx.execute("SELECT 1")
    opened = 1
    if type(store).__name__ != "SqliteStore":  # there one transaction is all that fits
        for tx in holders[1:]:
            await tx.tx.execute("SELECT 1")
        opened = 8
    late = store.transaction()
    waiting = asyncio.create_task(late.tx.execute("SELECT 1"))
    await asyncio.sleep(0)
    await late.rollback()
    for tx in holders[:opened]:
        await tx.rollback()
    with pytest.raises(ClaimLost):
        await waiting
    owner = await claimed(store)
    tx = store.transaction()
    await tx.tx.execute("SELECT 1")
    await tx.commit([way_out(owner, "complete")])


async def test_use_after_the_end(store: Store) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.tx.execute("SELECT 1")
    await tx.commit([way_out(owner, "complete")])
    for use in (tx.tx.execute, tx.tx.fetch, tx.tx.fetchrow, tx.tx.fetchval):
        with pytest.raises(ClaimLost):
            await use("SELECT 1")
    with pytest.raises(ClaimLost):
        await tx.tx.executemany("SELECT $1", [(1,)])
    with pytest.raises(ClaimLost):
        await tx.commit([way_out(owner, "complete")])
    await tx.rollback()
    assert (await event(store, owner.id)).state is State.PROCESSED


# proves R68
async def test_renew_proves_ownership(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    assert await store.renew(owner.id, owner.claim, LEASE)
    clock.offset += LEASE + 1
    await rescued(store, owner)
    assert not await store.renew(owner.id, owner.claim, LEASE)


async def rescued(store: Store, owner: Claimed) -> None:
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "gone")]) == 1
