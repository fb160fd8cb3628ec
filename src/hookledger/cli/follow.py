"""Waits for a job, with a progress bar on a terminal; runs it itself when no worker does."""

from __future__ import annotations

import asyncio
import sys
import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import WrongState
from ..inbox import Inbox
from ..jobs import Job
from ..operate.insight import Insight
from ..store.protocol import Store
from .common import run, status

PATIENCE = 5.0
"""Seconds that a job may lie there, though a worker lives, before the command takes it up itself."""


def follow(inbox: Inbox, job: Job) -> Job:
    """The job when it is over. Ctrl-C leaves it to the workers. Raises WrongState for one that is never run."""
    if job.frozen_at is None and job.unfinished:
        raise WrongState(f"the set of job {job.id} is not complete: cancel it, and make it again")
    try:
        after: Job = run(_follow(inbox, job))
    except KeyboardInterrupt:
        status.print(f"\nJob {job.id} goes on in a worker, if one is alive.")
        words = f"To watch: hookledger jobs show {job.id}; to go on here: hookledger jobs run {job.id}"
        status.print(words, soft_wrap=True)
        status.print(f"To stop it: hookledger jobs cancel {job.id} --reason …", soft_wrap=True)
        raise SystemExit(130) from None
    return after


async def _follow(inbox: Inbox, job: Job) -> Job:
    async with inbox.opened() as store:
        insight = inbox.insight(store)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=status, disable=not sys.stderr.isatty(), transient=True) as progress:
            bar = progress.add_task(job.name, total=job.total)
            own = asyncio.create_task(_take_up(inbox, store, insight, job))
            try:
                while (job := await insight.job(str(job.id))).unfinished:
                    progress.update(bar, completed=job.done + job.refused)
                    if own.done():
                        own.result()  # says what went wrong
                    await asyncio.sleep(0.3)
            finally:
                own.cancel()
                await asyncio.gather(own, return_exceptions=True)
    say_end(job)
    return job


async def _take_up(inbox: Inbox, store: Store, insight: Insight, job: Job) -> None:
    """Run it here, whenever nobody else does: at once if no worker is alive."""
    runner, idle_since = inbox.job_runner(store), time.monotonic()
    while True:
        now = await insight.job(str(job.id))
        if now.lease_left > 0:
            idle_since = time.monotonic()
        alive = await somebody_lives(inbox, insight)
        if now.lease_left == 0 and (not alive or time.monotonic() - idle_since > PATIENCE):
            status.print(f"{'No worker takes it up' if alive else 'No worker is alive'}: it is run here.")
            await runner.run_one(job.id)
        await asyncio.sleep(0.5)


async def somebody_lives(inbox: Inbox, insight: Insight) -> bool:
    """Whether a worker was seen within a lease."""
    return any(worker.seen_ago <= inbox.settings.work.lease for worker in await insight.workers())


def say_end(job: Job) -> None:
    figures = f"{job.done:,} done, {job.refused:,} refused, {job.open:,} not touched"
    status.print(f"Job {job.id} is {job.state}: {figures}.")
    if job.refused:
        status.print(f"Why they were refused: hookledger jobs show {job.id}", soft_wrap=True)
