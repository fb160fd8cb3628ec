"""A long random life of an inbox, by legal means only: deliveries of every outcome, work with every ending, effects
with every fate, operators who do anything that they are allowed to.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from hookledger.clock import Clock, Seconds
from hookledger.errors import ClaimLost, HandlerCommitted, WrongState
from hookledger.ids import key_identity, new_id, stage_id
from hookledger.ledger import Completion, Effect, Intent, Started
from hookledger.model import Claimed, Item, Kind
from hookledger.operate.retention.prune import Pruner
from hookledger.operate.retention.settings import Limits, RetentionSettings
from hookledger.states import BY_NAME, CallOutcome, EffectKind, EffectState, Repeat, State
from hookledger.store.history import EventRow
from hookledger.store.ops.filters import EVERYTHING, Filter
from hookledger.store.ops.job import BulkAction, Cause, Decided, NewJob, Objection, Resolving
from hookledger.store.ops.reviews import ANSWERS
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import LEASE, SOURCE, WAYS, WORKER, arrival, event, history, item, way_out
from tests.guards import request
from tests.ledger import LATER, intent

TYPES = ("t0", "t1", "t2")
STAGES = ("s0", "s1")
KINDS = [Kind(source, name) for source in (SOURCE, *(f"{SOURCE}/{stage}" for stage in STAGES)) for name in TYPES]
EFFECTS = ("e0", "e1")


class Life:
    """`did`: how often each kind of step changed something."""

    def __init__(self, store: Store, clock: Clock, seed: int) -> None:
        self.store, self.clock = store, clock
        self.random = random.Random(seed)
        self.guards = random.Random(seed)  # separate: what guards are asked changes nothing else
        self.keys = 0
        self.held: list[Claimed] = []
        self.known: list[UUID] = []
        self.effects: list[bytes] = []
        self.items: dict[tuple[UUID, int], Item] = {}
        self.did: Counter[str] = Counter()

    async def live(self, steps: int) -> None:
        ways: list[Callable[[], Awaitable[object]]] = [
            *[self.deliver] * 4,
            *[self.take] * 4,
            *[self.settle] * 5,
            *[self.commit] * 4,
            *[self.call] * 4,
            *[self.come_back] * 8,
            *[self.outbox] * 3,
            *[self.handle_effect] * 6,
            *[self.operate] * 4,
            *[self.bulk] * 2,
            *[self.add_stage] * 2,
            self.pause,
            *[self.resolve] * 5,
            *[self.admit] * 2,
            *[self.time_passes] * 2,
            *[self.place] * 4,
            self.reclaim,
            self.nobody_handles,
            self.import_keys,
            self.prune,
            *[self.erase] * 6,
        ]
        for _ in range(steps):
            await self.random.choice(ways)()

    # ── intake ──

    def _item(self) -> Item:
        chance = self.random.random()
        number = self.random.randint(0, self.keys) if chance < 0.5 else self._next()
        body = b"other" if chance < 0.12 else b"body %d" % number
        if chance > 0.85:
            body = b"body %d" % self.random.randint(0, self.keys)  # known content under a new id
        fate = self.random.choice([{}] * 9 + [{"invalid": "unreadable"}, {"skip": "observed"}, {"review": "old"}])
        unsigned = number % 2 == 0
        rule: dict[str, Any] = {}
        if number % 4 == 1:  # by its number, because a source's rule is the same for each delivery of an event
            rule = {"entity": f"entity {number // 4 % 4}", "ordered": number % 8 == 1, "hold": number % 16 == 1}
            rule["order_at"] = 1e9 + self.random.random() * 1e6 if number % 3 else None
        return item(f"evt_{number}", body, type=TYPES[number % 3], unsigned=unsigned, **fate, **rule)

    def _next(self) -> int:
        self.keys += 1
        return self.keys

    async def deliver(self) -> None:
        new = [arrival(*(self._item() for _ in range(self.random.choice([1, 1, 1, 2, 3])))) for _ in range(2)]
        first = await self.store.record_new(new) if self.random.random() < 0.5 else [None, None]
        rest = [sent for sent, done in zip(new, first, strict=True) if done is None]
        recorded = [*filter(None, first), *await self.store.record(rest)]
        order = [sent for sent, done in zip(new, first, strict=True) if done is not None] + rest
        for sent, verdicts in zip(order, recorded, strict=True):
            for place, verdict in enumerate(verdicts):
                self.did[verdict.outcome] += 1
                self.items[sent.id, place] = sent.items[place]
                self.known.append(verdict.event_id)

    async def import_keys(self) -> None:
        numbers = [self._next() for _ in range(2)] + [self.random.randint(0, self.keys)]
        found = [key_identity(SOURCE, f"evt_{n}".encode()) for n in numbers]
        self.did["imported"] += (await self.store.imported_keys.import_keys(SOURCE, found, "ada", "moved")).new

    async def admit(self) -> None:
        odd = await self.store.quarantine.quarantined(limit=20)
        if odd:
            one = self.random.choice(odd)
            with suppress(WrongState):
                known = self.items[one.request_id, one.item]
                self.known.append(await self.store.quarantine.accept(one.request_id, one.item, known, "ada", "ours"))
                self.did["admit"] += 1

    # ── work ──

    async def take(self) -> None:
        found = await self.store.claim(WORKER, KINDS, self.random.randint(1, 3), LEASE)
        found += await self.store.claim_alone(WORKER, KINDS, LEASE) if self.random.random() < 0.3 else []
        self.held += found

    def _one_held(self) -> Claimed | None:
        """Of those claimed lately, whether they still are or not."""
        self.held = self.held[-6:]
        return self.random.choice(self.held) if self.held else None

    async def settle(self) -> None:
        if owner := self._one_held():
            way = self.random.choice(WAYS)
            waits_for = (
                f"entity {self.random.randint(0, 4)}" if way == "wait" and self.random.random() < 0.5 else None
            )
            stages = self._stages(owner) if way == "complete" else ()
            settled = await self.store.settle([way_out(owner, way, waits_for=waits_for, stages=stages)]) == {owner.id}
            self.did[way] += settled
            self._begun(owner, stages if settled else ())
            self.did["wait for an entity"] += settled and waits_for is not None

    async def commit(self) -> None:
        """A handler with effects in its transaction, which it ends as handlers do, or not at all."""
        if not (owner := self._one_held()):
            return
        transaction = self.store.transaction()
        for kind in self.random.sample([EffectKind.ONCE, LATER, LATER], 2):
            asked = self._intent(owner, kind)
            if kind is EffectKind.ONCE:
                await transaction.once(asked)
            else:
                await transaction.plan(asked)
            self.effects.append(asked.identity)
        for version in self.guards.sample(range(30), self.guards.choice([0, 1, 2])):
            asked_guard = request(owner, version, f"sub_{version % 3}", rank=self.guards.randint(0, 2))
            self.did["applied" if (await transaction.newer(asked_guard)).applied else "stale"] += 1
        if self.random.random() < 0.2:
            await transaction.rollback()
            return
        with suppress(ClaimLost, HandlerCommitted):
            stages = self._stages(owner)
            await transaction.commit([way_out(owner, "complete", stages=stages)])
            self.did["commit"] += 1
            self._begun(owner, stages)

    def _stages(self, owner: Claimed) -> tuple[str, ...]:
        """What the application of its worker has for it: not every one is as new."""
        many = self.random.choice([0, 1, 2, 2])
        return () if owner.stage is not None else tuple(self.random.sample(STAGES, many))

    def _begun(self, owner: Claimed, stages: tuple[str, ...]) -> None:
        self.known += [stage_id(owner.id, stage) for stage in stages]
        self.did["stages"] += len(stages)

    async def place(self) -> None:
        """A worker decides which events of ordered entities are first."""
        self.did["place"] += 1
        await self.store.entities.place_all()

    async def reclaim(self) -> None:
        self.clock.offset += LEASE + 1
        due_in = self.random.choice([None, 0.0, 5.0])
        expired = await self.store.expired(10)
        self.did["reclaim"] += await self.store.reclaim([Reclaim(e.id, e.claim, due_in, "died") for e in expired])

    async def nobody_handles(self) -> None:
        kind = self.random.choice(KINDS)
        self.did["unhandled"] += await self.store.skip_unhandled(kind, 1.0, 1)

    async def time_passes(self) -> None:
        self.clock.offset += self.random.choice([1.0, 10.0, LEASE + 1])

    # ── effects ──

    def _intent(self, owner: Claimed, kind: EffectKind) -> Intent:
        name, key = self.random.choice(EFFECTS), f"{kind}-{self.random.randint(0, 4)}"
        once = kind is EffectKind.ONCE
        repeat = None if once else self.random.choice(list(Repeat))
        if not once and self.random.random() < 0.3:
            key = f"either-{self.random.randint(0, 3)}"  # called by one handler, left to the outbox by the next
        return intent(owner, key, name=f"once-{name}" if once else name, kind=kind, repeat=repeat)

    async def call(self) -> None:
        if owner := self._one_held():
            asked = self._intent(owner, EffectKind.CALL)
            [answer] = await self.store.ledger.start([asked], WORKER)
            self.did["start"] += isinstance(answer, Started)
            self.effects.append(asked.identity)

    async def outbox(self) -> None:
        self.did["outbox"] += len(await self.store.ledger.claim(WORKER, [(name, 2, LEASE) for name in EFFECTS]))

    async def _effect(self) -> Effect | None:
        """One of those that were asked for lately, if it was ever committed."""
        if not self.effects:
            return None
        return await self.store.ledger.get(self.random.choice(self.effects[-8:]))

    async def come_back(self) -> None:
        effect = await self._effect()
        if effect is not None and effect.number:
            number = self.random.randint(max(1, effect.number - 2), effect.number)
            outcome, due_in = self.random.choice(list(CallOutcome)), self.random.choice([None, 0.0])
            await self.store.ledger.finish([Completion(effect.identity, number, outcome, b"1", "e", due_in)])
            self.did[f"call {outcome}"] += 1

    async def handle_effect(self) -> None:
        effect = await self._effect()
        if effect is None:
            return
        ledger, due_in = self.store.ledger, self.random.choice([None, 0.0, 5.0])
        happened = self.random.random() < 0.3
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "restart": lambda: ledger.restart(effect, WORKER, LEASE),
            "mark_unknown": lambda: ledger.mark_unknown(effect, due_in),
            "conclude": lambda: ledger.conclude(effect, happened, b"1", due_in),
            "put_off": lambda: ledger.put_off(effect, due_in, "later"),
        }
        name = self.random.choice(list(ways))
        self.did[name] += bool(await ways[name]())

    async def resolve(self) -> None:
        effect = await self._effect()
        if effect is not None and effect.kind is not EffectKind.ONCE:
            decision = self.random.choice(["happened", "did_not_happen", "cancel"])
            with suppress(WrongState):
                await self.store.ledger.resolve(effect, decision, None, "ada", "because")
                self.did[decision] += 1

    # ── operators ──

    async def operate(self) -> None:
        row = await (self._in_review() if self.random.random() < 0.3 else self._event())
        if row is None:
            return
        names = ["retry", "replay", "replay", "discard", "alert", *ANSWERS]
        name = self.random.choice([*ANSWERS] if row.state is State.NEEDS_REVIEW else names)
        with suppress(WrongState):
            if name == "alert":
                await self.store.alerts.alert(row.id, "look")
            elif name == "replay":
                over = (EffectState.DONE, EffectState.CANCELLED)
                entries = [e.effect for e in (await history(self.store, row.id)).effects]
                repeat = [e for e in entries if e.state in over and self.random.random() < 0.5]
                await self.store.replay(row.id, row.state, "ada", "again", repeat=repeat)
                self.did["repeat"] += len(repeat)
            elif name in ANSWERS:
                await getattr(self.store.reviews, name)(row.id, row.state, "ada", "answered", seen=row.claim)
            elif name == "retry":
                await self.store.retry(row.id, row.state, "ada", "again")
            else:
                await self.store.discard(row.id, row.state, "ada", "enough")
            self.did[name] += 1

    async def add_stage(self) -> None:
        """A stage for an event that was processed before there was one."""
        row = await self._event()
        if row is not None:
            with suppress(WrongState):
                stage = self.random.choice(STAGES)
                self.known.append(await self.store.stages.add(row.id, row.claim, stage, "ada", "new"))
                self.did["add stage"] += 1

    async def bulk(self) -> None:
        """A job on one type, and some steps of whichever is open: perhaps by two runners, perhaps never all of it."""
        name: BulkAction = self.random.choice(["retry", "replay", "discard"])
        where = Filter(type=self.random.choice(TYPES), states=(self.random.choice(list(State)),))
        with suppress(WrongState):
            about = NewJob(id=new_id(), name=name, where=where, actor="ada", reason="all", per_second=0)
            await self.store.jobs.plan(about, None)
        for _ in range(self.random.randint(0, 2)):
            taken = await self.store.jobs.take(WORKER, LEASE)
            if taken is not None and (items := await self.store.jobs.open_items(taken, 3)):
                allowed = BY_NAME[name].sources
                against = {i.event_id: Objection(Cause.STATE, "no") for i in items if i.state not in allowed}
                after = await self.store.jobs.step(taken, items, against, LEASE)
                self.did["bulk"] += after is not None and after.done > taken.job.done
                await self.store.jobs.release(taken)

    async def resolve_many(self, decision: Decided) -> None:
        """All effects of one name that nobody knows about, in one step. Not by chance, as the rest of a life."""
        about = NewJob(
            id=new_id(),
            name="resolve",
            where=EVERYTHING,
            actor="ada",
            reason="they told us",
            per_second=0,
            resolving=Resolving(EFFECTS[self.did["frozen"] % 2], decision),
        )
        with suppress(WrongState):
            await self.store.jobs.plan(about, None)
            self.did["frozen"] += 1
            taken = await self.store.jobs.take(WORKER, LEASE, about.id)
            assert taken is not None
            items = await self.store.jobs.open_items(taken, 50)
            after = await self.store.jobs.step(taken, items, {}, LEASE)
            assert after is not None
            self.did["bulk resolve"] += after.done

    async def pause(self) -> None:
        found = await self.store.pauses.pauses()
        if found:
            await self.store.pauses.resume(found[0].source, found[0].pattern, "ada", "over")
        else:
            await self.store.pauses.pause(SOURCE, self.random.choice([*TYPES, "t*"]), "ada", "a moment")
            self.did["pause"] += 1

    async def prune(self) -> None:
        """Retention with limits so short that nearly everything is due."""
        limit = self.random.choice([0.0, 5.0, LEASE])
        rule = self.random.choice(["events", "payloads", "history", "failed"])
        limits = Limits(**{rule: limit})
        settings = RetentionSettings(batch=7, batch_delay=Seconds(0))
        self.clock.offset += limit + 1
        done = await Pruner(self.store, settings, {}, limits, self.clock, WORKER).round(from_start=True)
        for name in ("events", "payloads", "history", "deliveries"):
            self.did[f"pruned {name}"] += getattr(done, name)

    async def erase(self) -> None:
        row = await self._event()
        if row is not None:
            with suppress(WrongState):
                whole, key_too = self.random.random() < 0.5, self.random.random() < 0.3
                where = (row.id, row.state, row.claim, "ada", "asked")
                erased = await self.store.erasure.erase(*where, key_too=key_too, whole_request=whole)
                self.did["erased"] += len(erased.events)

    async def _in_review(self) -> EventRow | None:
        """Reviews are so few that chance would hardly find one."""
        rows = await self.store.search.events(Filter(states=(State.NEEDS_REVIEW,)), limit=5)
        return self.random.choice(rows) if rows else None

    async def _event(self) -> EventRow | None:
        """Any that was heard of, or the one that an effect belongs to."""
        effect = await self._effect() if self.random.random() < 0.5 else None
        ident = effect.event_id if effect else self.random.choice(self.known) if self.known else None
        if ident is None or await self.store.history(ident) is None:  # nothing of an imported key is here
            return None
        return await event(self.store, ident)
