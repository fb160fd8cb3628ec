"""Maintenance: what a worker does besides running handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from ..work.reclaim import LeaseReclaimer
from .alerts.sender import AlertSender
from .bulk.runner import JobRunner
from .consistency.check import checker
from .context import Context
from .rates import RateSums
from .reconcile.reconcile import daily
from .retention.prune import pruner
from .schedule import Schedule
from .schemas.drift import FieldWatch
from .unhandled import UnhandledWatch


class Runner(Protocol):
    async def run(self) -> None:
        """Run until cancelled."""


def schedule(context: Context) -> Schedule:
    """Return the daily tasks; ConfigError if one cannot run."""
    return Schedule(daily(context), context.clock.now)


@contextlib.asynccontextmanager
async def maintained(context: Context, reclaimer: LeaseReclaimer, *, scheduled: bool) -> AsyncIterator[None]:
    """Reclaim leases, run jobs, prune, send alerts, sum up counts, note fields, warn about events without a handler
    and, if `scheduled`, check consistency and run daily tasks, until the block ends."""
    planned: list[Runner] = [schedule(context), checker(context)] if scheduled else []
    unhandled = UnhandledWatch(context, reclaimer.unhandled_after)
    await unhandled.start()
    alerts, sums = AlertSender(context), RateSums(context.store.rates)
    runners: list[Runner] = [reclaimer, JobRunner(context), pruner(context), unhandled, alerts, sums, *planned]
    runners.append(FieldWatch(context))
    tasks = [asyncio.create_task(runner.run()) for runner in runners]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not scheduled:  # a worker that ends when nothing is due may be the only process
            await alerts.last_round()
