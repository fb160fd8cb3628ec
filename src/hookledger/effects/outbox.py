"""The outbox: performs what handlers planned, after their commit; the row is the queue entry."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..clock import Seconds
from ..errors import BadArguments, ConfigError, HookledgerError
from ..ledger import UNKNOWN_ARGUMENTS
from ..ledger import Effect as Entry
from ..observe import lines
from ..observe.blame import package_of
from ..observe.correlation import trace_context
from ..observe.logs import RateLimitedLogger, about
from ..observe.report import Reporter
from ..states import CallOutcome, EffectState
from ..store.ledger import Ledger
from .caller import Calls
from .circuit import Breakers
from .declare import Effects
from .model import Effect, Performance
from .perform import LINES, Ending, call_facts, tell_call
from .policy import continue_after, continue_after_unknown, warn_repeated

log: logging.Logger = logging.getLogger(__name__)

SHORTEST_WAIT, LONGEST_WAIT = 5.0, 600.0
"""Seconds until an entry that this worker cannot perform is looked at again: half its age, within these."""


class OutboxSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[work.outbox]`."""

    concurrency: int = 16
    """Concurrent calls to each downstream; a slow one never takes the slots of another."""
    poll: Seconds = Seconds("200ms")
    """Between looks at an outbox that seems empty; what this worker plans itself is seen immediately."""

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.poll <= 0:
            raise ConfigError("the outbox needs concurrency >= 1 and poll > 0")


