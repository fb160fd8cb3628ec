"""Waits for a job, with a progress bar on a terminal; runs it itself when no worker does."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import WrongState
from ..inbox import Inbox
from ..operate.insight import Insight
from ..states import State
from ..store.ops.job import Job
from ..store.protocol import Store
from .common import run, status
from .following import NO_WORKER, any_worker_alive, say_hindrances
from .table import print_command, say

PATIENCE = 5.0
"""Seconds that a job may lie there, though a worker lives, before the command takes it up itself."""


def follow(inbox: Inbox, job: Job) -> Job:
    """The job when it is over. Ctrl-C leaves it to the workers. Raises WrongState for one that is never run."""
    if job.frozen_at is None and job.unfinished:
        raise WrongState(f"the set of job {job.id} is not complete: cancel it, and make it again")
    try:
        after: Job = run(_follow(inbox, job))
    except KeyboardInterrupt:
        say(f"\nJob {job.id} continues in a worker, if one is alive.")
        command = ["hookledger", "jobs"]
        print_command("To watch", [*command, "show", str(job.id)])
        print_command("To continue here", [*command, "run", str(job.id)])
        print_command("To stop it", [*command, "cancel", str(job.id), "--reason", "WHY"])
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
        now, alive = await insight.job_states(job), await any_worker_alive(inbox, insight)
    say_end(job, now, alive)
    return job


async def _take_up(inbox: Inbox, store: Store, insight: Insight, job: Job) -> None:
    """Run it here, whenever nobody else does: at once if no worker is alive."""
    runner, idle_since = inbox.job_runner(store), time.monotonic()
    while True:
        now = await insight.job(str(job.id))
        if now.lease_left > 0:
            idle_since = time.monotonic()
        alive = await any_worker_alive(inbox, insight)
        if now.lease_left == 0 and (not alive or time.monotonic() - idle_since > PATIENCE):
            status.print(f"{'No worker takes it up' if alive else 'No worker is alive'}: it is run here.")
            await runner.run_one(job.id)
        await asyncio.sleep(0.5)


def say_end(job: Job, now: Mapping[str, int], alive: bool) -> None:
    """`now`: how many of the events that were acted on are in each state; that they were is not that they are
    processed."""
    figures = f"{job.done:,} done, {job.refused:,} refused, {job.open:,} not touched"
    are = f" The {job.done:,} events that were acted on are now: {counted(now)}." if now else ""
    say(f"Job {job.id} is {job.state}: {figures}.{are}")
    if State.PENDING in now:
        say_hindrances([] if alive else [NO_WORKER])
    if job.refused:
        print_command("Why they were refused", ["hookledger", "jobs", "show", str(job.id)])
    if job.done:
        print_command("What became of each", ["hookledger", "jobs", "items", str(job.id)])


def counted(now: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in now.items())
