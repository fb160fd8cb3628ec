"""One attempt: run the handler, then commit its transaction with the outcome as the last statement."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ..effects.attempt import AttemptEffects
from ..effects.caller import Calls
from ..effects.declare import Effects
from ..errors import (
    ClaimLost,
    HandlerCommitted,
    HookledgerError,
    NeedsDecision,
    SchemaBreak,
    StaleReviewed,
    StaleSkipped,
    WrongState,
)
from ..ledger import GuardAnswer
from ..model import Claimed, Outcome, base_source
from ..observe import lines, spans
from ..observe.attempt import Watched, outcome_and_state
from ..observe.correlation import trace_context
from ..observe.logs import Limit
from ..observe.metrics.counts import WorkCounts
from ..observe.report import Reporter
from ..observe.watchdog import Busy
from ..states import BY_NAME, AttemptOutcome, State
from ..store.ops.reviews import Approval
from ..store.protocol import Store, Transaction, Transactions
from . import outcome as ways
from .check import Checked
from .event import Renew
from .lease import Leases
from .outcome import Budget, Settler
from .route import Handler
from .run import Runner
from .slots import Slots
from .undo import undo

log: logging.Logger = logging.getLogger(__name__)


class Defaults(Budget, Protocol):
    """What a worker's settings say for handlers that say nothing."""

    @property
    def timeout(self) -> float: ...
    @property
    def lease(self) -> float: ...


Ended = Callable[[Outcome, Exception | None], None]
"""Told of each outcome once it is recorded, and of what the handler raised."""
Returned = Callable[[Sequence[Claimed]], None]
"""Told of events whose handler has returned and holds no connection, before their outcomes are recorded."""


class NotBegun(Exception):
    """What a handler needs could not be had: why it was not started, and how long to wait."""

    def __init__(self, why: str, error: Exception, due_in: float) -> None:
        super().__init__(str(error))
        self.why = why
        self.error = error
        self.due_in = due_in


