"""Two handlers fetch the same object: every order of their steps, with tickets and without.

A change of the object sends an event, and its handler draws a ticket, fetches and writes. Each step of A (the event
of the first change) and of B (that of the second) is let through alone, in every order that is possible: the second
change may come at any moment of A, and comes before B.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Literal

from hookledger import Event
from hookledger.states import State
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite
from tests.path.remote import Running

A = ("A draws", "A fetches", "A writes")
B = ("changes", "B draws", "B fetches", "B writes")
FIRST, LAST = 1, 2
"""The object's versions, after each change."""
Way = Literal["ticket", "naive", "drawn after"]


def orders() -> Iterator[tuple[str, ...]]:
    """Every way to merge the steps of A with those of B."""
    length = len(A) + len(B)
    for places in combinations(range(length), len(A)):
        mine, other = iter(A), iter(B)
        yield tuple(next(mine if place in places else other) for place in range(length))


class Steps:
    """Handlers stop before each step. `let` lets one of them take it, and returns when it is taken."""

    def __init__(self) -> None:
        self._here: dict[str, asyncio.Event] = {}
        self._may: dict[str, asyncio.Event] = {}

    def _of(self, known: dict[str, asyncio.Event], name: str) -> asyncio.Event:
        return known.setdefault(name, asyncio.Event())

    async def stop(self, name: str) -> None:
        self._of(self._here, name).set()
        await self._of(self._may, name).wait()

    async def reached(self, name: str) -> None:
        await asyncio.wait_for(self._of(self._here, name).wait(), 60)

    def let(self, name: str) -> None:
        self._of(self._may, name).set()


class Shop:
    """One inbox whose handlers do as a test says, and the provider's objects: one for each order of steps."""

    def __init__(self, site: Site, way: Way) -> None:
        self.site = site
        self.way = way
        self.steps = Steps()
        self.provider: dict[str, int] = {}
        self.declare()

    def declare(self) -> None:
        stripe = self.site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

        @stripe.current
        async def ask(event: Any) -> int:
            if self.way != "drawn after":
                await self.steps.stop(f"{event.key} fetches")
            return self.provider[event.object_id]

        @stripe.on("invoice.*")
        async def handle(event: Event) -> None:
            state, ticket = await self.fetched(event)
            await self.steps.stop(f"{event.key} writes")
            newer = "" if self.way == "naive" else f"AND ticket < {ticket}"
            await event.tx.execute(
                f"UPDATE projection SET state = {state}, ticket = {ticket} WHERE entity = '{event.object_id}' {newer}"
            )

    async def fetched(self, event: Event) -> tuple[int, int]:
        """The state and its ticket; the two draws in the wrong order are one that is made after the fetch."""
        if self.way == "drawn after":
            await self.steps.stop(f"{event.key} draws")  # the first step of all: its name is the test's
            state = await event.current()
            await self.steps.stop(f"{event.key} fetches")
            await event.current()
            return state, event.ticket
        await self.steps.stop(f"{event.key} draws")
        return await event.current(), event.ticket

    async def run(self, number: int, order: tuple[str, ...]) -> int:
        """Take these steps with one object; returns the version that is written in the end."""
        entity = f"in_{number}"
        self.provider[entity] = FIRST
        await self.deliver(entity, "A")
        following = {**dict(zip(A, [*A[1:], ""], strict=True)), **dict(zip(B[1:], [*B[2:], ""], strict=True))}
        for step in order:
            if step == "changes":
                self.provider[entity] = LAST
                await self.deliver(entity, "B")
                continue
            self.steps.let(self.name(entity, step))
            if following[step]:
                await self.steps.reached(self.name(entity, following[step]))
            else:
                await self.processed(f"{entity}_{step[0]}")
        return await self.written(entity)

    def name(self, entity: str, step: str) -> str:
        return f"{entity}_{step[0]}{step[1:]}"

    async def deliver(self, entity: str, handler: str) -> None:
        await self.site.deliver(stripe_event(f"{entity}_{handler}", data={"object": {"id": entity}}))
        await self.steps.reached(self.name(entity, f"{handler} draws"))

    async def processed(self, ident: str) -> None:
        async with asyncio.timeout(60):
            while await self.site.state(ident) is not State.PROCESSED:
                await asyncio.sleep(0.005)

    async def written(self, entity: str) -> int:
        async with self.site.inbox.opened(handlers=1, check=False) as store:
            tx = store.transaction()
            found: int = await tx.tx.fetchval(f"SELECT state FROM projection WHERE entity = '{entity}'")
            await tx.rollback()
            return found


