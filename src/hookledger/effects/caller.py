"""Calls that are recorded: `started` is committed before each, its completion always after.

What `event.call` does stands in four files. Here: `Calls.call` starts a new effect, or takes the next step that what
is known of it allows, and has the call made. `perform.py` makes it and says how it ended: done, refused or unknown.
`policy.py`: what each policy (`Repeat` in `states.py`) allows next. `store/call_outcome.py`: the effect's state, and
what operators are told. `work/outcome.py` decides about the event by what is raised here.

The ledger's `start` commits the effect as `started` and a row for its first call, if the event still has this claim;
a later call is `restart`, a compare-and-set on the effect, and `owns` asks for the claim. If the process dies during
the call, `work/reclaim.py` marks the effect unknown when its lease has expired. An end is recorded however late.
A check that finds that the call did not happen makes the effect planned. An open circuit allows one trial at a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from ..batching import Batcher, retry_individually
from ..errors import (
    BadData,
    BadResult,
    Blocked,
    ClaimLost,
    EffectBusy,
    HookledgerError,
    NeedsDecision,
    StoreError,
    Unavailable,
    UnknownOutcome,
    WrongState,
)
from ..ledger import Completion, Concluded, Intent, Started
from ..ledger import Effect as Entry
from ..observe import lines
from ..retry import is_downstream_failure
from ..states import CallOutcome, EffectKind, EffectState, Repeat
from ..store.ledger import Ledger
from .circuit import Breakers
from .known import cancelled, check_arguments, in_progress, recorded
from .model import Effect, Happened, Performance
from .perform import Ending, ask, perform, tell_call
from .policy import check_repeat, leave_time
from .restore_gap import Gap

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 2.0
"""How long a handler waits for another worker that performs the same effect, before it is retried."""
RETRY_PAUSE = 0.2
"""Seconds between two tries to write how a call ended."""
UNSTORABLE_DELAY = 60.0
"""Seconds until the outbox continues after an ending that the database refused to store as it was."""


class Calls:
    """Makes calls for handlers and for the outbox, and sees to it that each is recorded."""

    def __init__(self, ledger: Ledger, breakers: Breakers, worker: str, gap: Gap | None = None) -> None:
        self._ledger = ledger
        self._gap = gap
        self._breakers = breakers
        self._worker = worker
        self._starts = Batcher(retry_individually(self._start_all), max_items=64, max_queued=100_000, max_in_flight=2)
        self._ends = Batcher(retry_individually(ledger.finish), max_items=64, max_queued=100_000, max_in_flight=2)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self.at_it: Counter[bytes] = Counter()
        """The effects that this worker performs."""
        self.orphans_possible: bool = False
        """Whether this worker may hold orphaned claims: the store's answer to one was lost."""

    async def close(self, grace: float) -> None:
        """Wait at most `grace` seconds for running calls, then cancel them; their outcomes are recorded."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    # ── for a handler: now ──

    async def call(self, effect: Effect[Any, Any], intent: Intent, owns: Callable[[], bool]) -> Any:
        """The effect's result: of the call made now, or of the one that was made before.

        `owns`: whether the event is still ours; asked once more just before the call.
        """
        stopped = False
        task = self._keep(self._call(effect, intent, lambda: owns() and not stopped))
        try:
            # The call outlives its handler: once made, how it ended is worth more than a tidy stop.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            stopped = True
            task.add_done_callback(_unheard)
            raise

    async def _call(self, effect: Effect[Any, Any], intent: Intent, owns: Callable[[], bool]) -> Any:
        with self.being_at(intent.identity):
            return await self._proceed(effect, intent, owns)

    async def _proceed(self, effect: Effect[Any, Any], intent: Intent, owns: Callable[[], bool]) -> Any:
        known: Started | Entry | None
        await self._breakers.refresh()
        asked = time.monotonic()
        if self._breakers.closed(effect.policy.downstream):
            known = await self._start(intent)
        else:
            known = await self._through_open_circuit(effect, intent)
        waited = 0.0
        while not isinstance(known, Started):
            asked = time.monotonic()
            if known is None:
                known = await self._start(intent)
                continue
            check_arguments(intent, known)
            if known.state is EffectState.DONE:
                lines.tell(lines.EFFECT_REUSED, effect=known.name, effect_key=known.key, kind=known.kind.value)
                return recorded(effect, known)
            if in_progress(known):
                if waited >= PATIENCE:
                    words = f"effect {known.name} {known.key!r} is in progress"
                    raise EffectBusy(words, after=known.lease_left + 0.5)
                await asyncio.sleep(0.05)
                waited += 0.05
                known = await self._ledger.get(intent.identity)
                continue
            known = await self._next(effect, known)
        return await self._make(effect, intent, known, owns, asked)

    async def _through_open_circuit(self, effect: Effect[Any, Any], intent: Intent) -> Started | Entry:
        """Return a done effect; start any other only as the one trial."""
        known = await self._ledger.get(intent.identity)
        if known is not None and known.state is EffectState.DONE:
            return known
        if not await self._breakers.may_call(effect.policy.downstream, effect.policy.lease):
            raise self._breakers.rejection(effect.policy.downstream)
        return await self._start(intent)

    async def _next(self, effect: Effect[Any, Any], known: Entry) -> Started | Entry | None:
        """Neither done nor in progress: take the next step, or a reason why there is none."""
        match known.state:
            case EffectState.CANCELLED:
                raise cancelled(known)
            case EffectState.STARTED:
                await self._ledger.mark_unknown(known, None)
            case EffectState.UNKNOWN:
                leave_time(effect, known)
                await self.settle_unknown(effect, known)
                known = await self._ledger.get(known.identity) or known
                if known.state is EffectState.UNKNOWN:
                    check_repeat(effect, known)
                    return await self.restart(effect, known)
            case EffectState.PLANNED | EffectState.FAILED:
                return await self.restart(effect, known)
        return await self._ledger.get(known.identity)

    async def _make(
        self, effect: Effect[Any, Any], intent: Intent, started: Started, owns: Callable[[], bool], asked: float
    ) -> Any:
        what = Performance.first(intent, started)
        if not owns():
            never_sent = Ending(CallOutcome.REFUSED, error=ClaimLost())
            await self.record(_completion(what, never_sent, None))
            raise ClaimLost()
        ending = await self.perform(effect, what, lambda ending: None, asked)
        tell_call(what, ending, EffectKind.CALL)
        if ending.outcome is CallOutcome.DONE:
            if ending.error is not None:
                raise ending.error
            return effect.result(ending.result)
        assert ending.error is not None
        if ending.outcome is CallOutcome.REFUSED:
            raise ending.error if isinstance(ending.error, Exception) else UnknownOutcome(repr(ending.error))
        words = f"effect {intent.name} {intent.key!r} may have happened: {ending.words}"
        decision = NeedsDecision(words, identity=intent.identity) if effect.policy.repeat is Repeat.NEVER else None
        if decision is not None and effect.checker is None:
            raise decision from ending.error
        # The remote may still be at it: a check that comes too early would find nothing.
        after = effect.policy.grace if effect.checker else 0.0
        raise UnknownOutcome(words, after=after, decision=decision) from ending.error

    async def _start_all(self, intents: Sequence[Intent]) -> Sequence[Started | Entry | None]:
        return await self._ledger.start(intents, self._worker)

    async def _start(self, intent: Intent) -> Started | Entry:
        try:
            found = await self._starts.submit(intent)
        except Unavailable:
            self.orphans_possible = True
            raise
        except Blocked as error:
            words = f"effect {intent.name} {intent.key!r} is being planned by another handler"
            raise EffectBusy(words, after=1.0) from error
        if found is None:
            raise ClaimLost()
        return found

    # ── for handlers and the outbox ──

    @contextmanager
    def being_at(self, identity: bytes) -> Iterator[None]:
        self.at_it[identity] += 1
        try:
            yield
        finally:
            self.left(identity)

    def left(self, identity: bytes) -> None:
        self.at_it[identity] -= 1
        if not self.at_it[identity]:
            del self.at_it[identity]

    async def restart(self, effect: Effect[Any, Any], known: Entry) -> Started | None:
        try:
            return await self._ledger.restart(known, self._worker, effect.policy.lease)
        except Unavailable:
            self.orphans_possible = True
            raise

    async def release_orphans(self) -> None:
        """Release effects that were started although the answer was lost: no call was sent."""
        if not self.orphans_possible:
            return
        busy = set(self.at_it)  # also those that end while we look
        held = await self._ledger.held(self._worker)
        self.orphans_possible = False
        for orphan in held:
            if orphan.identity not in busy and orphan.identity not in self.at_it:
                log.warning("effect %s %r was started and never sent", orphan.name, orphan.key)
                never_sent = Completion(orphan.identity, orphan.number, CallOutcome.REFUSED, error="never sent")
                await self.record(msgspec.structs.replace(never_sent, due_in=0.0, unless_ended=True))

    async def perform(
        self, effect: Effect[Any, Any], what: Performance, again: Callable[[Ending], float | None], asked: float
    ) -> Ending:
        """Make one call and record how it ended. `again`: when the outbox continues after this ending.

        `asked`: the monotonic time just before the right to this call was asked for. A process that was stopped
        since then has lost it: another worker may have the next.
        """
        if withheld := await self._withheld(effect, what, asked):
            await self.record(_completion(what, withheld, again(withheld)))
            return withheld

        first: asyncio.Task[Concluded] | None = None

        async def correct(ending: Ending) -> None:
            if first is not None:  # durable before what corrects it, however long an outage lasts
                await asyncio.wait([first])
            await self.record(_completion(what, ending, again(ending)))

        def late(ending: Ending) -> None:
            log.warning("effect %s %r ended after its timeout: %s", what.name, what.key, ending.outcome)
            self._keep(correct(ending))

        ending = await perform(effect, what, late)
        # In a separate task: the waiting handler may be cancelled, the record must not be.
        first = self._keep(self.record(_completion(what, ending, again(ending))))
        await asyncio.shield(first)
        await self._tell_circuit(effect.policy.downstream, ending)
        return ending

    async def _withheld(self, effect: Effect[Any, Any], what: Performance, asked: float) -> Ending | None:
        """How a call ends that is not made."""
        try:
            if self._gap is not None and (objection := await self._gap.objection(effect, what)):
                return Ending(CallOutcome.UNKNOWN, error=objection)
        except HookledgerError as error:
            return Ending(CallOutcome.REFUSED, error=EffectBusy(f"never sent: {error}", after=1.0))
        if time.monotonic() - asked > effect.policy.patience:
            return Ending(CallOutcome.REFUSED, error=EffectBusy("not begun in time: never sent", after=0.5))
        return None

    async def _tell_circuit(self, downstream: str, ending: Ending) -> None:
        if isinstance(ending.error, asyncio.CancelledError):
            return
        if ending.error is not None and is_downstream_failure(ending.error):
            await self._breakers.failed(downstream, ending.words or "")
        else:
            await self._breakers.came_back(downstream)

    async def settle_unknown(self, effect: Effect[Any, Any], known: Entry) -> bool:
        """Ask the effect's check, if there is one; whether it could tell."""
        if effect.checker is None:
            return False
        found = await ask(effect, Performance.of(known))
        if found is None:
            return False
        result = None
        if isinstance(found, Happened) and found.result is not None:
            try:
                result = effect.keep_result(found.result)
            except BadResult as error:  # that it happened is what counts
                log.error("effect %s %r: what its check found cannot be kept: %s", known.name, known.key, error)  # noqa: TRY400
        await self._ledger.conclude(known, isinstance(found, Happened), result, 0.0)
        words = "happened" if found else "did not happen"
        log.info("effect %s %r: its check found that it %s", known.name, known.key, words)
        return True

    async def is_known(self, identity: bytes) -> bool:
        """Whether the outcome is known by now."""
        state = await self._ledger.state_of(identity)
        return state is not None and state is not EffectState.UNKNOWN

    async def record(self, completion: Completion) -> Concluded:
        """Write how a call ended; retry through outages for as long as this process lives."""
        warned = False
        while True:
            try:
                concluded = await self._ends.submit(completion)
            except BadData as error:
                log.error("how a call ended cannot be stored: %s", error)  # noqa: TRY400 - the words say it all
                # The policy decides whether the outbox continues: only what may be unstorable is replaced.
                due_in = None if completion.due_in is None else UNSTORABLE_DELAY
                completion = msgspec.structs.replace(
                    completion, result=None, error="its outcome cannot be stored", due_in=due_in
                )
                await asyncio.sleep(RETRY_PAUSE)
            except (Unavailable, StoreError) as error:
                if self._closing or isinstance(error, WrongState):  # the row is gone: nothing to wait for
                    log.error("how a call of %s ended is not written: %s", completion.identity.hex()[:12], error)  # noqa: TRY400
                    raise
                if not warned:
                    log.warning("how a call ended is not written yet: %s", error)
                warned = True
                await asyncio.sleep(RETRY_PAUSE)
            else:
                if concluded.alert:
                    log.error("ALERT effect %s: %s", completion.identity.hex()[:12], concluded.alert)
                return concluded

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _completion(what: Performance, ending: Ending, due_in: float | None) -> Completion:
    return Completion(what.identity, what.number, ending.outcome, ending.result, ending.words, due_in)


def _unheard(task: asyncio.Task[Any]) -> None:
    """Log the exception of a task that has no waiter."""
    if not task.cancelled() and (error := task.exception()):
        log.warning("a call whose handler was stopped: %s", error)