class Handling:
    """What every attempt needs."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        calls: Calls,
        leases: Leases,
        effects: Effects,
        runner: Runner,
        settings: Defaults,
        planned: Callable[[], None],
        slots: Slots,
        counts: WorkCounts,
        ended: Ended | None = None,
        returned: Returned | None = None,
    ) -> None:
        """`planned` is told when the outbox has something to do."""
        self._ended: Ended = ended or (lambda outcome, error: None)
        self._returned: Returned = returned or (lambda group: None)
        self._store = store
        self._settler = settler
        self._calls = calls
        self._leases = leases
        self._declared = effects
        self._runner = runner
        self._settings = settings
        self._planned = planned
        self._slots = slots
        self._counts = counts
        self._labels: dict[int, str] = {}
        self._not_begun = Limit()
        self._reporter = Reporter()

    async def handle(self, handler: Handler, group: Sequence[Claimed]) -> None:
        """One event, or several in one transaction. If one of several fails, each goes alone."""
        began = time.monotonic()
        seen: Sequence[Watched] = [await self._watch(handler, claimed) for claimed in group]
        try:
            group, seen, checked = await self._check(handler, group, seen, began)
            for claimed in await self._attempt(handler, group, seen, checked):
                self.count(handler, claimed, AttemptOutcome.PROCESSED, began)
            logged = lines.wanted()
            for one in seen:
                one.processed(logged=logged)
        except NotBegun as failure:
            await self._put_off(group, seen, failure)
        except HandlerCommitted as error:
            for claimed, one in zip(group, seen, strict=True):
                # The writes of each may have been kept: no event of the batch may run again.
                await self._failed(handler, claimed, error, one, began)
        except Exception as error:  # whatever the handler raises has a way out of `processing`
            if len(group) > 1:
                for one in seen:
                    one.ended("rolled back with its batch", error)
                for claimed in group:
                    await self.handle(handler, [claimed])
                return
            await self._failed(handler, group[0], error, seen[0], began)
        finally:
            for one in seen:
                one.ended("cancelled")
        for claimed in group:
            self._leases.drop(claimed.id)

    async def _put_off(self, group: Sequence[Claimed], seen: Sequence[Watched], failure: NotBegun) -> None:
        waiting = [ways.not_started(claimed, failure.why, failure.error, failure.due_in) for claimed in group]
        self._tell_not_begun(seen, waiting)
        for way, kept in zip(waiting, await asyncio.gather(*map(self._settler.settle, waiting)), strict=True):
            if kept:
                self._ended(way, failure.error)

    async def _check(
        self, handler: Handler, group: Sequence[Claimed], seen: Sequence[Watched], began: float
    ) -> tuple[Sequence[Claimed], Sequence[Watched], list[Checked | None]]:
        """The events whose content fits, with what was decoded; the others have failed, each alone."""
        fitting: list[tuple[Claimed, Watched, Checked | None]] = []
        for claimed, one in zip(group, seen, strict=True):
            try:
                fitting.append((claimed, one, self._runner.check(handler, claimed)))
            except Exception as error:  # a `body=` type of the user's may raise anything
                await self._failed(handler, claimed, error, one, began)
                self._leases.drop(claimed.id)
        return [c for c, _, _ in fitting], [s for _, s, _ in fitting], [checked for _, _, checked in fitting]

    def count(self, handler: Handler, claimed: Claimed, outcome: AttemptOutcome | None, began: float | None) -> None:
        """Count an attempt whose outcome is recorded; `began`: when, if that is known."""
        if outcome is None:
            return
        label = self._labels.get(id(handler.function))
        if label is None:
            label = self._labels[id(handler.function)] = handler.label
        seconds = None if began is None else time.monotonic() - began
        delay = time.time() - claimed.received_at.timestamp() if claimed.run == 1 else None
        self._counts.ended(base_source(claimed.source), label, outcome, seconds, delay)

    async def _watch(self, handler: Handler, claimed: Claimed) -> Watched:
        """What logs and traces show of an attempt. Its span is linked to the last attempt's, if that can be read."""
        tracer, before = spans.tracer(), None
        if tracer is not None and claimed.claim > 1:
            try:
                before = trace_context(await self._store.last_traceparent(claimed.id))
            except HookledgerError as error:
                log.debug("the span of the last attempt is not linked: %s", error)
        return Watched(claimed, handler.name, tracer, before)

    def _tell_not_begun(self, seen: Sequence[Watched], waiting: Sequence[Outcome]) -> None:
        for one, way in zip(seen, waiting, strict=True):
            left_out = self._not_begun.left_out()
            if left_out is not None:
                facts = {**one.facts, **outcome_and_state(way.transition), "reason": way.reason}
                lines.tell(lines.ENDED, **facts, left_out=left_out or None)
            one.ended("not started")

    async def _failed(
        self, handler: Handler, claimed: Claimed, error: Exception, seen: Watched, began: float
    ) -> None:
        if isinstance(error, ClaimLost):
            self._counts.late_outcomes += 1
            log.warning("outcome discarded: claim on event %s lost", claimed.id)
            seen.ended("claim lost", error)
            return
        with seen.inside():
            error = ways.conclusive(claimed, handler.retry or self._settings.retry, error)
            way = ways.failed(claimed, handler, self._settings, error)
            way = msgspec.structs.replace(way, traceparent=seen.traceparent)
            self._tell(handler, way, error)
            if isinstance(error, StaleSkipped | StaleReviewed) and error.answer is not None:
                kept = await self._settle_stale(way, error.answer)
            else:
                kept = await self._settler.settle(way)
            if kept:
                self.count(handler, claimed, BY_NAME[way.transition].attempt, began)
                self._ended(way, error)
            if isinstance(error, NeedsDecision):
                await self._retry_if_known(claimed, error)
        ended = outcome_and_state(way.transition)["outcome"]
        seen.ended(ended, None if way.transition in ("skip", "wait") else error)

    def _tell(self, handler: Handler, way: Outcome, error: Exception) -> None:
        facts = {**outcome_and_state(way.transition), "reason": way.reason}
        decided = way.transition in ("skip", "wait") or isinstance(error, SchemaBreak)
        if decided or not self._reporter.tell(lines.HANDLER_FAILED, handler.name, error, handler.package, **facts):
            lines.tell(lines.ENDED, level=lines.ENDED.levels.get(facts["outcome"] or ""), **facts)

    async def _settle_stale(self, way: Outcome, answer: GuardAnswer) -> bool:
        """Write the outcome together with the answer that ended the handler, and that was rolled back with it;
        returns whether the claim was still ours."""
        tx = self._store.transaction()
        try:
            await tx.note_stale(answer)
            await tx.commit([way])
        except ClaimLost:
            self._counts.late_outcomes += 1
            log.warning("outcome discarded: claim on event %s lost", way.id)
            return False
        except Exception as error:
            await tx.rollback()
            log.warning("a stale answer is not recorded, only its outcome: event %s: %s", way.id, error)
            return await self._settler.settle(way)
        except BaseException:
            await tx.rollback()
            raise
        return True

    async def _retry_if_known(self, claimed: Claimed, error: NeedsDecision) -> None:
        """The outcome may have become known between the handler's call and the event's review: then only this retries
        it.
        """
        try:
            if await self._calls.is_known(error.identity):
                reason = "what it waited for is known"
                await self._store.retry(claimed.id, State.NEEDS_REVIEW, "hookledger", reason)
        except WrongState:
            log.debug("event %s was sent round already", claimed.id)
        except HookledgerError as failure:
            log.warning("event %s waits for an operator, although its outcome may be known: %s", claimed.id, failure)

    async def _attempt(
        self,
        handler: Handler,
        group: Sequence[Claimed],
        seen: Sequence[Watched],
        checked: Sequence[Checked | None],
    ) -> Sequence[Claimed]:
        """Run the handler and write the outcome; returns the events whose claims were still ours."""
        if not group:
            return ()
        read = [(claimed.id, await self._approval(claimed)) for claimed in group if claimed.approval_id]
        approvals = {ident: approval for ident, approval in read if approval is not None}
        library = self._runner.library(handler)
        tx = self._store.transaction(library.adapter() if library else None)
        effects = [
            self._effects(handler, claimed, tx, claimed.id in approvals, one)
            for claimed, one in zip(group, seen, strict=True)
        ]
        try:
            if library:
                await self._begin(library, tx)
            outcomes = [
                await self._run(handler, claimed, tx, asked, approvals.get(claimed.id), one, content)
                for claimed, asked, one, content in zip(group, effects, seen, checked, strict=True)
            ]
            if tx.begun:
                await tx.commit(outcomes)
                if any(asked.planned for asked in effects):
                    self._planned()
                for outcome in outcomes:
                    self._ended(outcome, None)
                return group
        except BaseException as error:
            why = ways.contended(group[0], error) if any(asked.guarded for asked in effects) else error
            if tx.begun:
                self._counts.rollbacks[ways.rollback_cause(why)] += 1
            await undo(handler, tx, why)
        await tx.rollback()  # nothing was begun, and nothing may be from now on
        self._returned(group)
        kept = await asyncio.gather(*map(self._settler.settle, outcomes))
        for outcome, mine in zip(outcomes, kept, strict=True):
            if mine:
                self._ended(outcome, None)
        return [claimed for claimed, mine in zip(group, kept, strict=True) if mine]

    async def _begin(self, library: Transactions, tx: Transaction) -> None:
        try:
            await tx.begin()
        except Exception as error:
            raise NotBegun("no transaction", error, self._slots.rest(library)) from error
        self._slots.works(library)

    async def _approval(self, claimed: Claimed) -> Approval | None:
        """Who approved this run. None, so that the handler asks again, if the audit log cannot tell."""
        assert claimed.approval_id is not None
        try:
            approval = await self._store.reviews.approval(claimed.approval_id)
        except HookledgerError as error:
            delay = self._settings.retry.delay(1)
            raise NotBegun("its approval could not be read", error, delay) from error
        if approval is None:
            log.error("event %s runs without its approval: no audit log entry %s", claimed.id, claimed.approval_id)
        return approval

    def _effects(
        self, handler: Handler, claimed: Claimed, tx: Transaction, approved: bool, seen: Watched
    ) -> AttemptEffects:
        def owns() -> bool:
            return self._leases.owns(claimed.id)

        return AttemptEffects(
            claimed,
            tx,
            self._calls,
            self._declared.find,
            owns,
            transaction=handler.transaction,
            rank=self._runner.rank(claimed),
            stale=handler.stale,
            approved=approved,
            on_stale=lambda: self._counts.stale.update((base_source(claimed.source),)),
            traceparent=seen.traceparent,
            correlation_id=seen.origin.given,
        )

    async def _run(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: Transaction,
        effects: AttemptEffects,
        approved: Approval | None,
        seen: Watched,
        checked: Checked | None,
    ) -> Outcome:
        with seen.inside():
            async with time_limit(handler, self._settings):
                way = await self._runner.run(handler, claimed, tx, effects, self._renewal(claimed), approved, checked)
        return way if seen.traceparent is None else msgspec.structs.replace(way, traceparent=seen.traceparent)

    def _renewal(self, claimed: Claimed) -> Renew:
        async def renew() -> None:
            if not await self._store.renew(claimed.id, claimed.claim, self._settings.lease):
                raise ClaimLost()

        return renew


def busy_in(handler: Handler, claimed: Claimed) -> Busy:
    """What the watchdog says of a task that runs this handler."""
    words = f"in handler {handler.name} of event {claimed.id} ({claimed.source}: {claimed.type})"
    return Busy(words, {"event_id": str(claimed.id), "event_key": claimed.key, "event_type": claimed.type})


def time_limit(handler: Handler, settings: Defaults) -> asyncio.Timeout:
    """Of one attempt."""
    return asyncio.timeout(settings.timeout if handler.timeout is None else handler.timeout)
