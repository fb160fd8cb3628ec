"""How an attempt ends: from a handler's result or exception to the one way out of `processing`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from ..answer import Answer, AnswerRule
from ..batching import Batcher, retry_individually
from ..errors import (
    BadData,
    BadResult,
    CheckPending,
    ClaimLost,
    FetchFailed,
    GuardBusy,
    HandlerCommitted,
    HandlerEnded,
    Permanent,
    Refused,
    Retry,
    Review,
    SchemaBreak,
    Signal,
    Skip,
    StoreError,
    Unavailable,
    UnknownOutcome,
    Wait,
)
from ..ids import show
from ..model import Claimed, Outcome
from ..observe.blame import Blame, blame
from ..observe.metrics.counts import WorkCounts
from ..observe.traces import MAX_TRACE, excerpt
from ..retry import RetryPolicy, clean, is_permanent, message_of
from ..store.protocol import Store
from ..store.sqlstate import hint, is_contention
from .route import Handler, Returned

log: logging.Logger = logging.getLogger(__name__)

MAX_RESULT = 16_384
MAX_REASON = 500
UNSTORABLE = "its outcome cannot be stored"
CONTENTION_DELAY, CONTENTION_MAX = 0.1, 30.0
"""Seconds until an attempt that met other transactions at its guards is repeated: the first time, and at most."""


class Budget(Protocol):
    """How often handlers are tried that say nothing of it."""

    @property
    def retry(self) -> RetryPolicy: ...
    @property
    def bug_attempts(self) -> int: ...


def succeeded(
    claimed: Claimed, result: Returned, stages: tuple[str, ...] = (), answers: AnswerRule | None = None
) -> Outcome:
    """The handler returned; `stages` of the event begin, if it was never processed before."""
    if answers is None:
        return Outcome(claimed.id, claimed.claim, "complete", result=_summary(result), stages=stages)
    if not isinstance(result, Answer):
        raise BadResult(f"a handler declared with answer returns an Answer, not {type(result).__name__}")
    if not result.successful:
        raise BadResult(
            f"a handler returns an answer with status 2xx, which is kept, not {result.status}: raise "
            f"Permanent(answer=Answer(…, status={result.status})) to refuse the request"
        )
    words = f"answered {result.status}, {len(result.body)} bytes"
    stored = result.stored(answers.keep)
    return Outcome(claimed.id, claimed.claim, "complete", result=words, stages=stages, answer=stored)


def interrupted(claimed: Claimed) -> Outcome:
    """The worker is stopping and the handler did not finish in time: due again immediately."""
    return Outcome(claimed.id, claimed.claim, "reschedule", reason="the worker was stopped", due_in=0.0)


def released(claimed: Claimed) -> Outcome:
    """Released before its start."""
    return Outcome(claimed.id, claimed.claim, "release")


def not_started(claimed: Claimed, why: str, error: BaseException, due_in: float) -> Outcome:
    """What the handler needs could not be had. No attempt, however often: the handler has done nothing."""
    reason = clean(f"not started: {why}: {_plainly(error)}", MAX_REASON)
    return Outcome(claimed.id, claimed.claim, "wait", reason=reason, due_in=due_in, error=excerpt(error))


def conclusive(claimed: Claimed, policy: RetryPolicy, error: Exception) -> Exception:
    """What the handler raised; or, where it asks for time that the event does not have, what that comes to."""
    match error:
        case CheckPending() if policy.exhausted(0, claimed.run_age):
            return error.decision
        case UnknownOutcome(decision=decision) if policy.exhausted(claimed.attempts, claimed.run_age):
            return decision or error
    return error


def contended(claimed: Claimed, error: BaseException) -> BaseException:
    """What an attempt that asked a guard raised; GuardBusy where only other transactions were in the way. Handlers
    that ask several guards in different orders deadlock, and the one that PostgreSQL stops has done nothing wrong.
    What a handler decides itself stays."""
    if isinstance(error, Signal) or not is_contention(error):
        return error
    delay = min(CONTENTION_MAX, CONTENTION_DELAY * 2.0 ** min(claimed.snoozes, 10))
    busy = GuardBusy(
        f"other transactions held what it needs: {_plainly(error)}",
        after=delay * random.uniform(0.5, 1.0),  # noqa: S311 - spreads load, not for security
    )
    busy.__cause__ = error
    return busy


def failed(claimed: Claimed, handler: Handler | None, budget: Budget, error: BaseException) -> Outcome:
    """The handler raised: what that means for the event."""
    package = handler.package if handler else ""
    if isinstance(error, SchemaBreak):  # found before the handler ran: no line of code is to blame
        reason = clean(message_of(error), MAX_REASON)
        return Outcome(claimed.id, claimed.claim, "fail", reason=reason, error=clean(error.details, MAX_TRACE))
    found = blame(error, package)
    way = _way(claimed, _policy(handler, budget, found), found, error)
    if way.transition == "skip":
        return way
    by = " at ".join(filter(None, (handler.label if handler else None, found.place)))
    return msgspec.structs.replace(way, error=excerpt(error, package), where=by or None)


def _policy(handler: Handler | None, budget: Budget, found: Blame) -> RetryPolicy:
    """The handler's own; else the settings', with few attempts for a bug."""
    if handler and handler.retry:
        return handler.retry
    policy = budget.retry
    if found.is_bug:
        policy = msgspec.structs.replace(policy, attempts=min(policy.attempts, budget.bug_attempts))
    return policy


def _way(claimed: Claimed, policy: RetryPolicy, found: Blame, error: BaseException) -> Outcome:
    reason = clean(message_of(error) or type(error).__name__, MAX_REASON)
    match error:
        case Skip():
            return Outcome(claimed.id, claimed.claim, "skip", reason=reason)
        case Review() | HandlerCommitted():
            return Outcome(claimed.id, claimed.claim, "review", reason=reason)
        case Wait(for_entity=str(entity)):
            return _waiting(claimed, policy, error, entity, reason)
        case Wait():
            if policy.exhausted(0, claimed.run_age):
                return Outcome(claimed.id, claimed.claim, "fail", reason=f"waited too long: {reason}"[:MAX_REASON])
            return Outcome(claimed.id, claimed.claim, "wait", reason=reason, due_in=error.after)
        case Permanent():
            return Outcome(claimed.id, claimed.claim, "fail", reason=reason)
    reason = clean(_blaming(found, error), MAX_REASON)
    if is_permanent(error):
        return Outcome(claimed.id, claimed.claim, "fail", reason=reason)
    exhausted = policy.exhausted(claimed.attempts, claimed.run_age)
    if exhausted:
        return Outcome(claimed.id, claimed.claim, "fail", reason=f"{exhausted}: {reason}"[:MAX_REASON])
    delay = policy.delay(claimed.attempts)
    if isinstance(error, FetchFailed) and error.after is not None:
        delay = max(delay, error.after)  # an API that is down and asks for no pause would use up all attempts
    elif isinstance(error, Retry | Refused) and error.after is not None:
        delay = error.after
    if isinstance(error, UnknownOutcome):
        delay = max(delay, error.after)
    return Outcome(claimed.id, claimed.claim, "reschedule", reason=reason, due_in=delay)


def _waiting(claimed: Claimed, policy: RetryPolicy, wait: Wait, entity: str, reason: str) -> Outcome:
    """The event waits for another one of an entity: no attempt, and no failure if that never comes."""
    if not entity:
        words = (
            f"{reason}: for_entity is None or empty, so the event does not name what it waits for: check which field "
            f"of {claimed.type} has it; leave for_entity out to wait for a time only"
        )
        return Outcome(claimed.id, claimed.claim, "review", reason=clean(words, MAX_REASON))
    if claimed.entity is None:
        words = (
            f"{reason}: the event has no entity, so nothing may wake it: set entity or ordered for source "
            f"{claimed.source}, with a field that {claimed.type} has"
        )
        return Outcome(claimed.id, claimed.claim, "review", reason=clean(words, MAX_REASON))
    waited = claimed.waited or 0.0
    exhausted = policy.exhausted(0, claimed.run_age)
    if waited >= wait.at_most or exhausted:
        words = f"{reason}: it waited {max(waited, claimed.run_age):.0f} s for an event of {entity}"
        return Outcome(claimed.id, claimed.claim, "review", reason=clean(words, MAX_REASON))
    due_in = min(wait.after, max(wait.at_most - waited, 0.0))
    name = show(entity.encode("utf-8", "surrogatepass"))
    return Outcome(claimed.id, claimed.claim, "wait", reason=reason, due_in=due_in, waits_for=name)


def _blaming(found: Blame, error: BaseException) -> str:
    """The place of a bug first, because drivers and payloads say a lot; of a group, what it holds."""
    bug = f"a bug in {found.place}: " if found.is_bug else ""
    group = f" (in {_plainly(error)})" if found.error is not error else ""
    return f"{bug}{_plainly(found.error)}{group}"


def _plainly(error: BaseException) -> str:
    """What was raised, and which setting to look at where one causes it; first, because drivers say a lot."""
    return ": ".join(filter(None, (type(error).__name__, hint(error), message_of(error))))


def cut_short(claimed: Claimed, handler: Handler | None, budget: Budget, *, owned: bool, by_worker: bool) -> Outcome:
    """The way out for a handler that was cancelled, `by_worker` or by its own code. If the event is another's by now,
    the fence refuses it."""
    if not owned:
        return failed(claimed, handler, budget, ClaimLost("the lease could not be renewed in time"))
    if by_worker:
        return interrupted(claimed)
    # Its own code did that: the attempt counts, or it would be repeated without end.
    return failed(claimed, handler, budget, HandlerEnded("the handler's own code cancelled it"))


def rollback_cause(error: BaseException) -> str:
    """Why a transaction was rolled back: one of ROLLBACKS."""
    match error:
        case ClaimLost():
            return "claim_lost"
        case HandlerCommitted():
            return "committed"
        case asyncio.CancelledError():
            return "stopped"
        case TimeoutError():
            return "timeout"
        case GuardBusy():
            return "contention"
        case Signal():
            return "decision"
        case Unavailable() | StoreError():
            return "database"
    return "contention" if is_contention(error) else "error"


class Settler:
    """Writes outcomes without a handler's transaction, many in one commit."""

    def __init__(self, store: Store, counts: WorkCounts) -> None:
        self._store = store
        self._counts = counts
        self._batcher = Batcher(retry_individually(self._flush), max_items=256, max_queued=100_000)
        self._unwritten: dict[UUID, Outcome] = {}

    async def settle(self, outcome: Outcome) -> bool:
        """Through an outage of any length: a worker that lives says so itself, and the fence has the last word;
        returns whether the claim was still ours.

        The first outcome of a claim counts. If the caller is cancelled while it waits for the store, a later call
        continues with that one.
        """
        kept = self._unwritten.get(outcome.id)
        if kept is not None and kept.claim == outcome.claim:
            outcome = kept
        while True:
            try:
                mine = await self._batcher.submit(outcome)
            except (Unavailable, StoreError) as error:
                if isinstance(error, BadData) and outcome.reason != UNSTORABLE:
                    log.error("the outcome of event %s cannot be stored: %s", outcome.id, error)  # noqa: TRY400
                    outcome = Outcome(outcome.id, outcome.claim, "review", reason=UNSTORABLE)
                    continue
                if outcome.id not in self._unwritten:
                    log.warning("outcome of event %s not written yet: %s", outcome.id, error)
                self._unwritten[outcome.id] = outcome
                await asyncio.sleep(0.2)
                continue
            self._unwritten.pop(outcome.id, None)
            if not mine:
                self._counts.late_outcomes += 1
                log.warning("outcome discarded: claim on event %s lost", outcome.id)
            return mine

    async def _flush(self, outcomes: Sequence[Outcome]) -> Sequence[bool]:
        settled: set[UUID] = await self._store.settle(outcomes)
        return [outcome.id in settled for outcome in outcomes]


def _summary(result: object) -> str | None:
    if result is None:
        return None
    if isinstance(result, Answer):
        raise BadResult("a handler declared with on answers no request: declare it with answer, or return None")
    if not isinstance(result, str | dict):
        raise BadResult(f"a handler returns None, a string or a small dict, not {type(result).__name__}")
    try:
        text = clean(result, MAX_RESULT) if isinstance(result, str) else msgspec.json.encode(result).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResult(f"the handler's result cannot be kept: {error}") from error
    if len(text) > MAX_RESULT or (isinstance(result, str) and len(result) > MAX_RESULT):
        raise BadResult(f"the handler's result is over {MAX_RESULT} characters; keep a reference instead")
    return text
