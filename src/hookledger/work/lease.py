"""Leases: what this worker owns, renewed by a separate thread and connection.

A handler that keeps the event loop busy does not lose its lease. A claim that
cannot be renewed in time is given up here before anyone else may take it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ..errors import HookledgerError
from ..model import Claimed
from ..observe import lines
from ..observe.attempt import facts_of
from ..observe.logs import RateLimitedLogger
from ..observe.metrics.counts import WorkCounts
from ..store.protocol import Heartbeat

log: logging.Logger = logging.getLogger(__name__)

NOT_OURS = float("-inf")
"""The deadline of a claim that the database does not know as ours."""


class Leases:
    """`lost` is called in the heartbeat's thread for each claim that is no longer ours.

    `patience`: how long the event loop may be silent. A handler may keep it busy for a while; one that blocks it for
    longer than any timeout would keep its claims indefinitely, so then no lease is renewed, and `stuck` is called.
    """

    def __init__(
        self,
        heartbeat: Callable[[float], Awaitable[Heartbeat]],
        lease: float,
        lost: Callable[[UUID], None],
        *,
        patience: float,
        stuck: Callable[[], None],
        counts: WorkCounts,
    ) -> None:
        self._heartbeat = heartbeat
        self._lease = lease
        self._lost = lost
        self._patience = patience
        self._stuck = stuck
        self._counts = counts
        self._signs_of_life = time.monotonic()
        self._held: dict[UUID, tuple[int, float]] = {}
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hookledger-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._counts.heartbeat_alive = self._thread.is_alive

    def stop(self) -> None:
        self._counts.heartbeat_alive = lambda: True  # it ends as it should
        self._stop.set()
        self._thread.join()

    def alive(self) -> None:
        """Called by the event loop, again and again."""
        self._signs_of_life = time.monotonic()

    def hold(self, claims: Sequence[Claimed], since: float) -> None:
        """`since`: the monotonic time just before the claim was made, so that we never think it longer than it is."""
        with self._guard:
            self._held |= {claimed.id: (claimed.claim, self._deadline(since)) for claimed in claims}
        if lines.wanted():
            for claimed in claims:
                lines.tell(lines.CLAIMED, **facts_of(claimed))

    def drop(self, ident: UUID) -> None:
        with self._guard:
            self._held.pop(ident, None)

    def owns(self, ident: UUID) -> bool:
        """Whether the claim is certainly still ours. The store's fence has the last word."""
        with self._guard:
            held = self._held.get(ident)
        return held is not None and time.monotonic() < held[1]

    def _deadline(self, since: float) -> float:
        """A tenth before the lease ends: time to stop in."""
        return since + self._lease * 0.9

    def _run(self) -> None:
        asyncio.run(self._beat_until_stopped())

    async def _beat_until_stopped(self) -> None:
        heartbeat = await self._heartbeat(self._lease / 3)  # in time to give up what cannot be renewed
        next_beat, seldom = 0.0, RateLimitedLogger(log)
        while not self._stop.wait(min(self._lease / 20, 1.0)):
            self._give_up_overdue()
            if time.monotonic() - self._signs_of_life > self._patience:
                log.critical("a handler has blocked the event loop for %.0f s: no claim is renewed", self._patience)
                self._stuck()
                next_beat = time.monotonic() + self._lease / 3
            if time.monotonic() < next_beat:
                continue
            try:
                await self._beat(heartbeat)
                next_beat = time.monotonic() + self._lease / 3
            except HookledgerError as error:
                seldom.warning("no heartbeat: %s", error)
                next_beat = time.monotonic() + min(self._lease / 10, 1.0)
            except Exception:  # whatever it is, without this thread every claim would be lost unnoticed
                log.exception("no heartbeat: internal error")
                next_beat = time.monotonic() + min(self._lease / 10, 1.0)
        await heartbeat.close()

    async def _beat(self, heartbeat: Heartbeat) -> None:
        since = time.monotonic()
        with self._guard:
            claims = [(ident, claim) for ident, (claim, _) in self._held.items()]
        still_ours = await heartbeat.beat(claims, self._lease)
        self._counts.heartbeat_at = time.time()
        for ident, claim in claims:
            with self._guard:
                if self._held.get(ident, (0, 0.0))[0] == claim:
                    # What is not ours may be processed: its outcome is committed, and we are about to hear so. It is
                    # given up if it is still held at the next turn.
                    self._held[ident] = (claim, self._deadline(since) if ident in still_ours else NOT_OURS)

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        with self._guard:
            overdue = [ident for ident, (_, deadline) in self._held.items() if deadline < now]
        for ident in overdue:
            self._lose(ident)

    def _lose(self, ident: UUID) -> None:
        self._counts.claims_lost += 1
        self.drop(ident)
        self._lost(ident)
