"""Dry run: the handler runs in a transaction that is rolled back, and the ledger answers its effects.

It takes no claim, counts no attempt and writes nothing, so a worker may process the event concurrently. It stops at
the first call without a recorded result. `event.current()` fetches and draws a real ticket: an unused number does
no harm, and what a handler writes elsewhere under it has a version that no other run has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar
from uuid import UUID

from msgspec import Struct

from ...effects.attempt import AttemptEffects
from ...effects.circuit import Breakers
from ...effects.declare import Effects
from ...effects.known import cancelled, check_arguments, in_progress, recorded
from ...effects.model import Effect, Performance
from ...effects.restore_gap import Gap
from ...errors import (
    ConfigError,
    HandlerCommitted,
    HandlerEnded,
    HookledgerError,
    NoTransaction,
    Unavailable,
    WrongState,
)
from ...ledger import Effect as Entry
from ...ledger import GuardAnswer, GuardRequest, Intent, Known, Started
from ...model import Claimed, Kind, Outcome
from ...observe.attempt import facts_of
from ...observe.logs import about
from ...states import BY_NAME, EffectKind, EffectState, State
from ...store.call_outcome import may_adopt
from ...store.history import History
from ...store.ops.reviews import Approval
from ...store.protocol import Store, Transaction
from ...work import outcome as ways
from ...work.handle import time_limit
from ...work.route import Handler, Routes
from ...work.run import Runner
from ...work.settings import WorkSettings
from ...work.undo import undo
from .preview import obstacles

T = TypeVar("T")
KEPT = "handler {} ended event.tx itself: writes that it committed are not rolled back; check what it wrote"


class Step(Struct, frozen=True):
    """An effect or guard that the handler asked for, and the answer."""

    kind: EffectKind | Literal["newer"]
    name: str
    key: str
    answer: str


class DryRunReport(Struct, frozen=True):
    """The outcome of a dry run."""

    event_id: UUID
    run: int
    """The run that a replay or an approval would start."""
    handler: str
    steps: tuple[Step, ...]
    alert: str | None
    """What may have been committed after all."""
    state: State | None
    """The event's state afterwards; None: the dry run stopped at a call."""
    reason: str | None = None
    """The reason for the state; or what a run would do at the call where the dry run stopped."""
    result: str | None = None
    error: str | None = None
    """The traceback."""

    @property
    def succeeds(self) -> bool:
        return self.state in (State.PROCESSED, State.SKIPPED) and self.alert is None


