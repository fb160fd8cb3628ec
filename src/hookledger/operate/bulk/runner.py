"""Runs bulk jobs, beside a worker or for a command that waits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from uuid import UUID

from ...errors import HookledgerError
from ...observe.logs import RateLimitedLogger
from ...states import BY_NAME
from ...store.ops.job import Cause, JobItem, JobState, Objection, Taken
from ...work.settings import worker_name
from ..context import Context
from ..replay.preview import Verdict, preview_replay
from .rate_limit import MOST, RateLimit

log: logging.Logger = logging.getLogger(__name__)

MAX_JOBS = 4
"""Jobs that one runner runs concurrently: a slow one must not delay the others."""


RESOLVED_PER_STEP = 1
"""Events in a step that decides effects. Each reads all events that need a decision, which are many after an
incident: on SQLite every acknowledgement would wait for a hundred such reads."""


class JobRunner:
    """Runs a job step by step, one commit each: a crash neither repeats nor skips an event. A runner that lost its
    lease is stopped by the fencing token. It replays no event whose preview needs a decision."""

    def __init__(self, context: Context, *, worker: str | None = None, poll: float = 1.0) -> None:
        self._jobs = context.store.jobs
        self._application = context.application
        self._worker = worker or worker_name()
        self._lease = context.lease
        self._poll = poll
        self._seldom = RateLimitedLogger(log)

    async def run(self) -> None:
        """Run any job that is available, until cancelled."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                taken = await self._take() if len(running) < MAX_JOBS else None
                if taken is None:
                    await asyncio.sleep(self._poll)
                    continue
                task = asyncio.create_task(self.continue_job(taken))
                running.add(task)
                task.add_done_callback(running.discard)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def run_one(self, job_id: UUID) -> bool:
        """Run one job until it is over; False if another runner has it or it cannot run."""
        taken = await self._jobs.take(self._worker, self._lease, job_id)
        if taken is None:
            return False
        await self.continue_job(taken)
        return True

    async def _take(self) -> Taken | None:
        try:
            return await self._jobs.take(self._worker, self._lease)
        except HookledgerError as error:
            self._seldom.warning("cannot claim a job: %s", error)
        except Exception:  # the loop must survive any error
            log.exception("cannot claim a job: internal error")
        return None

    async def continue_job(self, taken: Taken) -> None:
        """Run steps until the job is over or its lease is lost."""
        job = taken.job
        log.info("job %s: %s of %d events, %d left", job.id, job.name, job.total, job.open)
        try:
            most = RESOLVED_PER_STEP if job.resolving else MOST
            rate = RateLimit(job.per_second, time.monotonic(), most)
            while await self._until_due(taken, rate) and await self._step_safely(taken, rate):
                rate.stepped(time.monotonic())
        except asyncio.CancelledError:
            await self._release(taken)
            raise
        except Exception:  # the lease expires, and another runner continues
            log.exception("job %s: internal error", job.id)

    async def _until_due(self, taken: Taken, rate: RateLimit) -> bool:
        """Wait for the next step; returns whether we still hold the job."""
        while wait := rate.wait(time.monotonic()):
            await asyncio.sleep(min(wait, self._lease / 3))
            if wait > self._lease / 3 and not await self._renew(taken):
                return False
        return True

    async def _renew(self, taken: Taken) -> bool:
        try:
            return await self._jobs.renew(taken, self._lease)
        except HookledgerError as error:
            self._seldom.warning("job %s: lease not renewed: %s", taken.job.id, error)
            return True  # the fencing token protects the step

    async def _step_safely(self, taken: Taken, rate: RateLimit) -> bool:
        """Run a step; returns whether to continue. An outage does not stop the job: what was committed shows
        afterwards."""
        try:
            return await self.step(taken, rate.size)
        except HookledgerError as error:
            self._seldom.warning("job %s: %s", taken.job.id, error)
            await asyncio.sleep(min(1.0, self._lease / 4))
            return True

    async def step(self, taken: Taken, most: int) -> bool:
        """Act on up to `most` events; False if the job is over or its lease is lost."""
        items = await self._jobs.open_items(taken, most)
        if not items:
            return False
        after = await self._jobs.step(taken, items, await self._objections(taken, items), self._lease)
        if after is None:
            return False
        if after.state is JobState.DONE:
            log.info("job %s: done, %d events, %d not allowed", after.id, after.done, after.not_allowed)
        return after.state is JobState.RUNNING

    async def _objections(self, taken: Taken, items: Sequence[JobItem]) -> dict[UUID, Objection]:
        """Return why the action is not allowed, as for the single action: by state and, for a replay, by its preview.
        An effect can be decided in any state of its event; the store checks that."""
        name = taken.job.name
        if name == "resolve":
            return {}
        allowed = BY_NAME[name].sources
        only = ", ".join(sorted(allowed))
        found = {
            item.event_id: Objection(Cause.STATE, f"it was {item.state}; {name} is allowed only in: {only}")
            for item in items
            if item.state not in allowed
        }
        if name != "replay" or taken.job.where.lacks_stage is not None:  # a stage that is added has done nothing yet
            return found
        seen = {item.event_id: (item.state, item.claim) for item in items if item.event_id not in found}
        for evidence in await self._jobs.evidence(list(seen)):
            event = evidence.event
            if (event.state, event.claim) != seen[event.id]:
                continue  # the store reports the change
            preview = preview_replay(evidence, self._application)
            if preview.verdict is Verdict.NEEDS_A_DECISION:
                found[event.id] = Objection(Cause.DECISION, preview.words)
        return found

    async def _release(self, taken: Taken) -> None:
        try:
            await self._jobs.release(taken)
        except HookledgerError as error:
            log.warning("job %s: not released, its lease will expire: %s", taken.job.id, error)
