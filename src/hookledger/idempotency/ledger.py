"""Guarded requests in the ledger: record, claim and run the first; answer the others from what is known."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from ..batching import Batcher
from ..errors import ClaimLost, ConfigError, HookledgerError, SchemaBreak, Unavailable, UnreadableError
from ..model import Arrival, Claimed, Outcome
from ..observe.logs import RateLimitedLogger
from ..observe.metrics.counts import IntakeCounts
from ..receive.claiming import Claiming
from ..receive.endpoint import Endpoint
from ..receive.told import Told
from ..states import AttemptOutcome, DeliveryOutcome, State
from ..store.ops.answers import AnswerState, Claim
from ..store.ops.workers import Expired
from ..store.protocol import Store
from ..work.parts import Parts
from ..work.reclaim import LeaseReclaimer, LeaseWatch
from ..work.route import Handler
from ..work.settings import HEAR
from . import problems
from .after import left_behind, undecided
from .attempt import Attempt, Attempts, RouteHandling, RouteRunner
from .capture import Captured, Exchange, NotStorable, from_stored
from .events import Guarded
from .routes import Route
from .settings import GuardSettings
from .waits import Waits

log: logging.Logger = logging.getLogger(__name__)

Begin = Callable[[], Exchange]


class Reraise(Exception):
    """The application raised this: its own error handling answers."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class GuardLedger:
    """The requests of one guarded source in one process."""

    def __init__(
        self,
        store: Store,
        endpoint: Endpoint,
        settings: GuardSettings,
        handlers: dict[Route, Handler],
        parts: Parts,
        reclaimer: LeaseReclaimer,
        name: str,
        counts: IntakeCounts,
    ) -> None:
        """`parts`: with a RouteRunner and a RouteHandling."""
        assert isinstance(parts.runner, RouteRunner)
        assert isinstance(parts.handling, RouteHandling)
        self._store = store
        self._endpoint = endpoint
        self._counts = counts
        self._told = Told()
        self._settings = settings
        self._handlers = handlers
        self._parts = parts
        self._attempts = parts.runner.attempts = parts.handling.attempts = Attempts()
        self._reclaimer = reclaimer
        self.lease_watch: LeaseWatch = LeaseWatch(store, settings.lease)
        self._taking: Counter[UUID] = Counter()
        """Known events that requests are about to claim."""
        self._claiming = Claiming(store, name, settings.lease, begun=self._is_begun, settle=parts.settler.settle)
        self._recorder: Batcher[Arrival, Claim] = Batcher(
            self._claiming,
            max_items=64,
            max_queued=settings.queue,
            weigh=lambda arrival: len(arrival.body),
            max_weight=4 * 1024 * 1024,
        )
        self._turns = asyncio.Semaphore(settings.concurrency)
        self._queued = 0
        self._waits = Waits(store.answers.find, settings.waiting)
        self._warnings = RateLimitedLogger(log)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def answer(self, guarded: Guarded, recorded: Arrival, begin: Begin) -> Captured:
        """Return the response to a request: from its run, or from the first with its key. Raises Reraise for what the
        application raised."""
        counts, began = self._endpoint.counts, time.perf_counter()
        claims: list[Claim] = []
        status, kind, cause = 500, "refused", "internal"
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            response = await self._answer(guarded, recorded, begin, claims, began)
            status, kind = response.status, response.kind
        except HookledgerError as error:
            self._warnings.warning("a guarded request gets 503: %s", error)
            response = problems.unavailable()
            status, cause = response.status, error.cause if isinstance(error, Unavailable) else cause
        finally:
            if claims:
                counts.answers[kind] += 1
                if claims[0].recorded.outcome is DeliveryOutcome.DUPLICATE and status != 429:
                    counts.lookups["hit" if kind == "stored" else "miss"] += 1
                self._tell(guarded, recorded, claims[0], status, began, stored=kind == "stored")
            else:
                counts.unavailable += 1
                self._counts.unavailable[cause] += 1
        return response

    async def _answer(
        self, guarded: Guarded, recorded: Arrival, begin: Begin, claims: list[Claim], began: float
    ) -> Captured:
        """`claims` gets what recording has shown, once it is on disk."""
        until = time.monotonic() + (self._settings.wait or 0.0)
        async with self._turn():
            since = time.monotonic()
            claim = await self._recorder.submit(recorded)
            claims.append(claim)
            self._endpoint.counts.ack.observe(time.perf_counter() - began)
            event_id = claim.recorded.event_id
            if claim.recorded.outcome is DeliveryOutcome.CONFLICT:
                return problems.reused(event_id)
            if claim.claimed is not None:
                return await self._run(guarded.route, claim.claimed, begin, since)
            found = await self._known(guarded.route, event_id, claim.known, begin)
        while found is None:  # in flight: the turn is another request's until that ends
            if not self._settings.wait or time.monotonic() >= until:
                return problems.in_flight(event_id)
            try:
                known = await self._waits.wait(event_id, until)
            except Unavailable:
                return problems.too_many(event_id)
            if known is None:
                return problems.in_flight(event_id)
            async with self._turn():
                found = await self._known(guarded.route, event_id, known, begin)
        return found

    def _tell(
        self, guarded: Guarded, recorded: Arrival, claim: Claim, status: int, began: float, *, stored: bool
    ) -> None:
        self._endpoint.counts.outcomes[claim.recorded.outcome] += 1
        self._told.begin()
        if self._told.wants([claim.recorded]):
            self._told.recorded(
                self._endpoint,
                guarded.request.headers,
                recorded.items,
                [claim.recorded],
                status,
                received=began,
                stored=stored,
            )

    def _turn(self) -> _Turn:
        return _Turn(self)

    # ── what is known of the first request ──

    async def _known(self, route: Route, event_id: UUID, known: AnswerState | None, begin: Begin) -> Captured | None:
        """Return the response to a request whose event is known; None while it is carried out."""
        for _ in range(5):  # each time another process was faster
            if known is None:
                return problems.answered_before(event_id)
            if known.answer is not None:
                return from_stored(known.answer)
            if known.state is State.PROCESSING:
                if not known.expired or not await self._reclaim(known):
                    return None
            elif known.state in (State.PENDING, State.RETRYING):
                answer = await self._claim(route, known, begin)
                if answer is not None:
                    return answer
            else:
                return await self._ended(known)
            before, known = known, (await self._store.answers.find([event_id])).get(event_id)
            if known is not None and (known.claim, known.state) == (before.claim, before.state):
                break
        return problems.unavailable(event_id)  # paused, or locked

    async def _claim(self, route: Route, known: AnswerState, begin: Begin) -> Captured | None:
        """Run the route again, or decide that it may not; None if the event could not be claimed."""
        since = time.monotonic()
        self._taking[known.id] += 1
        try:
            return await self._take(route, known, begin, since)
        finally:
            self._taking -= Counter((known.id,))

    async def _take(self, route: Route, known: AnswerState, begin: Begin, since: float) -> Captured | None:
        claimed = await self._claiming.claim_seen(known.id, known.claim, crashed=True)
        if claimed is None:
            return None
        if undecided(known.attempts):
            if (review := left_behind(route, known.crashes)) is not None:
                way = Outcome(claimed.id, claimed.claim, "review", reason=str(review))
                await self._parts.settler.settle(way)
                return problems.unknown(claimed.id)
            if route.repeat == "accept":
                log.warning(
                    "%s runs again for event %s, although it is unknown whether it was carried out: repeat is accept",
                    route.name,
                    claimed.id,
                )
        return await self._run(route, claimed, begin, since)

    def _is_begun(self, event_id: UUID) -> bool:
        return event_id in self._taking or self._attempts.get(event_id) is not None

    async def _reclaim(self, known: AnswerState) -> bool:
        """Reclaim the event of a process that died; whether another look shows more."""
        if not self.lease_watch.may_reclaim:
            return False
        facts = (known.id, known.claim, known.source, known.type, known.attempts, known.crashes, known.run_age)
        await self._reclaimer.reclaim_one(Expired(*facts, known.worker))
        return True

    async def _ended(self, known: AnswerState) -> Captured:
        match known.state:
            case State.NEEDS_REVIEW:
                return problems.unknown(known.id)
            case _ if known.processed_before:
                return await self._without_answer(known.id)
            case _:
                return problems.closed(known.id)

    async def _without_answer(self, event_id: UUID) -> Captured:
        """Of an event that is processed: an operator settled it, or its answer has expired."""
        by_hand = await self._store.reviews.settled_by_hand(event_id)
        return problems.settled(event_id) if by_hand else problems.answered_before(event_id)

    # ── running ──

    async def _run(self, route: Route, claimed: Claimed, begin: Begin, since: float) -> Captured:
        """The response once the outcome is recorded; or that it is unknown, if the claim is lost before: an outcome
        is written through an outage of any length, and a client does not wait for that."""
        settings = self._settings
        attempt = Attempt(route, begin(), keep=settings.keep, store_4xx=settings.store_4xx)
        self._attempts.begin(claimed, attempt)
        self._parts.leases.hold([claimed], since)
        run = self._keep(self._carry_out(route, claimed, attempt))
        await asyncio.wait([run, attempt.lost], return_when=asyncio.FIRST_COMPLETED)
        if not run.done():
            return problems.unavailable(claimed.id)
        run.result()
        return response(attempt, claimed.id)

    async def _carry_out(self, route: Route, claimed: Claimed, attempt: Attempt) -> None:
        try:
            await self._parts.handling.handle(self._handlers[route], [claimed])
        finally:
            self._attempts.end(claimed)
            self._parts.leases.drop(claimed.id)
            self._waits.look()
            attempt.exchange.release(kept=attempt.outcome is not None and attempt.error is None)
            self._keep(attempt.exchange.finish())

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._tasks.discard)
        return task

    def lost(self, event_id: UUID) -> None:
        """A lease was not renewed. The outcome may be committed: a loop that a route has blocked hears of that after
        the heartbeat."""
        attempt = self._attempts.get(event_id)
        if attempt is not None:
            pause = HEAR * self._settings.lease
            asyncio.get_running_loop().call_later(pause, self._abandon, event_id, attempt)

    def _abandon(self, event_id: UUID, attempt: Attempt) -> None:
        if self._attempts.get(event_id) is attempt:
            log.warning("claim lost: event %s is abandoned, nothing it still does is kept", event_id)
            self._attempts.lost(event_id, ClaimLost())

    async def drain(self, seconds: float) -> None:
        """Let what runs end, and abandon it after so many seconds."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        for event_id in self._attempts.all():
            self._attempts.lost(event_id, Unavailable("the application was stopped"))
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5.0)
        await self._recorder.drain()
        await self._claiming.close()

    # ── turns ──

    async def enter(self) -> None:
        if self._queued >= self._settings.queue:
            raise Unavailable("too many requests wait for their turn").because("queue_full")
        self._queued += 1
        try:
            await self._turns.acquire()
        finally:
            self._queued -= 1

    def leave(self) -> None:
        self._turns.release()


class _Turn:
    """One of the requests that may run concurrently."""

    def __init__(self, ledger: GuardLedger) -> None:
        self._ledger = ledger

    async def __aenter__(self) -> None:
        await self._ledger.enter()

    async def __aexit__(self, *_: object) -> None:
        self._ledger.leave()


def response(attempt: Attempt, event_id: UUID) -> Captured:
    """Return what the request gets whose route was run."""
    outcome, answer = attempt.outcome, attempt.answer
    if outcome is None:
        return problems.unavailable(event_id)
    if attempt.error is None and answer is not None:
        return answer
    return _failure(attempt, outcome, event_id)


def _failure(attempt: Attempt, outcome: AttemptOutcome, event_id: UUID) -> Captured:
    error = attempt.error
    if isinstance(error, NotStorable):
        undone = outcome is AttemptOutcome.WAITING
        so = "its transaction was rolled back" if undone else "an operator must decide what it did elsewhere"
        log.error("%s: its answer cannot be stored, so %s: %s", attempt.route.name, so, error)
        return problems.not_storable(str(error), event_id, undone=undone)
    raised = attempt.raised
    if isinstance(raised, ConfigError):  # a mistake in the route, which its developer is to see
        raise Reraise(raised)
    if raised is not None and raised is error and not isinstance(raised, HookledgerError):
        raise Reraise(raised)  # not what only follows from the error, such as from a connection that was ended
    log.warning("%s was not carried out to its end: event %s: %s", attempt.route.name, event_id, error)
    match outcome:
        case AttemptOutcome.NEEDS_REVIEW:
            return problems.unknown(event_id)
        case AttemptOutcome.WAITING if isinstance(error, UnreadableError):
            return problems.unreadable(str(error), event_id)
        case AttemptOutcome.WAITING if isinstance(error, SchemaBreak):
            return problems.unfit(error.details, event_id)
        case AttemptOutcome.FAILED | AttemptOutcome.SKIPPED:
            return problems.closed(event_id)
    return problems.unavailable(event_id)