class Outbox:
    """Performs the planned effects that this worker knows the functions of."""

    def __init__(
        self,
        ledger: Ledger,
        effects: Effects,
        calls: Calls,
        breakers: Breakers,
        settings: OutboxSettings,
        worker: str,
        claimed: Callable[[], None] = lambda: None,
    ) -> None:
        """`claimed` is told whenever entries were."""
        self._ledger = ledger
        self._effects = effects
        self._calls = calls
        self._breakers = breakers
        self._settings = settings
        self._worker = worker
        self._claimed = claimed
        self._running: dict[asyncio.Task[None], tuple[str, bytes]] = {}
        self._changed = asyncio.Event()
        self._stopping = False
        self._seldom = RateLimitedLogger(log)
        self._reporter = Reporter()

    def wake(self) -> None:
        """Something was planned, or ended."""
        self._changed.set()

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Until stopped."""
        while not self._stopping:
            self._changed.clear()
            try:
                started = await self._start_due()
            except Exception:  # whatever it is, without this loop nothing planned would ever be performed
                log.exception("outbox: internal error")
                started = 0
            if not started:
                await self._idle()

    async def drain(self) -> None:
        """Until nothing that can be performed now is due."""
        while await self._start_due() or self._running:
            if self._running:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def shut_down(self, limit: float) -> None:
        """Let running calls end; cancel them after `limit` seconds, and record their outcomes as unknown."""
        self.stop()
        if self._running:
            await asyncio.wait(self._running, timeout=limit)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=5.0)

    async def _start_due(self) -> int:
        """Take what is due and there are slots for; how many."""
        try:
            await self._calls.release_orphans()
            wanted = await self._wanted()
            asked = time.monotonic()
            entries = await self._ledger.claim(self._worker, wanted) if wanted else []
        except HookledgerError as error:
            self._calls.orphans_possible = True
            self._seldom.warning("outbox: %s", error)
            return 0
        if entries:
            self._claimed()
        for entry in entries:
            effect = self._effects.find(entry.name)
            assert effect is not None, "only what we know is claimed"
            # Before the task has its first turn: `release_orphans` must not release it.
            self._calls.at_it[entry.identity] += 1
            task = asyncio.create_task(self._one(effect, entry, asked))
            self._running[task] = (effect.policy.downstream, entry.identity)
            task.add_done_callback(self._ended)
        return len(entries)

    async def _wanted(self) -> list[tuple[str, int, float]]:
        """(name, how many, lease) of each effect whose downstream has free slots and a closed circuit."""
        await self._breakers.refresh()
        busy = Counter(downstream for downstream, _ in self._running.values())
        by_downstream: dict[str, list[Effect[Any, Any]]] = {}
        for effect in self._effects.all():
            by_downstream.setdefault(effect.policy.downstream, []).append(effect)
        wanted = []
        for downstream, all_of_it in by_downstream.items():
            effects, free = all_of_it, self._settings.concurrency - busy[downstream]
            if free > 0 and not self._breakers.closed(downstream):
                effects = await self._trial(downstream, effects)
                free = len(effects)
            for place, effect in enumerate(effects):
                share = -(-free // (len(effects) - place))  # what is left, in equal parts, rounded up
                free -= share
                if share > 0:
                    wanted.append((effect.name, share, effect.policy.lease))
        return wanted

    async def _trial(self, downstream: str, effects: list[Effect[Any, Any]]) -> list[Effect[Any, Any]]:
        """The one effect to try an open circuit with, if any is due: a trial of nothing would be wasted."""
        if not self._breakers.may_try(downstream):
            return []
        due = await self._ledger.due([effect.name for effect in effects])
        candidates = [effect for effect in effects if effect.name in due][:1]
        allowed = candidates and await self._breakers.may_call(downstream, candidates[0].policy.lease)
        return candidates if allowed else []

    def _ended(self, task: asyncio.Task[None]) -> None:
        _, identity = self._running.pop(task)
        self._calls.left(identity)
        if not task.cancelled() and (error := task.exception()):
            log.error("outbox: internal error", exc_info=error)
        self._changed.set()

    async def _idle(self) -> None:
        try:
            async with asyncio.timeout(self._settings.poll):
                await self._changed.wait()
        except TimeoutError:
            pass

    # ── one effect ──

    async def _one(self, effect: Effect[Any, Any], entry: Entry, asked: float) -> None:
        facts: dict[str, object] = {
            "source": entry.source,
            "event_id": str(entry.event_id),
            "claim": entry.claim,
            "correlation_id": entry.correlation_id or str(entry.event_id),
            "effect": entry.name,
            "effect_key": entry.key,
        }
        if entry.event_key is not None:
            facts["event_key"] = entry.event_key
        if context := trace_context(entry.traceparent):
            facts["trace_id"] = context.trace_id
        with about(**facts):
            try:
                await self._perform(effect, entry, asked)
            except HookledgerError as error:  # an outage
                words = "effect %s %r is not settled; the next try is when its lease expires: %s"
                log.warning(words, entry.name, entry.key, error)

    async def _perform(self, effect: Effect[Any, Any], entry: Entry, asked: float) -> None:
        try:
            effect.arguments(entry.arguments)
        except BadArguments as error:
            await self._leave_to_others(entry, error)
            return
        if entry.state is EffectState.UNKNOWN:
            settled = await self._settle_unknown(effect, entry)
            if settled is None:
                return
            entry, asked = settled
        ending = await self._calls.perform(
            effect, Performance.of(entry), lambda ending: continue_after(effect, entry, ending), asked
        )
        self._tell(effect, entry, ending)

    async def _leave_to_others(self, entry: Entry, error: BadArguments) -> None:
        """It was planned for another version of its function: for a worker that has that one, or will have."""
        reason = f"{UNKNOWN_ARGUMENTS}: {error}"
        due_in = min(LONGEST_WAIT, max(SHORTEST_WAIT, entry.age / 2))
        if entry.state is EffectState.UNKNOWN:
            await self._ledger.put_off(entry, due_in, reason)
        else:
            await self._ledger.release(entry, due_in, reason)
        self._seldom.warning("effect %s %r %s", entry.name, entry.key, reason)

    async def _settle_unknown(self, effect: Effect[Any, Any], entry: Entry) -> tuple[Entry, float] | None:
        """An unknown outcome: ask the check, else follow the policy. The effect as restarted, if it is, and
        when that was asked for.
        """
        if await self._calls.settle_unknown(effect, entry):
            self.wake()
            return None
        if effect.checker is not None:  # which took its time, and the window runs
            entry = await self._ledger.get(entry.identity) or entry
        if not effect.policy.may_repeat(entry.unknown_for) or effect.policy.retry.exhausted(entry.tries, entry.age):
            again = continue_after_unknown(effect, entry)
            await self._ledger.put_off(entry, again, entry.error)
            if again is None:
                log.error("effect %s %r may have happened: decide with hookledger resolve", entry.name, entry.key)
            return None
        warn_repeated(effect, entry)
        asked = time.monotonic()
        started = await self._calls.restart(effect, entry)
        known = None if started is None else await self._ledger.get(entry.identity)
        return None if known is None else (known, asked)

    def _tell(self, effect: Effect[Any, Any], entry: Entry, ending: Ending) -> None:
        what = Performance.of(entry)
        if ending.outcome is not CallOutcome.DONE:
            line, facts = LINES[ending.outcome], call_facts(what, ending, entry.kind)
            who, package = f"effect {entry.name}", package_of(effect.function)
            if not self._reporter.tell(line, who, ending.error, package, **facts):
                lines.tell(line, **facts)
            return
        tell_call(what, ending, entry.kind)
        if ending.error is not None:
            log.error("effect %s %r is done, but its result cannot be kept: %s", entry.name, entry.key, ending.words)
