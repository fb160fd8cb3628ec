"""Daily tasks of all workers together: one worker claims each day's slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, time, timedelta

from msgspec import Struct

from ..errors import HookledgerError

log: logging.Logger = logging.getLogger(__name__)

EVERY = 30.0
"""Seconds between looks at this host's clock; the slot in the database decides who runs."""


class Daily(Struct, frozen=True):
    """A daily task. `run` gets the planned time, and does nothing if another worker has done or is doing it."""

    name: str
    at: time
    run: Callable[[datetime], Awaitable[None]]


def slot(at: time, now: datetime) -> datetime:
    """Return the latest time of day that has passed: missed days are made up once, not once per day."""
    today = datetime.combine(now.astimezone(UTC).date(), at, UTC)
    return today if today <= now else today - timedelta(days=1)


class Schedule:
    def __init__(self, plans: list[Daily], now: Callable[[], datetime], *, every: float = EVERY) -> None:
        self._plans = plans
        self._now = now
        self._every = every

    async def run(self) -> None:
        """Run due tasks until cancelled."""
        while self._plans:
            await self.round()
            await asyncio.sleep(self._every)

    async def round(self) -> None:
        """Run each task that is due; a failure of one does not stop the others."""
        for plan in self._plans:
            try:
                await plan.run(slot(plan.at, self._now()))
            except HookledgerError as error:
                log.warning("%s: %s", plan.name, error)
            except Exception:
                log.exception("%s: internal error", plan.name)
