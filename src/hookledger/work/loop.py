"""The worker: claim what is due, start it, keep the claims alive, stop gracefully."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID
from weakref import WeakSet

from ..effects.declare import Effects
from ..effects.perform import busy_with, performed_by
from ..errors import HookledgerError
from ..model import Claimed, Kind, Outcome
from ..observe.metrics.counts import WorkCounts
from ..observe.second_connection import watch_libraries
from ..observe.watchdog import Busy, Watchdog
from ..states import BY_NAME
from ..store.history import Health
from ..store.protocol import Store, Transactions
from . import outcome as ways
from .check import Checks
from .current import Currents
from .handle import busy_in
from .parts import Parts
from .placing import Placing
from .route import Handler, Routes
from .run import Rank
from .settings import CALLS_END, CANCEL_END, CLAIM_END, SETTLE_END, WorkSettings, worker_name
from .slots import small_pools
from .turns import Asked, Due, Flow, Hand

log: logging.Logger = logging.getLogger(__name__)

LOOK_AFTER = 30
"""Events that are claimed before another look, where a source with nothing due may have something by now."""


class Worker:
    """Runs the handlers of `routes` on what `store` has due. `weights` and `max_running` of sources."""

    def __init__(
        self,
        store: Store,
        routes: Routes,
        effects: Effects,
        checks: Checks,
        settings: WorkSettings,
        *,
        transactions: Sequence[Transactions] = (),
        currents: Currents,
        weights: Mapping[str, int],
        max_running: Mapping[str, int],
        rank: Rank,
        name: str | None = None,
        stuck: Callable[[], None] = lambda: None,
        counts: WorkCounts,
    ) -> None:
        self._store = store
        self._counts = counts
        self.health: Callable[[], Awaitable[Health]] = store.health
        self._routes = routes
        self._settings = settings
        self.name: str = name or worker_name()
        parts = Parts(
            store,
            routes,
            effects,
            checks,
            settings,
            name=self.name,
            handles=routes.handles(),
            transactions=transactions,
            currents=currents,
            max_running=max_running,
            rank=rank,
            lost=self._on_lost,
            stuck=stuck,
            counts=counts,
            claims=self._tell_first,
        )
        self._leases, self._settler, self._calls, self._outbox = (
            parts.leases,
            parts.settler,
            parts.calls,
            parts.outbox,
        )
        self._library, self._slots, self._handling = parts.library, parts.slots, parts.handling
        self._transactions = transactions
        self._currents = currents
        self._placing = Placing(store)
        self._due = Due(weights)
        self._hand = Hand(self._flow)
        self._running: dict[asyncio.Task[None], list[Claimed]] = {}
        self._settling: dict[asyncio.Task[bool], UUID] = {}
        self._sources = {one.source for one in routes.handles()}
        self._poison_types: list[Kind] = []
        self._ran_alone: dict[str, float] = {}
        self._others_first = self._alone = self._orphans_possible = self._nothing_due = self._follows = False
        self._look_at, self._look_after, self._claimed_since = 0.0, LOOK_AFTER, 0
        self._mean_time = 0.01
        self.claims_first: Callable[[], None] = lambda: None
        """Called once, when the first event or outbox entry was claimed."""
        self._stopping = asyncio.Event()
        self._cancelled: WeakSet[asyncio.Task[None]] = WeakSet()
        """Tasks of handlers that this worker cancelled."""
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def stop(self) -> None:
        """Claim nothing more, finish what runs."""
        self._stopping.set()
        self._changed.set()

    async def run(self, *, drain: bool = False) -> None:
        """Until stopped; with `drain`, until nothing that we handle is due."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        await self._store.register(self.name, self._routes.handles())
        self._counts.registered = True
        try:
            await self._run(drain)
        finally:
            self._counts.registered = False
            await self._leave()

    async def _leave(self) -> None:
        """Record that we stopped, so that others need not wait a lease. A later heartbeat would undo it."""
        try:
            await self._store.leave(self.name)
        except HookledgerError as error:
            log.warning("this worker is listed as alive until its lease ends: %s", error)

    async def _run(self, drain: bool) -> None:
        for transactions in self._transactions:
            await self._store.check(transactions)
        for line in small_pools(self._transactions, self._settings.concurrency):
            log.warning("%s", line)
        for line in self._currents.problems():
            log.warning("%s", line)
        self._leases.start()
        watch_libraries()
        watchdog = Watchdog("no other handler of this worker runs", self._busy)
        watchdog.start()
        outbox = asyncio.create_task(self._outbox.run())
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                self._leases.alive()
                claimed = await self._claim_safely()
                self._start()
                if drain and self._nothing_due and not self._running and not self._hand:
                    self._outbox.stop()
                    await outbox
                    await self._outbox.drain()
                    return
                if not claimed or not self._ask():
                    await self._idle()
        finally:
            watchdog.stop()
            self._outbox.stop()
            # Wait for the reply to a claim in flight: else its effects have no owner until their lease expires.
            await asyncio.wait([outbox], timeout=CLAIM_END)
            await self._shut_down()
            outbox.cancel()
            await asyncio.gather(outbox, return_exceptions=True)

    # ── claim ──

    async def _claim_safely(self) -> int:
        """Return how many events were claimed; -1 in an outage, when it is unknown what is due. No reason to stop."""
        try:
            return await self._claim()
        except HookledgerError as error:
            log.warning("nothing claimed: %s", error)
            self._orphans_possible = True
            await asyncio.sleep(min(1.0, self._settings.poll * 5))
            return -1

    async def _claim(self) -> int:
        if self._alone and (self._running or self._hand):
            return 0
        self._alone = False
        if self._orphans_possible:
            await self._release_orphans()
        if self._room() < 1:
            return 0
        if not self._due or self._follows or time.monotonic() >= self._look_at or self._may_be_unseen():
            await self._look()
        if self._poison_types and not (self._others_first and self._due):
            return await self._claim_alone()
        self._others_first = False
        asked, since = self._ask(), time.monotonic()
        if not asked:
            return 0
        claimed = await self._store.claim_shares(self.name, [one.share for one in asked], self._settings.lease)
        self._due.took(asked, claimed)
        return self._take(claimed, since)

    async def _claim_alone(self) -> int:
        """Nothing may run beside an event that crashed its worker twice: finish first, then take it alone. Sources
        take turns, and others are claimed between two of them."""
        if self._running or self._hand:
            return 0
        since, poison = time.monotonic(), self._poison_types
        source = min((kind.source for kind in poison), key=lambda source: self._ran_alone.get(source, 0.0))
        self._ran_alone[source] = since
        self._look_at, self._poison_types, self._others_first = 0.0, [], True
        kinds = [kind for kind in poison if kind.source == source]
        claimed = await self._store.claim_alone(self.name, kinds, self._settings.lease)
        self._alone = bool(claimed)
        return self._take(claimed, since)

    async def _release_orphans(self) -> None:
        """A claim that failed may have been made all the same, its answer lost: we hold what we do not know of."""
        known = {claimed.id for group in self._running.values() for claimed in group}
        known.update((claimed.id for claimed in self._hand), self._settling.values())
        held = await self._store.held(self.name)
        self._orphans_possible = False
        self._settle_later([Outcome(i, claim, "release") for i, claim in held if i not in known])

    async def _look(self) -> None:
        """Which of the kinds that we handle have something due, the longest due first."""
        self._follows = False  # what ends while we ask sets it again: the answer may be from before
        found = await self._store.waiting()
        if any(one.unplaced for one in found) and await self._placing.place():
            found = await self._store.waiting()
        waiting = [w for w in found if w.due_in <= 0 and self._routes.find(w.kind)]
        flows: dict[Flow, list[Kind]] = {}
        for kind in [one.kind for one in waiting if not one.alone]:
            flows.setdefault(self._flow(kind), []).append(kind)
        self._due.found(flows)
        alone = [w.kind for w in waiting if w.alone]
        self._poison_types = [kind for kind in alone if not self._slots.resting(self._flow(kind).library)]
        self._nothing_due = not (waiting or self._follows or any(one.unplaced for one in found))
        self._look_at, self._claimed_since = time.monotonic() + 1.0, 0
        self._look_after = max(LOOK_AFTER, len(found))  # a look costs a step for each kind

    def _may_be_unseen(self) -> bool:
        """Time to ask for sources that had nothing due at the last look."""
        return self._claimed_since >= self._look_after and bool(self._sources - self._due.sources)

    def _flow(self, kind: Kind) -> Flow:
        handler = self._handler(kind)
        return Flow(kind.source, self._library(handler), handler.batch)

    def _handler(self, kind: Kind) -> Handler:
        handler = self._routes.find(kind)
        assert handler is not None, "only what we handle is claimed"
        return handler

    def _ask(self) -> list[Asked]:
        """What to claim next: for the free slots, and as much as they will get through in a moment."""
        among = {limited for flow in self._due.flows for limited in flow.limited}
        limits, in_hand = self._slots.limits(among, self._ahead), self._hand.runs()[1]
        return self._due.ask(self._room(), {limited: most - in_hand[limited] for limited, most in limits.items()})

    def _room(self) -> int:
        """For how many runs of handlers to claim. For none while half of what may be in hand still is: few large
        claims cost less than many small ones."""
        in_hand, ahead = self._hand.runs()[0], self._ahead
        if not self._slots.left and in_hand > self._settings.concurrency * ahead / 2:
            return 0
        return self._slots.room(ahead) - in_hand

    @property
    def _ahead(self) -> float:
        """How often the slots will be free again in a moment."""
        return min(3.0, self._settings.prefetch / self._mean_time)

    def _tell_first(self) -> None:
        tell, self.claims_first = self.claims_first, lambda: None
        tell()

    def _take(self, claimed: list[Claimed], since: float) -> int:
        if claimed:
            self._tell_first()
        self._leases.hold(claimed, since)
        self._hand.add(claimed)
        self._claimed_since += len(claimed)
        return len(claimed)

    # ── start ──

    def _start(self) -> None:
        """As many of the events in hand as there are slots; those that a limit stops wait."""
        while self._slots.left and (found := self._hand.next(self._may_start)):
            flow, group = found
            handler = self._handler(group[0].kind)
            task = asyncio.create_task(self._one(handler, group))
            self._slots.take(*flow.limited)
            self._running[task] = group
            task.add_done_callback(partial(self._ended, flow))

    def _may_start(self, flow: Flow) -> bool:
        return all(self._slots.free(limited) > 0 for limited in flow.limited)

    async def _one(self, handler: Handler, group: list[Claimed]) -> None:
        begun = time.monotonic()
        await self._handling.handle(handler, group)
        elapsed = (time.monotonic() - begun) / len(group)
        self._mean_time = 0.9 * self._mean_time + 0.1 * max(elapsed, 1e-4)

    def _busy(self, task: asyncio.Task[object] | None) -> Busy | None:
        """What a task handles or performs. Called in the watchdog's thread."""
        if effect := performed_by(task):
            return busy_with(effect)
        group = self._running.get(task)  # type: ignore[arg-type]  # whatever task it is
        if not group:
            return None
        return busy_in(self._handler(group[0].kind), group[0])

    def _ended(self, flow: Flow, task: asyncio.Task[None]) -> None:
        group = self._running.pop(task)
        self._slots.release(*flow.limited)
        if task.cancelled():
            self._settle_later([self._cut_short(claimed, task) for claimed in group])
        elif error := task.exception():
            log.error("worker: internal error", exc_info=error)
        for claimed in group:
            self._leases.drop(claimed.id)
            if claimed.entity is not None or self._handler(claimed.kind).stages:
                self._follows, self._nothing_due = True, False  # what follows it may be claimed
        if not self._is_stopping():
            self._start()  # not only after the next claim, which may take a while
        self._changed.set()

    def _cut_short(self, claimed: Claimed, task: asyncio.Task[None]) -> Outcome:
        handler = self._handler(claimed.kind)
        owned, by_worker = self._leases.owns(claimed.id), task in self._cancelled or self._is_stopping()
        way = ways.cut_short(claimed, handler, self._settings, owned=owned, by_worker=by_worker)
        if owned:
            self._handling.count(handler, claimed, BY_NAME[way.transition].attempt, None)
        return way

    def _is_stopping(self) -> bool:
        """Also if the application cancels this worker and its handlers together, as the end of asyncio.run does."""
        worker = self._task
        return self._stopping.is_set() or worker is None or worker.done() or worker.cancelling() > 0

    async def _idle(self) -> None:
        """Until something ends, or it is time to look again."""
        try:
            async with asyncio.timeout(self._settings.poll):
                await self._changed.wait()
        except TimeoutError:
            pass

    # ── lose, stop ──

    def _on_lost(self, ident: UUID) -> None:
        """Called in the heartbeat's thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._abandon, ident)

    def _abandon(self, ident: UUID) -> None:
        """Cancel it and log that: until another worker takes it over, we can release it."""
        if claimed := self._hand.remove(ident):
            log.warning("claim lost: event %s was not started", ident)
            self._settle_later([ways.released(claimed)])
        for task, group in self._running.items():
            if any(claimed.id == ident for claimed in group):
                log.warning("claim lost: event %s is abandoned, nothing it still does is kept", ident)
                self._cancel(task)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        self._cancelled.add(task)
        task.cancel()

    def _settle_later(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            task = asyncio.create_task(self._settler.settle(outcome))
            self._settling[task] = outcome.id
            task.add_done_callback(self._settling.pop)

    async def _shut_down(self) -> None:
        """Release what was not started, let the rest finish, cut it short after `shutdown_timeout`."""
        unstarted = self._hand.clear()
        self._settle_later([ways.released(claimed) for claimed in unstarted])
        for claimed in unstarted:
            self._leases.drop(claimed.id)
        outbox = asyncio.create_task(self._outbox.shut_down(self._settings.shutdown_timeout))
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.shutdown_timeout)
        for _ in range(2):  # the second time for those that wait for a database that does not answer
            for task in list(self._running):
                self._cancel(task)
            if self._running:
                await asyncio.wait(self._running, timeout=CANCEL_END)
        await outbox
        await self._calls.close(CALLS_END)
        if self._settling:
            await asyncio.wait(self._settling, timeout=SETTLE_END)
        await asyncio.to_thread(self._leases.stop)
