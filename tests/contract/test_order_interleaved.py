"""Intake, claims, outcomes, waits and placing in every order of their steps: no event is forgotten, none overlaps.

Each step is one transaction of one process. The steps of a process keep their order; placing comes between any two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from hookledger.clock import Clock
from hookledger.model import Claimed, Kind
from hookledger.states import State
from hookledger.store.postgres.transaction import PostgresTransaction
from hookledger.store.protocol import Store
from tests.builders import LEASE, SOURCE, Raw, delivered, keys, record, settle, way_out

CREATED, UPDATED = Kind(SOURCE, "customer.created"), Kind(SOURCE, "customer.updated")
Step = Callable[[], Awaitable[object]]


def merged(*processes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every order of the steps of several processes."""
    live = [process for process in processes if process]
    if not live:
        yield ()
    for process in live:
        rest = [other[1:] if other is process else other for other in live]
        for tail in merged(*rest):
            yield (process[0], *tail)


class Scene:
    """`updated` must run after `created`: until then it waits for the entity."""

    def __init__(self, store: Store, *, ordered: bool) -> None:
        self.store = store
        self.ordered = ordered
        self.created = self.updated = False
        self.held: dict[str, Claimed] = {}
        self.running = 0

    def steps(self) -> dict[str, Step]:
        return {
            "record updated": lambda: self.arrive("updated", 2, UPDATED),
            "record created": lambda: self.arrive("created", 1, CREATED),
            "claim created": lambda: self.claim(CREATED),
            "settle created": lambda: self.finish(CREATED),
            "claim updated": lambda: self.claim(UPDATED),
            "settle updated": lambda: self.finish(UPDATED),
            "place": self.place,
        }

    async def arrive(self, key: str, at: int, kind: Kind) -> None:
        rule: dict[str, Any] = {"entity": "cus_1", "ordered": self.ordered, "order_at": 1e9 + at}
        await record(self.store, delivered(key, key.encode(), type=kind.type, **rule))

    async def place(self) -> None:
        while await self.store.entities.place():
            pass

    async def claim(self, kind: Kind) -> None:
        if kind.type in self.held:
            return
        for owner in await self.store.claim("w", [kind], 1, LEASE):
            self.held[kind.type] = owner
            assert not self.ordered or len(self.held) == 1, "two events of one entity run"

    async def finish(self, kind: Kind) -> None:
        owner = self.held.pop(kind.type, None)
        if owner is None:
            return
        if kind is CREATED:
            self.created = await settle(self.store, owner, "complete")
        elif self.created:
            self.updated = await settle(self.store, owner, "complete")
        else:
            assert await settle(self.store, owner, "wait", due_in=300.0, waits_for="cus_1")


COUNT = count()
ORDERS = sorted(
    set(
        merged(
            ("record updated",),
            ("record created",),
            ("claim created", "settle created"),
            ("claim updated", "settle updated"),
        )
    )
)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
async def test_updated_converges_in_every_order_of_the_steps(store: Store, clock: Clock, ordered: bool) -> None:
    """Placing happens after each step, after none, or between every two; the clock never reaches a poll."""
    assert len(ORDERS) == 180
    for number, order in enumerate(ORDERS):
        for placed in (True, False) if number % 4 == 0 else (number % 2 == 0,):
            await converges(store, clock, order, placed=placed, ordered=ordered)


async def converges(store: Store, clock: Clock, order: tuple[str, ...], *, placed: bool, ordered: bool) -> None:
    scene = Scene(store, ordered=ordered)
    steps = scene.steps()
    for name in order:
        clock.offset += 0.001
        await steps[name]()
        if placed:
            await scene.place()
    for _ in range(8):  # workers look again, long before anything would poll
        if scene.created and scene.updated:
            break
        for name in ("place", "claim created", "settle created", "place", "claim updated", "settle updated"):
            clock.offset += 0.001
            await steps[name]()
    assert (scene.created, scene.updated) == (True, True), order
    assert {state: n for state, n in (await store.counts()).items() if n} == {State.PROCESSED: 2}
    if next(COUNT) % 25 == 0:
        assert (await store.consistency.report()).imbalances == ()
    raw = Raw(store)
    for table in ("events", "identities", "deliveries", "requests", "attempts", "entities", "entity_changes"):
        await raw.run(f"DELETE FROM {table}")


async def test_a_wait_and_an_outcome_that_do_not_see_one_another(store: Store, raw: Raw, clock: Clock) -> None:
    """PostgreSQL: `created` is settled, but not committed, while `updated` waits, and a worker places in between."""
    scene = Scene(store, ordered=False)
    await scene.arrive("created", 1, CREATED)
    await scene.arrive("updated", 2, UPDATED)
    [created], [updated] = [await store.claim("w", [kind], 1, LEASE) for kind in (CREATED, UPDATED)]
    transaction = store.transaction()
    await transaction.tx.execute("SELECT 1")
    if isinstance(transaction, PostgresTransaction):
        clock.offset += 0.001
        await transaction.settle([way_out(created, "complete")])
        assert await settle(store, updated, "wait", due_in=300.0, waits_for="cus_1")
        await scene.place()
        assert await store.claim("w", [UPDATED], 1, LEASE) == []
        await transaction._adapter.commit()
    else:  # on SQLite the wait comes after the outcome: there is one writer
        await transaction.commit([way_out(created, "complete")])
        assert await settle(store, updated, "wait", due_in=300.0, waits_for="cus_1")
    await scene.place()
    assert keys(await store.claim("w", [UPDATED], 1, LEASE)) == ["updated"]
    assert await raw.count("entity_changes") == 0


async def test_an_event_claimed_before_the_commit_of_what_it_waits_for(store: Store, clock: Clock) -> None:
    """PostgreSQL: `created` is settled before the claim of `updated` and committed after it, so that sees nothing."""
    scene = Scene(store, ordered=False)
    await scene.arrive("created", 1, CREATED)
    await scene.arrive("updated", 2, UPDATED)
    [created] = await store.claim("w", [CREATED], 1, LEASE)
    transaction = store.transaction()
    if isinstance(transaction, PostgresTransaction):
        await transaction.tx.execute("SELECT 1")
        await transaction.settle([way_out(created, "complete")])
        clock.offset += 0.001
        [updated] = await store.claim("w", [UPDATED], 1, LEASE)
        await transaction._adapter.commit()
    else:  # on SQLite no claim comes in between: there is one writer
        [updated] = await store.claim("w", [UPDATED], 1, LEASE)
        assert await settle(store, created, "complete")
    assert await settle(store, updated, "wait", due_in=300.0, waits_for="cus_1")
    await scene.place()
    assert keys(await store.claim("w", [UPDATED], 1, LEASE)) == ["updated"]