class DryRun:
    """Runs a handler as a worker does, and rolls back."""

    def __init__(
        self, store: Store, routes: Routes, effects: Effects, runner: Runner, settings: WorkSettings
    ) -> None:
        self._store = store
        self._routes = routes
        self._effects = effects
        self._runner = runner
        self._settings = settings

    def handler(self, history: History) -> Handler:
        """Return the handler that would run. Raises WrongState, ConfigError or NoTransaction if a dry run is not
        possible."""
        event = history.event
        for obstacle in obstacles(history):
            raise WrongState(f"event {event.id}: {obstacle}")
        if not self._routes.handles():
            raise ConfigError("no handler is loaded: a dry run needs the application; give --app")
        kind = Kind(event.source, event.type, event.version)
        handler = self._routes.find(kind)
        if handler is None:
            raise ConfigError(
                f"no handler of this application handles {kind.label} of {event.source!r}: "
                "give the application that has one with --app"
            )
        if handler.only_stages:
            raise WrongState(f"event {event.id} has only stages: run one of them, as {event.key}/{handler.stages[0]}")
        if handler.by_request is not None:
            raise NoTransaction(
                f"event {event.id}: only your application runs {event.type}, with the next request that has its key; "
                "use --preview"
            )
        if not handler.transaction:
            raise NoTransaction(
                f"handler {handler.name} has transaction=False: its writes cannot be rolled back; use --preview"
            )
        return handler

    async def run(self, history: History, approved: Approval | None = None) -> DryRunReport:
        """Run the handler and roll back. Raises as `handler` does, and Unavailable if no transaction begins.
        `approved`: what the handler gets as `event.approved`."""
        handler, claimed = self.handler(history), _first_attempt(history)
        library = self._runner.library(handler)
        if library:
            await self._store.check(library)
        tx = self._store.transaction(library.adapter() if library else None)
        answers = LedgerAnswers(self._store, tx, Breakers(self._store.circuits, self._settings.circuit))
        alert = None
        try:
            outcome = await _in_a_task(self._attempt(handler, claimed, tx, answers, approved))
        except (asyncio.CancelledError, KeyboardInterrupt, Unavailable):
            raise
        except BaseException as error:
            alert = KEPT.format(handler.name) if isinstance(error, HandlerCommitted) else None
            outcome = ways.failed(claimed, handler, self._settings, error)
        asked = (claimed.id, claimed.run, handler.name, tuple(answers.steps), alert)
        if answers.stopped:
            return DryRunReport(*asked, state=None, reason=answers.stopped)
        state = BY_NAME[outcome.transition].target
        return DryRunReport(*asked, state, outcome.reason, outcome.result, outcome.error)

    async def _attempt(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: Transaction,
        answers: LedgerAnswers,
        approved: Approval | None,
    ) -> Outcome:
        find, rank = self._effects.find, self._runner.rank(claimed)
        effects = AttemptEffects(
            claimed,
            answers,
            answers,
            find,
            lambda: True,
            transaction=True,
            rank=rank,
            stale=handler.stale,
            approved=approved is not None,
            dry=True,
        )
        run, checked = self._runner.run, self._runner.check(handler, claimed)
        await _begin(tx)
        try:
            with about(**facts_of(claimed), handler=handler.name):
                async with time_limit(handler, self._settings):
                    outcome = await run(handler, claimed, tx, effects, _nothing_to_renew, approved, checked)
            if tx.begun and not answers.stopped:
                await tx.check()
        except BaseException as error:
            await undo(handler, tx, error)
        if await tx.rollback():
            raise HandlerCommitted()
        return outcome


