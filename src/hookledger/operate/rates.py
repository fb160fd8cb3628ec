"""Counts over time: read them, and sum them up."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from msgspec import Struct

from ..errors import BadData, HookledgerError
from ..store.ops.rates import MOST, STEPS, Rate, Rates, floor
from .context import Context

log: logging.Logger = logging.getLogger(__name__)

MOST_STEPS = 2_000
"""Steps of time in one answer."""
DEFAULT_STEPS = 60
KEPT: dict[int, float] = {10: 120.0, 60: 6 * 3600.0, 600: 14 * 86400.0, 3600: 400 * 86400.0}
"""Seconds that the rows of each step are kept before they are summed up; those of an hour are then deleted."""
WRITERS = 7 * 86400.0
"""Seconds after which a process that wrote nothing is forgotten: longer than any keeps trying to write a batch."""
EVERY = 60.0
MOST_SUMS = 200
"""Transactions of one round, at most, for each step."""
PAUSE = 0.05
"""Seconds between two of them: on SQLite acknowledgements wait for each."""


class RatesPage(Struct, frozen=True):
    """Counts of a time, by step, source and what."""

    step: int
    since: datetime
    until: datetime
    rates: list[Rate]
    """In the order of time. What did not happen in a step has no row."""
    complete: bool
    """False: there are more rows than one answer has; ask for less time, for a longer step or for one source."""


async def rates(
    context: Context,
    *,
    step: int = 60,
    since: datetime | None = None,
    until: datetime | None = None,
    source: str | None = None,
) -> RatesPage:
    """Return counts between two times, by default the last 60 steps. BadData for more than 2,000 steps."""
    if step not in STEPS:
        raise BadData(f"step must be one of {', '.join(map(str, STEPS))} seconds, not {step}")
    until = until or await context.store.rates.now()
    since = floor(since or until - timedelta(seconds=step * DEFAULT_STEPS), step)
    if (until - since).total_seconds() / step > MOST_STEPS:
        raise BadData(f"the time has more than {MOST_STEPS:,} steps: ask for less, or for a longer step")
    found = await context.store.rates.read(step, since, until, source=source, most=MOST + 1)
    return RatesPage(step, since, until, found[:MOST], len(found) <= MOST)


async def recent(context: Context, seconds: int, step: int) -> RatesPage:
    """Return the counts of the last seconds, without the step that has not ended."""
    until = floor(await context.store.rates.now(), step)
    return await rates(context, step=step, since=until - timedelta(seconds=seconds), until=until)


class RateSums:
    """Sums rows of short steps up to longer ones, as they grow old. Several workers may do so."""

    def __init__(self, store: Rates) -> None:
        self._store = store

    async def run(self) -> None:
        """Every minute, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.round()
            except HookledgerError as error:
                log.debug("counts for charts are not summed up yet: %s", error)
            except Exception:
                log.exception("counts for charts are not summed up: internal error")

    async def round(self) -> int:
        """Sum up what is old enough; returns how many steps."""
        done = 0
        for step, keep in KEPT.items():
            for _ in range(MOST_SUMS):
                if not await self._store.sum_up(step, keep):
                    break
                done += 1
                await asyncio.sleep(PAUSE)
        await self._store.forget_writers(WRITERS)
        return done
