"""A rehearsal and the replay that follows it agree: generated handlers and histories, on a real PostgreSQL.

A history is a handler with random steps, the run it had before, and a remote with random faults. Then its replay is
rehearsed and really done. What the handler was told until the rehearsal stopped is what it is told in the replay, the
stop is where the replay's first call is made, and the rows it wrote until there are the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hookledger import Event, Inbox, Op, Permanent, RetryPolicy
from hookledger.clock import Clock
from hookledger.config import decode
from hookledger.identities import new_id
from hookledger.rehearsals import Ended, Rehearsal, StepFate
from hookledger.states import State
from hookledger.store.protocol import Store
from tests.builders import Raw, delivered
from tests.path.conftest import SECRET
from tests.services.postgres import Databases

HISTORIES, BATCH = 60, 20


class Ask(NamedTuple):
    kind: str
    """once, call, later or write."""
    key: int
    """Of an effect; several may ask for the same."""
    in_first: bool
    """Whether the run before reached it."""
    rows: int


class Plan(NamedTuple):
    asks: tuple[Ask, ...]
    fails: bool
    """The run before ended in the dead letter."""
    faults: frozenset[int]
    """Keys whose calls failed then, or whose outcome nobody knows."""
    ending: str
    """Of the replay."""
    repeat: bool


def some_plan(chance: Random) -> Plan:
    kinds = ("once", "call", "later", "write")
    asks = tuple(
        Ask(chance.choice(kinds), chance.randint(0, 3), chance.random() < 0.8, chance.randint(1, 3))
        for _ in range(chance.randint(1, 7))
    )
    return Plan(
        asks,
        chance.random() < 0.2,
        frozenset(n for n in range(4) if chance.random() < 0.15),
        chance.choice(("fine", "fine", "permanent", "forgets")),
        chance.random() < 0.3,
    )


class World:
    """`told`: what the handler was told, by event and by pass; `calls`: which effects were really called."""

    def __init__(self, url: str, plans: Sequence[Plan]) -> None:
        work = {"poll": "1ms", "retry": {"attempts": 1}, "circuit": {"failures": 1_000_000}}
        config = decode({"work": work})
        self.inbox = Inbox(url, settings=config, clock=Clock())
        self.plans = {f"evt_{n}": plan for n, plan in enumerate(plans)}
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
        source.on("t", rehearsable=True)(self.handle)

    async def handle(self, event: Event) -> None:
        plan = self.plans[event.key]
        told = self.told.setdefault((event.key, "rehearsal" if event.rehearsal else self.phase), [])
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
                    insert = "INSERT INTO written SELECT $1, $2 FROM generate_series(1, $3)"
                    await event.tx.execute(insert, event.key, event.run, ask.rows)
                    told.append(("write", ask.rows))
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
            rescuer = self.inbox.rescuer(store)
            await rescuer.rescue()
            await rescuer.doubt()

    async def rehearse(self, store: Store, key: str) -> tuple[Rehearsal, list[str]] | None:
        insight, actions = self.inbox.insight(store), self.inbox.actions(store, "ada")
        history = await insight.event(key)
        if history.event.state not in (State.PROCESSED, State.FAILED):
            return None
        done = [known.effect for known in history.effects if known.effect.state == "done"]
        repeat = [f"{e.name}:{e.key}" for e in done[:1]] if self.plans[key].repeat else []
        asked = asyncio.create_task(actions.rehearse(history.event, "why", repeat))
        rehearser = self.inbox.worker(store).rehearser
        while not await rehearser.look():
            await asyncio.sleep(0.01)
        return await asked, repeat

    async def replay(self, store: Store, key: str, repeat: list[str]) -> bool:
        insight, actions = self.inbox.insight(store), self.inbox.actions(store, "ada")
        history = await insight.event(key)
        preview = insight.preview(history, insight.repeated(history, repeat))
        if preview.verdict == "needs a decision":
            return False
        await actions.replay(history.event, "why", repeat)
        return True

    def compare(self, key: str, found: Rehearsal, state: State) -> str:
        assert found.result is not None
        rehearsed, real = self.told.get((key, "rehearsal"), []), self.told.get((key, "replay"), [])
        assert real[: len(rehearsed)] == rehearsed, "what the handler was told until there"
        shown = [step for step in found.result.steps if step.kind == "call"]
        if found.ended is Ended.STOPPED:
            stop = found.result.steps[-1]
            assert stop.fate is StepFate.CALLED
            kind, called, _, really = real[len(rehearsed)]
            assert (kind, called, really) == ("call", stop.key, True), "where its first call is made"
            shown.pop()
        else:
            assert len(real) == len(rehearsed)
            ends = {State.PROCESSED: Ended.PROCESSED, State.FAILED: Ended.WOULD_FAIL}
            assert found.ended is ends[state], found.words
        assert {step.fate for step in shown} <= {StepFate.DONE}
        assert [t[:2] for t in rehearsed if t[0] in ("once", "later", "call")] == [
            (step.kind.value, step.key) for step in found.result.steps[: -1 if found.ended is Ended.STOPPED else None]
        ]
        assert found.result.writes is not None
        written = sum(write.inserted for write in found.result.writes)
        assert written == sum(t[1] for t in rehearsed if t[0] == "write")
        return found.ended.value


async def live(url: str, plans: Sequence[Plan]) -> Counter[str]:
    """How often each ending was rehearsed, and came."""
    world, seen = World(url, plans), Counter[str]()
    store = world.inbox.store()
    await store.open(handlers=8)
    try:
        await store.migrate()
        await Raw(store).run("CREATE TABLE public.written (event text, run integer)")
        await store.know_sources(["stripe"])
        await store.record([delivered(key, type="t") for key in world.plans])
        await world.work(store)
        world.phase = "replay"
        before = await Raw(store).count("written"), len(world.calls)
        rehearsed = {key: found for key in world.plans if (found := await world.rehearse(store, key))}
        assert (await Raw(store).count("written"), len(world.calls)) == before, "nothing is left of them"
        replayed = [key for key, (_, repeat) in rehearsed.items() if await world.replay(store, key, repeat)]
        await world.work(store)
        for key in replayed:
            row = (await world.inbox.insight(store).event(key)).event
            try:
                seen[world.compare(key, rehearsed[key][0], row.state)] += 1
            except AssertionError as error:
                told = {pass_: world.told.get((key, pass_)) for pass_ in ("first", "rehearsal", "replay")}
                error.add_note(f"{world.plans[key]}\n{rehearsed[key]}\n{told}\n{row}")
                raise
    finally:
        await store.close()
    return seen


# proves R45
def test_a_rehearsal_and_what_happens_agree(postgres: Databases, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "hookledger")
    seen: Counter[str] = Counter()

    # Not shrunk: what fails is one history of a batch, and is named.
    @settings(
        max_examples=HISTORIES // BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=True))
    def histories(chance: Random) -> None:
        name = f"hookledger_agrees_{new_id().hex}"
        try:
            plans = [some_plan(chance) for _ in range(BATCH)]
            seen.update(asyncio.run(live(postgres.create_database(name), plans)))
        finally:
            postgres.drop_database(name)

    histories()
    assert sum(seen.values()) >= HISTORIES // 2, seen
    assert min(seen[ended] for ended in ("stopped", "processed", "would_fail")) >= 5, seen
