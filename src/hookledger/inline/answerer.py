"""Records deliveries claimed, runs their handlers, and finds the answers of those that ran: what answers requests.

The gaps: a crash between claim and answer (the lease ends, and the next delivery or a worker runs it), two that run
the same event (the compare-and-set of the claim decides, and the fence at the commit), a commit whose outcome is
unknown (no answer is sent: a claim that it made is released, and the next delivery runs it).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec.structs import replace

from ..answer import AnswerRule
from ..batching import Batcher
from ..errors import HookledgerError, Unavailable
from ..model import Arrival, Claimed, Kind, Recorded
from ..observe.logs import RateLimitedLogger
from ..observe.watchdog import Watchdog
from ..receive.answering import Done, Reply
from ..receive.claiming import Claiming
from ..receive.duplicates import QUARANTINED
from ..states import DeliveryOutcome, State
from ..store.history import Health
from ..store.ops.answers import AnswerState, Claim
from ..store.ops.workers import Expired
from ..store.protocol import Store
from ..work.reclaim import LeaseReclaimer, LeaseWatch
from ..work.route import Routes
from ..work.settings import SETTLE_END, WorkSettings
from .runs import FAILED, KNOWN, LATER, MakeParts, Run, Runs
from .settings import AnswerSettings
from .waiting import Waiting

log: logging.Logger = logging.getLogger(__name__)

BATCH = 64
"""Deliveries in one commit, at most."""
CLOSED = frozenset({State.FAILED, State.NEEDS_REVIEW, State.DISCARDED, State.SKIPPED})
"""States that no attempt follows without an operator."""
MAX_CRASHES = 2
"""An event that crashed its process so often runs alone, in a worker."""


class InlineAnswerer:
    """`work`: the settings of handlers that name none. `stuck` is called, in another thread, when a handler has
    blocked the event loop beyond every timeout."""

    def __init__(
        self,
        store: Store,
        routes: Routes,
        parts: MakeParts,
        reclaimer: LeaseReclaimer,
        settings: AnswerSettings,
        work: WorkSettings,
        *,
        name: str,
        stuck: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._store = store
        self._routes = routes
        self._settings = settings
        self._runs = Runs(parts, work, name=name, stuck=stuck)
        self._reclaimer = reclaimer
        self._lease_watch = LeaseWatch(store, settings.lease)
        self._claiming = Claiming(
            store, name, settings.lease, begun=self._is_begun, settle=self._runs.parts.settler.settle
        )
        self._batcher: Batcher[Arrival, Claim] = Batcher(
            self._record,
            max_items=BATCH,
            max_queued=settings.queue,
            max_in_flight=1 if store.queues else 2,
            weigh=lambda arrival: len(arrival.body),
            max_weight=4 * 1024 * 1024,
        )
        self._waiting = Waiting(store.answers.find, self._may_take)
        self._waiters: Counter[UUID] = Counter()
        self._taking: dict[UUID, asyncio.Task[Run | None]] = {}
        self._asked: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._limited_log = RateLimitedLogger(log)
        self._loop = asyncio.get_running_loop()
        self._watchdog = Watchdog("no other request is answered", self._runs.busy)

    # ── life ──

    def start(self) -> None:
        """Begin to renew leases. It is no worker to the others: what has no handler elsewhere waits for one."""
        self._runs.parts.leases.start()
        self._watchdog.start()
        self._tasks = [self._loop.create_task(task) for task in (self._sign_life(), self._lease_watch.run())]

    async def stop(self) -> None:
        """Let what runs finish, cut it short after [work] shutdown_timeout, and release what was not started."""
        self._stopping = True
        await self._runs.stop()
        if self._asked:
            await asyncio.wait(self._asked, timeout=0.1)
        for task in (*self._asked, *self._taking.values(), *self._tasks):
            task.cancel()
        await asyncio.gather(*self._asked, *self._taking.values(), *self._tasks, return_exceptions=True)
        await self._waiting.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_END):
                await self._batcher.drain()
        await self._claiming.close()
        await self._runs.close()
        self._watchdog.stop()

    async def _sign_life(self) -> None:
        while True:
            self._runs.parts.leases.alive()
            await asyncio.sleep(min(0.25, self._settings.lease / 20))

    async def health(self) -> Health:
        """What its connections see of the database."""
        return await self._store.health()

    # ── a delivery ──

    def ask(self, arrival: Arrival, left: float, told: Callable[[Recorded], None], done: Done) -> None:
        """See `Answerer`."""
        if self._stopping:
            raise Unavailable("it is stopping").because("answers")
        most = max(len(self._asked), len(self._runs))  # past its deadline a delivery is gone, and its event is not
        if most >= self._settings.queue:
            raise Unavailable(f"the queue is full: {most} deliveries are answered").because("queue_full")
        task = self._loop.create_task(self._answer(arrival, left, told, done))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _answer(self, arrival: Arrival, left: float, told: Callable[[Recorded], None], done: Done) -> None:
        until = self._loop.time() + left
        reply: Reply | Exception
        try:
            claim = await self._batcher.submit(arrival)
            run = None if claim.claimed is None else self._runs.get(claim.claimed.id)
            try:
                told(claim.recorded)
                if run is not None:
                    await asyncio.sleep(0)  # what was told is on its way before a handler may block the loop
            finally:
                if run is not None:  # whatever went wrong: nothing else starts what is claimed here
                    self._runs.start(run)
            async with asyncio.timeout_at(until):
                reply = await self._reply(claim, run)
        except TimeoutError:
            reply = LATER
        except asyncio.CancelledError:
            done(Unavailable("it was stopped").because("answers"))
            raise
        except HookledgerError as error:
            reply = error if isinstance(error, Unavailable) else Unavailable(str(error)).because("answers")
        except Exception as error:
            log.exception("a delivery is not answered: internal error")
            reply = Unavailable(str(error)).because("internal")
        done(reply)

    async def _record(self, arrivals: Sequence[Arrival]) -> Sequence[Claim | Exception]:
        since = time.monotonic()
        found = await self._claiming(arrivals)
        for claim in found:
            if isinstance(claim, Claim) and claim.claimed is not None:
                self._hold(claim.claimed, since)
        return found

    def _is_begun(self, event_id: UUID) -> bool:
        return event_id in self._taking or self._runs.get(event_id) is not None

    def _hold(self, claimed: Claimed, since: float) -> Run | None:
        """Keep what was claimed; None: this process has other code than the receiver, and leaves it to a worker."""
        handler = self._routes.find(claimed.kind)
        if handler is None or handler.answers is None:
            self._runs.release(claimed)
            return None
        return self._runs.hold(claimed, handler, since)

    async def _reply(self, claim: Claim, run: Run | None) -> Reply:
        recorded = claim.recorded
        if claim.claimed is not None:
            return LATER if run is None else await asyncio.shield(run.reply)
        if recorded.outcome in QUARANTINED:
            return KNOWN
        if recorded.outcome is DeliveryOutcome.INVALID:
            return FAILED
        reply = await self._known(recorded.event_id, claim.known)
        if recorded.outcome is not DeliveryOutcome.DUPLICATE:  # new, and left to workers
            return reply
        return replace(reply, lookup=reply.kind == "stored")

    # ── a known event ──

    async def _known(self, event_id: UUID, state: AnswerState | None) -> Reply:
        """What a delivery of an event that was here before is answered."""
        while state is not None:
            if state.answer is not None:
                return Reply("stored", state.answer.status, state.answer.headers, state.answer.body)
            if state.state in CLOSED:
                return FAILED
            rule = self._rule(state)
            if rule is None or state.state is State.PROCESSED:
                return KNOWN
            run = self._runs.get(event_id)
            if run is None and not self._is_held(state):
                if state.waits or state.crashes >= MAX_CRASHES or self._stopping:
                    return LATER
                run = await self._take(state)
                if run is not None:
                    return _again(await asyncio.shield(run.reply))
                seen, state = state, await self._find(event_id)
                if state is not None and state.claim == seen.claim and not self._is_held(state):
                    return LATER  # paused, or about to be run alone
                continue
            if rule.concurrent != "wait":
                return Reply("busy", rule.concurrent)
            if self._waiters[event_id] >= self._settings.waiting:
                return Reply("busy", 429)
            found = await self._wait(event_id, state, run)
            if isinstance(found, Reply):
                return found
            state = found
        return KNOWN  # pruned, or imported: nothing to run

    async def _wait(self, event_id: UUID, state: AnswerState, run: Run | None) -> AnswerState | Reply | None:
        """Wait for the run here, or for the one elsewhere."""
        self._waiters[event_id] += 1
        try:
            if run is not None:
                return _again(await asyncio.shield(run.reply))
            return await self._waiting.changed(state)
        finally:
            self._waiters[event_id] -= 1
            if not self._waiters[event_id]:
                del self._waiters[event_id]

    def _is_held(self, state: AnswerState) -> bool:
        """Whether a process handles it, as far as is known."""
        return state.state is State.PROCESSING and not self._may_take(state)

    def _may_take(self, state: AnswerState) -> bool:
        """Whether the lease of an event has ended, beyond doubt."""
        return state.expired and self._lease_watch.may_reclaim

    async def _find(self, event_id: UUID) -> AnswerState | None:
        return (await self._store.answers.find([event_id])).get(event_id)

    def _rule(self, state: AnswerState) -> AnswerRule | None:
        handler = self._routes.find(Kind(state.source, state.type, state.version))
        return None if handler is None or handler.answers is None else handler.answers.of(state.type)

    async def _take(self, state: AnswerState) -> Run | None:
        """Reclaim the event if its lease has ended, claim it and run it; one for all that ask together."""
        task = self._taking.get(state.id)
        if task is None:
            task = self._taking[state.id] = self._loop.create_task(self._take_over(state))
            task.add_done_callback(lambda _: self._taking.pop(state.id, None))
        return await asyncio.shield(task)

    async def _take_over(self, state: AnswerState) -> Run | None:
        seen = state.claim
        if state.state is State.PROCESSING:
            expired = Expired(
                state.id,
                state.claim,
                state.source,
                state.type,
                state.attempts,
                state.crashes,
                state.run_age,
                state.worker,
            )
            if not await self._reclaimer.reclaim_one(expired):
                return None
            seen += 1  # a reclaimed event has the next one
        since = time.monotonic()
        claimed = await self._claiming.claim_seen(state.id, seen)
        if claimed is None:
            return None
        run = self._hold(claimed, since)
        if run is not None:
            self._runs.start(run)
        return run


def _again(reply: Reply) -> Reply:
    """What another delivery of the event gets that waited for its run."""
    return replace(reply, kind="stored") if reply.kind == "run" else reply
