"""A dry run and the replay that follows it agree, for generated handlers and histories on both databases.

A history is a handler with random steps, the run it had before, and a remote with random faults. Then its replay is
tried in a dry run and really done. What the handler was told until the dry run stopped is what it is told in the
replay, and the stop is where the replay makes its first call.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from hookledger import Event, Op, Permanent, RetryPolicy
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.replay.dry_run import DryRunReport
from hookledger.operate.replay.preview import Verdict
from hookledger.operate.replay.replay import preview, replay
from hookledger.states import State
from hookledger.store.protocol import Store
from tests.asgi_client import Site
from tests.builders import Raw, delivered
from tests.path.conftest import SECRET, MakeSite
from tests.soak import amount

HISTORIES = 20
WORK = {"poll": "1ms", "retry": {"attempts": 1}, "circuit": {"failures": 1_000_000}}


class Ask(NamedTuple):
    kind: str
    """once, call, later or write."""
    key: int
    """Of an effect; several may ask for the same."""
    in_first: bool
    """Whether the run before reached it."""


class Plan(NamedTuple):
    asks: tuple[Ask, ...]
    fails: bool
    """The run before ended in the dead letter."""
    faults: frozenset[int]
    """Keys whose calls failed then, or whose outcome is unknown."""
    ending: str
    """Of the replay."""


def some_plan(chance: Random) -> Plan:
    kinds = ("once", "call", "later", "write")
    asks = [
        Ask(chance.choice(kinds), chance.randint(0, 3), chance.random() < 0.8) for _ in range(chance.randint(1, 7))
    ]
    if chance.random() < 0.5:  # SQLite allows no call after a write
        asks.sort(key=lambda ask: ask.kind != "call")
    return Plan(
        tuple(asks),
        chance.random() < 0.2,
        frozenset(n for n in range(4) if chance.random() < 0.15),
        chance.choice(("fine", "fine", "permanent", "forgets")),
    )


class World:
    """`told`: what the handler was told, by event and by phase; `calls`: which effects were really called."""

    def __init__(self, site: Site, plans: dict[str, Plan]) -> None:
        self.inbox = site.inbox
        self.plans = plans
        self.told: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        self.calls: list[str] = []
        self.phase = "first"
        source = self.inbox.source("stripe", provider="stripe", secrets=[SECRET])

        @self.inbox.effect(repeat="safe", retry=RetryPolicy(attempts=1), grace="1ms")
        async def remote(op: Op, size: int) -> str:
            event, _, n = op.effect_key.partition("/")
            if self.phase == "first" and int(n) in self.plans[event].faults:
                raise (Permanent("no") if int(n) % 2 else TimeoutError("no answer"))
            self.calls.append(op.effect_key)
            return f"{op.effect_key} {size}"

        self.remote = remote
        source.on("t")(self.handle)

    async def handle(self, event: Event) -> None:
        plan, told = self.plans[event.key], self.told.setdefault((event.key, self.phase), [])
        for ask in plan.asks:
            if self.phase == "first" and not ask.in_first:
                continue
            key = f"{event.key}/{ask.key}"
            match ask.kind:
                case "once":
                    told.append(("once", key, await event.once("mark", key)))
                case "call":
                    before = len(self.calls)
                    result = await event.call(self.remote, key, size=ask.key)
                    told.append(("call", key, result, key in self.calls[before:]))
                case "later":
                    await event.later(self.remote, f"{key}0", size=ask.key)
                    told.append(("later", f"{key}0"))
                case _:
                    await event.tx.execute(f"INSERT INTO done VALUES ('{event.key} in run {event.run}')")
                    told.append(("write",))
        if self.phase == "first" and plan.fails:
            raise Permanent("the handler is wrong")
        if self.phase != "first" and plan.ending == "permanent":
            raise Permanent("no such account")
        if self.phase != "first" and plan.ending == "forgets":
            event.once("mark", "forgotten")

    async def work(self, store: Store) -> None:
        for _ in range(4):
            await self.inbox.worker(store).run(drain=True)
            self.inbox.clock.offset += 100
            reclaimer = self.inbox.lease_reclaimer(store)
            await reclaimer.reclaim()
            await reclaimer.mark_unknown()

    async def dry_run(self, store: Store, key: str) -> DryRunReport | None:
        """None: the event cannot be replayed, or an operator must decide something first."""
        context = self.inbox.context(store)
        history = await search.find(context, key)
        if history.event.state not in (State.PROCESSED, State.FAILED):
            return None
        if preview(context, history).verdict is Verdict.NEEDS_A_DECISION:
            return None
        return await self.inbox.dry_run(store).run(history)

    async def replay(self, store: Store, key: str) -> None:
        context = self.inbox.context(store)
        await replay(context, by("ada", "why"), (await search.find(context, key)).event)

    def compare(self, key: str, report: DryRunReport, state: State) -> str:
        """Check that they agree; return how the dry run ended."""
        tried, real = self.told.get((key, "dry run"), []), self.told.get((key, "replay"), [])
        assert real[: len(tried)] == tried, "what the handler was told until there"
        asked = [(str(step.kind), step.key) for step in report.steps]
        if report.state is None:
            kind, called, _, really = real[len(tried)]
            assert (kind, called, really) == (*asked.pop(), True), "where its first call is made"
        else:
            assert len(real) == len(tried)
            assert report.state is state, report.reason
        assert [step[:2] for step in tried if step[0] != "write"] == asked
        return "stopped" if report.state is None else report.state.value


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(amount(1, 3, 30)))
async def test_a_dry_run_and_the_replay_agree(
    site_on: MakeSite, database_url: str, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    caplog.set_level("CRITICAL", "hookledger")
    chance = Random(seed)
    world = World(
        await site_on(database_url, {"work": WORK}), {f"evt_{n}": some_plan(chance) for n in range(HISTORIES)}
    )
    seen: Counter[str] = Counter()
    async with world.inbox.opened(handlers=8) as store:
        await store.know_sources(["stripe"])
        await store.record([delivered(key, type="t") for key in world.plans])
        await world.work(store)
        world.phase = "dry run"
        before = await Raw(store).count("done"), len(world.calls)
        reports = {key: report for key in world.plans if (report := await world.dry_run(store, key))}
        assert (await Raw(store).count("done"), len(world.calls)) == before, "nothing is left of them"
        world.phase = "replay"
        for key in reports:
            await world.replay(store, key)
        await world.work(store)
        for key, report in reports.items():
            row = (await search.find(world.inbox.context(store), key)).event
            try:
                seen[world.compare(key, report, row.state)] += 1
            except AssertionError as error:
                told = {phase: world.told.get((key, phase)) for phase in ("first", "dry run", "replay")}
                error.add_note(f"{world.plans[key]}\n{report}\n{told}\n{row}")
                raise
    assert sum(seen.values()) >= HISTORIES // 2, seen
    assert seen.keys() >= {"stopped", "processed", "failed"}, seen
