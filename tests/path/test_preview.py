"""Preview and what then really happens agree: generated histories, the real store and worker in this process.

A history is a handler that asks for effects of random kinds and policies, a remote with random faults, a worker that
may have died at it, and a person who resolves and repeats. After the replay each effect that the preview called
skipped was left alone, each that it said would happen happened exactly once more, and no other did.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hookledger import Event, Happened, Inbox, Op, Permanent, Refused, RetryPolicy, Seconds
from hookledger.clock import Clock
from hookledger.config import decode
from hookledger.errors import WrongState
from hookledger.ledger import Completion, Started
from hookledger.model import Claimed, Kind, Outcome
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.effects import resolve
from hookledger.operate.replay import replay
from hookledger.operate.replay.preview import InReplay, Preview, Verdict
from hookledger.states import CallOutcome, EffectKind, EffectState, State
from hookledger.store.history import History
from hookledger.store.protocol import Store
from tests.builders import Raw, delivered
from tests.ledger import intent
from tests.path.conftest import SECRET
from tests.soak import amount

HISTORIES, BATCH = amount(250, 500, 1_000), 25
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where the databases are: what is compared here does not depend on a disk."""
QUICK = RetryPolicy(attempts=2, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))
SLOW = RetryPolicy(attempts=3, initial_delay=Seconds("2h"), max_delay=Seconds("2h"))
POLICIES: dict[str, dict[str, Any]] = {
    "safe": {"repeat": "safe"},
    "keyed": {"repeat": "keyed", "window": "30d", "retry": SLOW},
    "forgetful": {"repeat": "keyed", "window": "25s"},
    "accept": {"repeat": "accept", "retry": SLOW},
    "never": {"repeat": "never"},
    "asked": {"repeat": "never"},
    "keyed_asked": {"repeat": "keyed", "window": "25s"},
}
TYPES = ("sure", "plain", "hasty", "hasty")
FAULTS = ("ok", "refused", "permanent", "lost", "late")
"""`lost` and `late` are time-outs: of a call that never arrived, and of one that did."""


class Ask(NamedTuple):
    """One effect that a handler asks for."""

    kind: str
    policy: str
    faults: tuple[str, ...]
    """Of its first calls."""
    repeat: bool
    """Whether it is to be done once more, if it is done."""
    answer: bool
    """What a person says who is asked whether it happened."""


class Plan(NamedTuple):
    """One history."""

    type: str
    asks: tuple[Ask, ...]
    stop: int | None
    """Where the handler fails for good, before the replay."""
    crash: tuple[int, bool] | None
    """At which call a worker died before, and whether that had reached the remote."""
    resolves: bool
    """Whether a person decides what is undecided."""


def some_ask(chance: Random) -> Ask:
    kind = chance.choice(("once", "call", "call", "later", "later"))
    faults = tuple(chance.choices(FAULTS, k=chance.choice((0, 0, 1, 2, 3))))
    policy = chance.choice((*POLICIES, "asked", "asked", "keyed_asked"))
    return Ask(kind, policy, faults, chance.random() < 0.3, chance.random() < 0.5)


def some_plan(chance: Random) -> Plan:
    asked = sorted((some_ask(chance) for _ in range(chance.randint(0, 5))), key=lambda ask: ask.kind != "call")
    return Plan(
        chance.choice(TYPES),
        tuple(asked),
        chance.choice((None, None, chance.randint(0, 4))),
        chance.choice((None, None, (chance.randint(0, 3), chance.random() < 0.5))),
        chance.random() < 0.6,
    )


