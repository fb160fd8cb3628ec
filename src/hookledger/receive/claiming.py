"""Record deliveries and claim their events in one commit, for handlers that answer them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from uuid import UUID

from ..batching import Flush, retry_individually, short_way_first
from ..errors import HookledgerError, Unavailable
from ..model import Arrival, Claimed, Outcome
from ..states import State
from ..store.ops.answers import Claim
from ..store.protocol import Store

log: logging.Logger = logging.getLogger(__name__)

LOOK = 0.25
"""Seconds between two looks for what was claimed."""
SOUGHT = 1000
"""Events that are looked for, at most; others wait for their leases to end."""


class Claiming:
    """Claims events for requests: new ones in the commit that records them (it is the flush of a batcher of arrivals
    of one item each), and known ones.

    If the outcome of a commit is unknown, it may have claimed events that nothing here begins. They are looked for
    until their leases end, and released, so that they cost no attempt and no wait.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        lease: float,
        *,
        begun: Callable[[UUID], bool],
        settle: Callable[[Outcome], Awaitable[object]],
    ) -> None:
        """`begun`: whether this process handles an event, or is about to."""
        self._store = store
        self._worker = worker
        self._lease = lease
        self._begun = begun
        self._settle = settle
        self._flush: Flush[Arrival, Claim] = short_way_first(
            lambda arrivals: store.claim_new(arrivals, worker, lease),
            retry_individually(lambda arrivals: store.record_claimed(arrivals, worker, lease)),
        )
        self._sought: dict[UUID, tuple[int, float]] = {}
        """Events that may be claimed: under which number, and when the lease has ended, by the monotonic clock."""
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, arrivals: Sequence[Arrival]) -> Sequence[Claim | Exception]:
        """Record deliveries, and claim what is new."""
        ends = time.monotonic() + self._lease
        try:
            found = await self._flush(arrivals)
        except Unavailable:
            self._seek_new(arrivals, ends)
            raise
        self._seek_new((a for a, one in zip(arrivals, found, strict=True) if isinstance(one, Unavailable)), ends)
        return found

    async def claim_seen(self, event_id: UUID, seen: int, *, crashed: bool = False) -> Claimed | None:
        """Claim a known event that still has the claim number `seen`; None if it cannot be claimed."""
        ends = time.monotonic() + self._lease
        try:
            claimed = await self._store.claim_seen(event_id, seen, self._worker, self._lease, crashed=crashed)
        except Unavailable:
            self._seek(event_id, seen + 1, ends)
            raise
        if claimed is not None:  # a number is given once: what was sought under this one or a lower one never was
            self._sought.pop(event_id, None)
        return claimed

    def _seek_new(self, arrivals: Iterable[Arrival], ends: float) -> None:
        for arrival in arrivals:
            self._seek(arrival.event_ids[0], 1, ends)

    def _seek(self, event_id: UUID, claim: int, ends: float) -> None:
        if len(self._sought) < SOUGHT:
            self._sought[event_id] = claim, ends
        if self._task is None:
            self._task = asyncio.create_task(self._look_until_found())

    async def _look_until_found(self) -> None:
        """Also for what is not there yet: a server may still commit what a connection has lost."""
        try:
            while self._sought:
                with contextlib.suppress(HookledgerError):  # the next look may succeed
                    await self._look()
                await asyncio.sleep(LOOK)
                now = time.monotonic()
                self._sought = {event: sought for event, sought in self._sought.items() if sought[1] > now}
        finally:
            self._task = None

    async def _look(self) -> None:
        for event, state in (await self._store.answers.find(list(self._sought))).items():
            claim, ends = self._sought.get(event, (0, 0.0))
            if ends <= time.monotonic() or state.claim < claim or self._begun(event):
                continue  # its lease has ended, the commit may still come, or a run of this process has it
            del self._sought[event]
            if state.state is State.PROCESSING and (state.claim, state.worker) == (claim, self._worker):
                log.warning("event %s is released: the commit that claimed it was reported as failed", event)
                await self._settle(Outcome(event, claim, "release"))

    async def close(self) -> None:
        """Leave what was not found to its lease."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
