"""Reclaims what dead workers hold, and skips events that no worker handles."""

from __future__ import annotations

import asyncio
import logging
import time

from ..effects.declare import Effects
from ..effects.policy import continue_after_unknown
from ..errors import HookledgerError
from ..ledger import Effect
from ..model import Waiting
from ..observe.logs import RateLimitedLogger
from ..observe.metrics.counts import WorkCounts
from ..states import EffectKind
from ..store.ops.answers import PRUNED
from ..store.ops.entities import START
from ..store.ops.workers import Expired, Reclaim, WorkerInfo
from ..store.protocol import Store
from .route import Routes
from .settings import WorkSettings

log: logging.Logger = logging.getLogger(__name__)


BATCHES = 20
"""Of expired answers that one round deletes."""


class Grace:
    """When reclaiming is safe: not before a whole lease has passed since anything disturbed the heartbeats.

    After a start, an outage, a pause of this process or a jump of the
    database's clock, live workers first get the time to renew what they hold.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._last: tuple[float, float] | None = None
        self._until = time.monotonic() + lease

    def disturb(self) -> None:
        self._until = time.monotonic() + self._lease
        self._last = None

    def over(self, database_time: float) -> bool:
        """Whether expired leases can be believed, given what the database's clock says now."""
        now = time.monotonic()
        if self._last is not None:
            mine, theirs = now - self._last[0], database_time - self._last[1]
            if mine > self._lease / 2 or abs(mine - theirs) > self._lease / 4:
                self.disturb()
        self._last = (now, database_time)
        return now >= self._until


class LeaseWatch:
    """Watches the database's clock, for a process that reclaims the event which a request waits for: an expired lease
    is believed only after a whole lease without a disturbance."""

    def __init__(self, store: Store, lease: float) -> None:
        self._store = store
        self._lease = lease
        self._grace = Grace(lease)
        self._limited_log = RateLimitedLogger(log)
        self.may_reclaim: bool = False

    async def run(self) -> None:
        """Look every quarter of a lease, until cancelled."""
        while True:
            try:
                self.may_reclaim = self._grace.over((await self._store.answers.present()).timestamp())
            except HookledgerError as error:
                self._grace.disturb()
                self.may_reclaim = False
                self._limited_log.warning("leases are not watched: %s", error)
            await asyncio.sleep(self._lease / 4)


class LeaseReclaimer:
    """Reclaims events and calls whose lease expired, with the retry policies of `routes` and those of `effects`."""

    def __init__(
        self, store: Store, routes: Routes, effects: Effects, work: WorkSettings, counts: WorkCounts | None = None
    ) -> None:
        self._store = store
        self._routes = routes
        self._effects = effects
        self._retry = work.retry
        self._lease = work.lease
        self.unhandled_after: float = work.unhandled_after
        self._grace = Grace(work.lease)
        self._watched = Grace(work.unhandled_after)
        self._counts = counts or WorkCounts()
        self._forgotten = START

    async def run(self) -> None:
        """Run every quarter of a lease, until cancelled."""
        while True:
            await asyncio.sleep(self._lease / 4)
            try:
                await self._round()
            except HookledgerError as error:
                self._disturb()
                log.warning("maintenance: %s", error)
            except Exception:  # whatever it is, without this loop dead workers would keep what they hold
                self._disturb()
                log.exception("maintenance: internal error")

    async def _round(self) -> None:
        health = await self._store.health()
        if not health.writable:
            self._disturb()
            return
        now = time.time() + health.clock_skew
        if self._grace.over(now):
            await self.reclaim()
            await self.mark_unknown()
        # Only a process that has watched without a gap for so long knows that no worker handles it.
        if self._watched.over(now):
            await self.skip_unhandled()
        await self._forget()

    async def _forget(self) -> None:
        """Forget entities, and answers that have expired. What keeps it from that, such as a lock, is no reason to
        doubt the heartbeats."""
        try:
            self._forgotten = await self._store.entities.forget(self._forgotten) or START
            for _ in range(BATCHES):
                if await self._store.answers.prune() < PRUNED:
                    break
        except HookledgerError as error:
            log.warning("maintenance: entities and expired answers are not forgotten: %s", error)

    def _disturb(self) -> None:
        self._grace.disturb()
        self._watched.disturb()

    async def reclaim(self) -> int:
        """processing → retrying or failed, for every expired lease."""
        total = 0
        while expired := await self._store.expired(100):
            reclaimed = await self._store.reclaim([self._decide(event) for event in expired])
            total += reclaimed
            self._counts.leases_reclaimed += reclaimed
            for event in expired:
                log.warning("reclaimed event %s from %s", event.id, event.worker)
            if reclaimed == 0:
                break
        return total

    async def reclaim_one(self, event: Expired) -> bool:
        """The same for one event; its calls whose leases expired become unknown with those of all others."""
        reclaimed = await self._store.reclaim([self._decide(event)])
        self._counts.leases_reclaimed += reclaimed
        if reclaimed:
            log.warning("reclaimed event %s from %s", event.id, event.worker)
            await self.mark_unknown()
        return bool(reclaimed)

    async def mark_unknown(self) -> int:
        """started → unknown, for every call whose lease expired."""
        total = 0
        while expired := await self._store.ledger.expired(100):
            marked = 0
            for effect in expired:
                due_in = self._again(effect) if effect.kind is EffectKind.LATER else None
                if await self._store.ledger.mark_unknown(effect, due_in):
                    marked += 1
                    log.warning("effect %s %r: lease expired; outcome unknown", effect.name, effect.key)
            total += marked
            if marked == 0:
                break
        return total

    def _again(self, effect: Effect) -> float | None:
        """When the outbox continues with an effect whose outcome is unknown; None when it does not."""
        declared = self._effects.find(effect.name)
        if declared is None:
            return 0.0  # a worker that knows it will follow its policy
        return continue_after_unknown(declared, effect)

    def _decide(self, event: Expired) -> Reclaim:
        handler = self._routes.find(event.kind)
        policy = (handler.retry if handler else None) or self._retry
        exhausted = policy.exhausted(event.attempts, event.run_age)
        reason = f"the worker died (crash {event.crashes + 1})"
        if exhausted:
            return Reclaim(event.id, event.claim, None, f"{exhausted}: {reason}")
        return Reclaim(event.id, event.claim, policy.delay(event.attempts), reason)

    async def skip_unhandled(self) -> int:
        """pending → skipped, where no worker seen within the configured time handles the type in any version. Events
        of one version wait for its handler, which may be deployed later."""
        overdue = [w for w in await self._store.waiting() if -w.due_in > self.unhandled_after]
        if not overdue:
            return 0
        workers = [w for w in await self._store.workers() if w.seen_ago <= self.unhandled_after]
        skipped = 0
        for waiting in overdue:
            if not self._handled(waiting, workers):
                skipped += await self._store.skip_unhandled(waiting.kind, self.unhandled_after, 1000)
        await self._store.forget_workers(max(self.unhandled_after, self._lease) * 2)
        if skipped:
            log.warning("skipped %d events that no worker handles", skipped)
        return skipped

    def _handled(self, waiting: Waiting, workers: list[WorkerInfo]) -> bool:
        """Also by this application: its worker may be dedicated to other sources or types, but the handler exists."""
        patterns = [*self._routes.handles(), *(one for worker in workers for one in worker.handles)]
        return any(one.takes_type(waiting.kind) for one in patterns)
