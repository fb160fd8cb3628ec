"""Takes back what dead workers hold, and skips what nobody handles."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from ..errors import HookledgerError
from ..ledger import Effect
from ..model import Expired, Rescue, Waiting, WorkerInfo
from ..states import EffectKind
from ..store.protocol import Store

log = logging.getLogger(__name__)


class Policy(Protocol):
    """What the rescuer asks of a retry policy."""

    def delay(self, attempt: int, chance: float | None = None) -> float: ...
    def exhausted(self, attempts: int, age: float) -> str | None: ...


class Grace:
    """When rescuing is safe: not before a whole lease has passed since anything disturbed the heartbeats.

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


class Rescuer:
    """`policy`: the retry policy of an event's kind; `covers`: whether a pattern takes a type; `again`: when the
    outbox goes on by itself with an effect whose outcome nobody knows, None when it does not.
    """

    def __init__(
        self,
        store: Store,
        policy: Callable[[Expired], Policy],
        covers: Callable[[str, str], bool],
        again: Callable[[Effect], float | None],
        *,
        lease: float,
        unhandled_after: float,
    ) -> None:
        self._store = store
        self._policy = policy
        self._covers = covers
        self._again = again
        self._lease = lease
        self._unhandled_after = unhandled_after
        self._grace = Grace(lease)
        self._watched = Grace(unhandled_after)

    async def run(self) -> None:
        """For ever, every quarter of a lease."""
        while True:
            await asyncio.sleep(self._lease / 4)
            try:
                await self._round()
            except HookledgerError as error:
                self._disturb()
                log.warning("upkeep: %s", error)
            except Exception:  # whatever it is, without this loop dead workers would keep what they hold
                self._disturb()
                log.exception("upkeep: a defect")

    async def _round(self) -> None:
        health = await self._store.health()
        if not health.writable:
            self._disturb()
            return
        now = time.time() + health.clock_skew
        if self._grace.over(now):
            await self.rescue()
            await self.doubt()
        # Nobody handles it: only whoever has watched for so long without a gap can say that.
        if self._watched.over(now):
            await self.skip_unhandled()

    def _disturb(self) -> None:
        self._grace.disturb()
        self._watched.disturb()

    async def rescue(self) -> int:
        """processing → retrying or failed, for every lease that has run out."""
        total = 0
        while expired := await self._store.expired(100):
            rescued = await self._store.rescue([self._decide(event) for event in expired])
            total += rescued
            for event in expired:
                log.warning("rescued event %s from %s", event.id, event.worker)
            if rescued == 0:
                break
        return total

    async def doubt(self) -> int:
        """started → unknown, for every call that nobody lived to tell the end of."""
        total = 0
        while expired := await self._store.ledger.expired(100):
            doubted = 0
            for effect in expired:
                due_in = self._again(effect) if effect.kind is EffectKind.LATER else None
                if await self._store.ledger.doubt(effect, due_in):
                    doubted += 1
                    log.warning("effect %s %r: nobody knows whether it happened", effect.name, effect.key)
            total += doubted
            if doubted == 0:
                break
        return total

    def _decide(self, event: Expired) -> Rescue:
        policy = self._policy(event)
        exhausted = policy.exhausted(event.attempts, event.run_age)
        reason = f"the worker died (crash {event.crashes + 1})"
        if exhausted:
            return Rescue(event.id, event.claim, None, f"{exhausted}: {reason}")
        return Rescue(event.id, event.claim, policy.delay(event.attempts), reason)

    async def skip_unhandled(self) -> int:
        """pending → skipped, where no worker seen within the configured time handles the type."""
        overdue = [w for w in await self._store.waiting() if -w.due_in > self._unhandled_after]
        if not overdue:
            return 0
        workers = [w for w in await self._store.workers() if w.seen_ago <= self._unhandled_after]
        skipped = 0
        for waiting in overdue:
            if not self._handled(waiting, workers):
                skipped += await self._store.skip_unhandled(waiting.kind, self._unhandled_after, 1000)
        await self._store.forget_workers(max(self._unhandled_after, self._lease) * 2)
        if skipped:
            log.warning("skipped %d events that nobody handles", skipped)
        return skipped

    def _handled(self, waiting: Waiting, workers: list[WorkerInfo]) -> bool:
        return any(
            source == waiting.kind.source and self._covers(pattern, waiting.kind.type)
            for worker in workers
            for source, pattern in worker.handles
        )
