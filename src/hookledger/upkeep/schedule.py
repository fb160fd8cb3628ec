"""What is done once a day for all workers together: whoever comes first takes the day's slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, time, timedelta

from msgspec import Struct

from ..errors import HookledgerError

log = logging.getLogger(__name__)

EVERY = 30.0
"""Seconds between looks at the clock, which is this host's; the slot in the database decides who goes."""


class Daily(Struct, frozen=True):
    """`run` gets the moment it was planned for, and does nothing when another has done, or is doing, that one."""

    name: str
    at: time
    run: Callable[[datetime], Awaitable[None]]


def slot(at: time, now: datetime) -> datetime:
    """The last such time of day that has come: one that was missed is made up for once, not once for each day."""
    today = datetime.combine(now.astimezone(UTC).date(), at, UTC)
    return today if today <= now else today - timedelta(days=1)


class Schedule:
    def __init__(self, plans: list[Daily], now: Callable[[], datetime], *, every: float = EVERY) -> None:
        self._plans = plans
        self._now = now
        self._every = every

    async def run(self) -> None:
        """For ever."""
        while self._plans:
            await self.round()
            await asyncio.sleep(self._every)

    async def round(self) -> None:
        """Each that is due; whatever goes wrong with one is no reason to leave out the others."""
        for plan in self._plans:
            try:
                await plan.run(slot(plan.at, self._now()))
            except HookledgerError as error:
                log.warning("%s: %s", plan.name, error)
            except Exception:
                log.exception("%s: a defect", plan.name)