class World:
    """An inbox whose handler does what each event's plan says, and a remote that counts."""

    def __init__(self, folder: str, plans_: Sequence[Plan]) -> None:
        work = {"poll": "1ms", "lease": "60s", "retry": {"attempts": 3, "initial_delay": "1ms", "max_delay": "1ms"}}
        config = decode({"work": {**work, "circuit": {"failures": 1_000_000}}})
        self.inbox = Inbox(f"sqlite:///{folder}/inbox.db", settings=config, clock=Clock())
        self.plans = {f"evt_{n}": plan for n, plan in enumerate(plans_)}
        self.done: Counter[str] = Counter()
        self.faults = {
            f"{event}/{n}": deque(ask.faults) for event, plan in self.plans.items() for n, ask in enumerate(plan.asks)
        }
        self.replaying = False
        source = self.inbox.source("stripe", provider="stripe", secrets=[SECRET])
        self.effects = {name: self._declare(name) for name in POLICIES}
        source.on("sure", replay="converges")(self.handle)
        source.on("plain")(self.handle)
        source.on("hasty", replay="converges", retry=RetryPolicy(attempts=1))(self.handle)

    def _declare(self, name: str) -> Any:
        policy = {"retry": QUICK, **POLICIES[name]}

        async def effect(op: Op, size: int) -> str:
            return self._remote(op.effect_key)

        declared = self.inbox.effect(name=name, grace="1ms", **policy)(effect)
        if "asked" in name:

            async def check(op: Op, size: int) -> Happened | bool | None:
                return Happened("found") if self.done[op.effect_key] else False

            declared.check(check)
        return declared

    def _remote(self, key: str) -> str:
        fault = self.faults[key].popleft() if self.faults[key] and not self.replaying else "ok"
        if fault in ("ok", "late"):
            self.done[key] += 1
        if fault == "refused":
            raise Refused("busy")
        if fault == "permanent":
            raise Permanent("no such account")
        if fault != "ok":
            raise TimeoutError("no answer")
        return "done"

    async def handle(self, event: Event) -> None:
        plan = self.plans[event.key]
        for n, ask in enumerate(plan.asks):
            if n == plan.stop and not self.replaying:
                raise Permanent("the handler is wrong")
            key = f"{event.key}/{n}"
            if ask.kind == "once":
                if await event.once("mark", key):
                    await event.tx.execute("INSERT INTO marks VALUES (?)", key)
            elif ask.kind == "call":
                await event.call(self.effects[ask.policy], key, size=n)
            else:
                await event.later(self.effects[ask.policy], key, size=n)

    # ── what happens to it ──

    async def arrive(self, store: Store) -> None:
        await store.migrate()
        await Raw(store).run("CREATE TABLE marks (key TEXT)")
        await store.know_sources(["stripe"])
        await store.record([delivered(key, type=plan.type) for key, plan in self.plans.items()])

    async def die(self, store: Store) -> None:
        """Workers that were killed: what they had called came back, but for the last one, of which nobody knows."""
        for kind in set(TYPES):
            for owner in await store.claim("the dead", [Kind("stripe", kind)], 1000, 60.0):
                crash = self.plans[owner.key].crash
                if crash is None:
                    await store.settle([Outcome(owner.id, owner.claim, "release")])
                    continue
                for n, ask in enumerate(self.plans[owner.key].asks[: crash[0] + 1]):
                    if ask.kind == "call":
                        await self._call(store, owner, n, ask, crash)
        self.inbox.clock.offset += 100
        lease_reclaimer = self.inbox.lease_reclaimer(store)
        await lease_reclaimer.reclaim()
        await lease_reclaimer.mark_unknown()

    async def _call(self, store: Store, owner: Claimed, n: int, ask: Ask, crash: tuple[int, bool]) -> None:
        effect, key = self.effects[ask.policy], f"{owner.key}/{n}"
        kept, digest, _ = effect.keep((), {"size": n})
        asked = intent(owner, key, ask.policy, arguments=kept, arguments_digest=digest, repeat=effect.policy.repeat)
        [started] = await store.ledger.start([asked], "the dead")
        assert isinstance(started, Started)
        if n != crash[0]:
            self.done[key] += 1
            await store.ledger.finish([Completion(started.identity, 1, CallOutcome.DONE, b'"done"')])
        elif crash[1]:
            self.done[key] += 1

    async def work(self, store: Store, rounds: int) -> None:
        """Run a worker, and let time pass, until everything has come to rest, or for so many rounds."""
        for _ in range(rounds):
            await self.inbox.worker(store).run(drain=True)
            self.inbox.clock.offset += 7300
            if not await store.waiting() and not await store.ledger.due(list(POLICIES)):
                return

    async def counts(self, store: Store) -> Counter[str]:
        marks = await Raw(store).run("SELECT key, count(*) FROM marks GROUP BY key")
        return self.done + Counter(dict(marks))

    def ask(self, key: str) -> Ask:
        event, _, n = key.partition("/")
        return self.plans[event].asks[int(n)]

    # ── the person ──

    async def look(self, store: Store) -> dict[str, History]:
        return {key: await search.find(self.inbox.context(store), key) for key in self.plans}

    async def decide(self, store: Store) -> None:
        """Whatever needs a decision is refused, and nothing of it done; then some of it is decided."""
        context = self.inbox.context(store)
        for key, history in (await self.look(store)).items():
            preview = replay.preview(context, history)
            if preview.verdict is not Verdict.NEEDS_A_DECISION:
                continue
            with pytest.raises(WrongState):
                await replay.replay(context, by("ada", "finance asked"), history.event)
            again = await search.find(context, key)
            assert (again.event, again.actions) == (history.event, history.actions)
            known = {told.effect.identity.hex(): told.effect for told in history.effects}
            for forecast in preview.effects if self.plans[key].resolves else ():
                if forecast.in_replay is InReplay.UNDECIDED and forecast.state is EffectState.UNKNOWN:
                    ask = self.ask(forecast.key)
                    found: Any = "happened" if ask.answer else "did_not_happen"
                    result = "found" if ask.answer else None
                    await resolve(context, by("ada", "looked"), known[forecast.identity], found, result)

    async def replay(self, store: Store) -> dict[str, Preview]:
        """What was foreseen for each event that could be replayed, all replayed."""
        context, foreseen = self.inbox.context(store), {}
        for key, history in (await self.look(store)).items():
            done = [f for f in replay.preview(context, history).effects if f.in_replay is InReplay.SKIPPED]
            repeat = [f"{f.name}:{f.key}" for f in done if self.ask(f.key).repeat]
            preview = replay.preview(context, history, repeat)
            if preview.verdict is not Verdict.NEEDS_A_DECISION:
                await replay.replay(context, by("ada", "finance asked"), history.event, repeat, shown=preview)
                foreseen[key] = preview
        return foreseen

    # ── what came of it ──

    def compare(self, key: str, preview: Preview, after: History, before: Counter[str], now: Counter[str]) -> None:
        event = after.event
        assert (event.state, event.run) == (State.PROCESSED, preview.run), event.reason
        left = {f"{key}/{n}" for n in range(len(self.plans[key].asks))}
        states = {told.effect.key: told.effect for told in after.effects if not told.effect.superseded}
        for forecast in preview.effects:
            left.discard(forecast.key)
            more = now[forecast.key] - before[forecast.key]
            match forecast.in_replay:
                case InReplay.SKIPPED | InReplay.STAYS:
                    assert more == 0, forecast
                    assert states[forecast.key].state is forecast.state
                case InReplay.HAPPENS | InReplay.REPEATED:
                    assert more == 1, forecast
                    generation = forecast.generation + (forecast.in_replay is InReplay.REPEATED)
                    if forecast.kind is not EffectKind.ONCE:
                        assert states[forecast.key].generation == generation
                case InReplay.CHECKED:
                    assert more == (before[forecast.key] == 0), forecast
                case InReplay.OUTBOX:
                    assert more == 1 if forecast.state is EffectState.PLANNED else more <= 1, forecast
                case InReplay.UNDECIDED:
                    pytest.fail("an undecided effect, and yet a replay")
        for unasked in left:  # what no run had asked for was not foreseen, and said so
            assert now[unasked] - before[unasked] == 1
        if preview.verdict is Verdict.SAFE:
            assert all(now[f.key] == before[f.key] for f in preview.effects)
            assert (preview.converges, left) == (True, set())