async def in_every_order(site_on: MakeSite, url: str, way: Way) -> dict[tuple[str, ...], int]:
    site = await site_on(url)
    every = list(orders())
    assert len(every) == 35
    async with site.inbox.opened(handlers=1) as store:
        tx = store.transaction()
        await tx.tx.execute("CREATE TABLE projection (entity TEXT PRIMARY KEY, state INTEGER, ticket INTEGER)")
        for number in range(len(every)):
            await tx.tx.execute(f"INSERT INTO projection VALUES ('in_{number}', 0, 0)")
        await tx.commit([])
    shop = Shop(site, way)
    async with Running(site):
        return {order: await shop.run(number, order) for number, order in enumerate(every)}


async def test_with_tickets_no_order_loses_the_last_change(site_on: MakeSite, database_url: str) -> None:
    found = await in_every_order(site_on, database_url, "ticket")
    assert {order: state for order, state in found.items() if state != LAST} == {}


async def test_without_tickets_an_order_loses_it(site_on: MakeSite, sqlite_url: str) -> None:
    """A fetches, the object changes, B fetches and writes, A writes: fetching is not enough."""
    found = await in_every_order(site_on, sqlite_url, "naive")
    lost = {order for order, state in found.items() if state != LAST}
    assert ("A draws", "A fetches", "changes", "B draws", "B fetches", "B writes", "A writes") in lost


async def test_a_ticket_that_is_drawn_after_the_fetch_loses_it(site_on: MakeSite, sqlite_url: str) -> None:
    """Where "draws" is the fetch and "fetches" is the draw: A reads the old state and has the higher ticket."""
    found = await in_every_order(site_on, sqlite_url, "drawn after")
    lost = {order for order, state in found.items() if state != LAST}
    assert ("A draws", "changes", "B draws", "B fetches", "A fetches", "B writes", "A writes") in lost


def test_three_changes_in_every_order() -> None:
    """The rule itself, in memory: every order of three handlers. The highest ticket has the last change."""
    lost = {True: 0, False: 0}
    for order in _merged((("draw", 0), ("fetch", 0), ("write", 0)), *(
        (("change", n), ("draw", n), ("fetch", n), ("write", n)) for n in (1, 2)
    )):  # fmt: skip
        if order.index(("change", 2)) < order.index(("change", 1)):
            continue
        for guarded in (True, False):
            lost[guarded] += _run(order, guarded=guarded) != 2
    assert lost[True] == 0
    assert lost[False] > 0


Step = tuple[str, int]


def _merged(*ways: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    if not any(ways):
        yield ()
    for place, way in enumerate(ways):
        if way:
            for rest in _merged(*ways[:place], way[1:], *ways[place + 1 :]):
                yield (way[0], *rest)


def _run(order: tuple[Step, ...], *, guarded: bool) -> int:
    provider, tickets, written = 0, 0, (0, -1)
    ticket: dict[int, int] = {}
    seen: dict[int, int] = {}
    for step, handler in order:
        match step:
            case "change":
                provider = handler
            case "draw":
                tickets += 1
                ticket[handler] = tickets
            case "fetch":
                seen[handler] = provider
            case "write" if not guarded or ticket[handler] > written[0]:
                written = ticket[handler], seen[handler]
    return written[1]