class LedgerAnswers:
    """Answers effects without writing: `once` and `later` are read in the handler's transaction. Guards answer in it,
    as they would in a run, and are rolled back with it."""

    def __init__(self, store: Store, tx: Transaction, breakers: Breakers) -> None:
        self._ledger = store.ledger
        self._tx = tx
        self._breakers = breakers
        self._gap = Gap(store.restores)
        self._asked: dict[bytes, Known] = {}
        """Effects that this run would have written."""
        self.steps: list[Step] = []
        self.stopped: str = ""
        """What a run would do where this one stopped."""

    @property
    def exclusive(self) -> bool:
        return self._tx.exclusive

    async def once(self, intent: Intent) -> bool:
        known = await self._known(intent)
        self._asked[intent.identity] = Known(EffectKind.ONCE, EffectState.DONE, intent.arguments_digest)
        self._note(intent, "false: done before" if known else "true: new")
        return known is None

    async def newer(self, request: GuardRequest) -> GuardAnswer:
        if self.stopped:  # the handler caught Stopped and continued
            raise Stopped()
        answer = await self._tx.newer(request)
        self.steps.append(Step("newer", answer.name, answer.key, f"{str(answer.applied).lower()}: {answer.words}"))
        return answer

    async def other_stage(self, intent: Intent) -> str | None:
        return await self._tx.other_stage(intent)

    async def is_same_event(self, one: UUID, other: UUID) -> bool:
        return await self._tx.is_same_event(one, other)

    async def plan(self, intent: Intent) -> Known | None:
        known = await self._known(intent)
        if known is None or may_adopt(known, intent):
            self._asked[intent.identity] = Known(EffectKind.LATER, EffectState.PLANNED, intent.arguments_digest)
            self._note(intent, "new: the outbox would perform it after the commit")
            return None
        self._note(intent, f"known, {known.state}: nothing new for the outbox")
        return known

    async def _known(self, intent: Intent) -> Known | None:
        if self.stopped:  # the handler caught Stopped and continued
            raise Stopped()
        known = await self._tx.known(intent)
        return self._asked.get(intent.identity, known)

    async def call(self, effect: Effect[Any, Any], intent: Intent, owns: Callable[[], bool]) -> Any:
        """Return the recorded result; raises Stopped if there is none."""
        del owns
        if self.stopped:
            raise Stopped()
        known = await self._ledger.get(intent.identity)
        if known is not None:
            check_arguments(intent, known)
            if known.state is EffectState.DONE:
                result = recorded(effect, known)
                self._note(intent, "done: the recorded result")
                return result
            if known.state is EffectState.CANCELLED:
                raise cancelled(known)
        would = await self._would(effect, intent, known)
        self._note(intent, f"stopped: {would}")
        self.stopped = self.stopped or would
        raise Stopped()

    async def _would(self, effect: Effect[Any, Any], intent: Intent, known: Entry | None) -> str:
        """Return what a run would do about an effect without a recorded result, as `Calls` decides."""
        policy, downstream = effect.policy, effect.policy.downstream
        await self._breakers.refresh()
        if not self._breakers.closed(downstream) and not self._breakers.may_try(downstream):
            return f"the event would wait: {self._breakers.rejection(downstream)}"
        if known is not None and in_progress(known):
            return "the event would wait: another worker or the outbox is performing it"
        if known is not None and known.state in (EffectState.STARTED, EffectState.UNKNOWN):
            if effect.checker is not None:
                return "its outcome is unknown: its check would run first, and decides"
            if policy.may_repeat(known.unknown_for):
                return f'its outcome is unknown: it would be called again, as repeat="{policy.repeat}" allows'
            return (
                "its outcome is unknown and it must not be repeated: the event would need review; find out, then "
                f"hookledger resolve {known.event_id} {known.name}"
            )
        number, generation = (1, 1) if known is None else (known.number + 1, known.generation)
        first = Started(intent.identity, fence=0, number=number, generation=generation)
        if objection := await self._gap.objection(effect, Performance.first(intent, first)):
            return f"the event would need review: {objection}"
        return "its check would run first, and decides" if policy.ask_first else "it would be called"

    def _note(self, intent: Intent, answer: str) -> None:
        self.steps.append(Step(intent.kind, intent.name, intent.key, answer))


class Stopped(BaseException):
    """Ends the handler of a dry run. Not an Exception, so that handlers do not catch it as a failed call."""


async def _in_a_task(attempt: Coroutine[Any, Any, T]) -> T:
    """Await it in a separate task: a handler that cancels its task has not cancelled the command."""
    task = asyncio.create_task(attempt)
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if not task.cancelled() or (current is not None and current.cancelling()):
            raise
        raise HandlerEnded("the handler's own code cancelled it") from None


async def _begin(tx: Transaction) -> None:
    try:
        await tx.begin()
    except HookledgerError:
        raise
    except Exception as error:
        raise Unavailable(f"not started: no transaction: {type(error).__name__}: {error}") from error


def _first_attempt(history: History) -> Claimed:
    """Return the event as a replay's first attempt would see it."""
    event, request = history.event, history.request
    assert request is not None
    shared = {name: getattr(event, name) for name in Claimed.__struct_fields__ if hasattr(event, name)}
    new = {"run": event.run + 1, "attempts": 1, "snoozes": 0, "run_age": 0.0}
    kept = {"headers": request.headers, "query": request.query, "body": request.body}
    return Claimed(**shared | new | kept)


async def _nothing_to_renew() -> None:
    """Do nothing: there is no claim."""