async def live(plans_: Sequence[Plan], rounds: int, earlier: int) -> Counter[str]:
    """How often each fate was foreseen, and came. `earlier`: replays before, with the faults of the first run."""
    with tempfile.TemporaryDirectory(prefix="hookledger-preview-", dir=MEMORY) as folder:
        world = World(folder, plans_)
        store = world.inbox.store()
        await store.open(handlers=16)
        try:
            await world.arrive(store)
            await world.die(store)
            await world.work(store, rounds)
            await world.decide(store)
            if rounds > 1:
                await world.work(store, rounds)
            for _ in range(earlier):
                await world.replay(store)
                await world.work(store, rounds)
                await world.decide(store)
            runs = {key: history.event.run for key, history in (await world.look(store)).items()}
            before, world.replaying = await world.counts(store), True
            foreseen = await world.replay(store)
            await world.work(store, 12)
            now, after = await world.counts(store), await world.look(store)
            for key, preview in foreseen.items():
                try:
                    world.compare(key, preview, after[key], before, now)
                except AssertionError as error:
                    error.add_note(f"{world.plans[key]}\n{rounds=} {earlier=}\n{preview}")
                    raise
            assert all(after[key].event.run == runs[key] for key in set(after) - set(foreseen))
            fates = Counter(f.in_replay.value for preview in foreseen.values() for f in preview.effects)
            return fates + Counter(preview.verdict.value for preview in foreseen.values())
        finally:
            await store.close()


# proves R45
@pytest.mark.soak
def test_preview_and_what_happens_agree(caplog: pytest.LogCaptureFixture) -> None:
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
    @given(st.randoms(use_true_random=True), st.sampled_from([1, 12]), st.integers(0, 2))
    def histories(chance: Random, rounds: int, earlier: int) -> None:
        seen.update(asyncio.run(live([some_plan(chance) for _ in range(BATCH)], rounds, earlier)))
        seen["histories"] += BATCH

    histories()
    assert seen["histories"] >= HISTORIES
    for fate in InReplay:
        assert seen[fate.value] or fate is InReplay.UNDECIDED, f"{fate} was never foreseen"
    assert seen[Verdict.SAFE.value] > 10
