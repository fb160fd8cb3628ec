"""Waits for a job with a progress bar, and runs it here if no worker does."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import WrongState
from ..inbox import Inbox
from ..operate.bulk import jobs
from ..operate.bulk.runner import JobRunner
from ..operate.context import Context
from ..operate.workers import any_works
from ..states import State
from ..store.ops.job import Job
from .common import run_on, status
from .next_steps import NO_WORKER, say_hindrances
from .table import print_command, say

PATIENCE = 5.0
"""Seconds that a job may wait for a live worker before this command runs it."""


def follow(inbox: Inbox, job: Job) -> Job:
    """Wait for a job and return it when it is over. Ctrl-C leaves it to the workers. Raises WrongState for an
    incomplete job."""
    if job.frozen_at is None and job.unfinished:
        raise WrongState(f"job {job.id} cannot run: its set of events is incomplete; cancel it and plan it again")
    try:
        return run_on(inbox, lambda context: _follow(context, job))
    except KeyboardInterrupt:
        say(f"\nJob {job.id} continues in a worker, if one is alive.")
        command = ["hookledger", "jobs"]
        print_command("To watch", [*command, "show", str(job.id)])
        print_command("To continue here", [*command, "run", str(job.id)])
        print_command("To stop it", [*command, "cancel", str(job.id), "--reason", "WHY"])
        raise SystemExit(130) from None


async def _follow(context: Context, job: Job) -> Job:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=status, disable=not sys.stderr.isatty(), transient=True) as progress:
        bar = progress.add_task(job.name, total=job.total)
        own = asyncio.create_task(_take_up(context, job))
        try:
            while (job := await jobs.find(context, str(job.id))).unfinished:
                progress.update(bar, completed=job.done + job.not_allowed)
                if own.done():
                    own.result()  # raises its error
                await asyncio.sleep(0.3)
        finally:
            own.cancel()
            await asyncio.gather(own, return_exceptions=True)
    say_end(job, await jobs.states(context, job), await any_works(context))
    return job


async def _take_up(context: Context, job: Job) -> None:
    """Run the job here while no worker holds it: immediately if no worker is alive, else after PATIENCE."""
    runner, idle_since = JobRunner(context), time.monotonic()
    while True:
        now = await jobs.find(context, str(job.id))
        if now.lease_left > 0:
            idle_since = time.monotonic()
        alive = await any_works(context)
        if now.lease_left == 0 and (not alive or time.monotonic() - idle_since > PATIENCE):
            status.print(f"{'No worker runs it' if alive else 'No worker is alive'}: running it here.")
            await runner.run_one(job.id)
        await asyncio.sleep(0.5)


def say_end(job: Job, now: Mapping[str, int], alive: bool) -> None:
    """Print how a job ended. `now`: the states of the events it acted on; acted on does not mean processed."""
    figures = f"{job.done:,} done, {job.not_allowed:,} not allowed, {job.open:,} not touched"
    are = f" The {job.done:,} events that were acted on are now: {counted(now)}." if now else ""
    say(f"Job {job.id} is {job.state}: {figures}.{are}")
    if State.PENDING in now:
        say_hindrances([] if alive else [NO_WORKER])
    if job.not_allowed:
        print_command("To see why", ["hookledger", "jobs", "show", str(job.id)])
    if job.done:
        print_command("To see what happened to each", ["hookledger", "jobs", "items", str(job.id)])


def counted(now: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in now.items())
