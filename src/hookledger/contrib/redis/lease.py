"""The right to run the work of a key, renewed while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

from ...errors import ClaimLost
from .commands import Claim, Commands
from .errors import GuardUnavailable


class Lease:
    """What the work gets: whether it still has the key.

    A heartbeat renews it. Work that must not overlap with another run awaits `renew()` before each irreversible step.
    """

    def __init__(self, commands: Commands, claim: Claim, *, seconds: float, guarded: bool, since: float) -> None:
        self.claim = claim
        self.guarded: bool = guarded
        """False: the work runs without a lease, because Redis was away, and another caller may run it too."""
        self._commands = commands
        self._seconds = seconds
        self._until = since + seconds
        self._taken = False
        self._ended = asyncio.Event()
        self._heartbeat: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Another caller has the key, or may have it: Redis did not renew the lease before it expired."""
        return self._taken or (self.guarded and time.monotonic() > self._until)

    async def renew(self) -> None:
        """Renew the lease; raises ClaimLost if another caller has the key, GuardUnavailable if Redis is away."""
        since = time.monotonic()
        if self._taken or not await self._commands.renew(self.claim):
            self._taken = True
            raise ClaimLost(f"the lease of {self.claim.key} was lost: another caller has the key; stop")
        self._until = since + self._seconds
        self.guarded = True

    def start(self) -> None:
        """Start the heartbeat."""
        self._heartbeat = asyncio.create_task(self._beat(), name="hookledger-redis-lease")

    async def stop(self) -> None:
        """End the heartbeat.

        A renewal that was sent is awaited: after the key is released, it would claim the key again.
        """
        self._ended.set()
        if self._heartbeat is not None:
            await asyncio.wait([self._heartbeat])

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._seconds / 3 * random.uniform(0.7, 1.0))  # noqa: S311
            if self._ended.is_set():
                return
            try:
                await self.renew()
            except GuardUnavailable:
                continue  # until it expires there is time to try again; `lost` says when there was none
            except ClaimLost:
                return
