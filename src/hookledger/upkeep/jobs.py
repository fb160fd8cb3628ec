"""Runs bulk work: beside a worker, or for a command that waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from ..errors import HookledgerError
from ..model import Evidence
from ..observe.logs import Seldom
from ..states import BY_NAME
from ..store.ops.job import Cause, JobItem, JobState, Objection, Taken
from ..store.protocol import Store
from .pace import MOST, Pace

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Jobs that one runner goes on with at the same time: a slow one must not keep the others waiting."""


RESOLVED_AT_ONCE = 1
"""Events in a step that decides effects. Each looks through all that waits for a person, which is much after an
incident: on SQLite every ack would wait for a hundred such walks."""


class JobRunner:
    """One step after another, each one commit: a crash neither repeats nor skips an event. Who lost the lease finds
    its fence refused, and stops.

    `objection`: what stands against replaying an event, None when nothing does.
    """

    def __init__(
        self,
        store: Store,
        objection: Callable[[Evidence], str | None],
        *,
        worker: str,
        lease: float,
        poll: float = 1.0,
    ) -> None:
        self._store = store
        self._jobs = store.jobs
        self._objection = objection
        self._worker = worker
        self._lease = lease
        self._poll = poll
        self._seldom = Seldom(log)

    async def run(self) -> None:
        """For ever: whatever can be taken up."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                taken = await self._take() if len(running) < AT_ONCE else None
                if taken is None:
                    await asyncio.sleep(self._poll)
                    continue
                task = asyncio.create_task(self.go_on(taken))
                running.add(task)
                task.add_done_callback(running.discard)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def run_one(self, job_id: UUID) -> bool:
        """Until that job is over; False when somebody else has it, or it cannot be run."""
        taken = await self._jobs.take(self._worker, self._lease, job_id)
        if taken is None:
            return False
        await self.go_on(taken)
        return True

    async def _take(self) -> Taken | None:
        try:
            return await self._jobs.take(self._worker, self._lease)
        except HookledgerError as error:
            self._seldom.warning("no job taken up: %s", error)
        except Exception:  # whatever it is, without this loop no job would ever be run
            log.exception("no job taken up: a defect")
        return None

    async def go_on(self, taken: Taken) -> None:
        """Step by step, until the job is over or not ours any more."""
        job = taken.job
        log.info("job %s: %s of %d events, %d left", job.id, job.name, job.total, job.open)
        try:
            most = RESOLVED_AT_ONCE if job.resolving else MOST
            pace = Pace(job.per_second, time.monotonic(), most)
            while await self._until_due(taken, pace) and await self._step_safely(taken, pace):
                pace.stepped(time.monotonic())
        except asyncio.CancelledError:
            await self._release(taken)
            raise
        except Exception:  # nobody waits for this task; the lease runs out, and another tries
            log.exception("job %s: a defect", job.id)

    async def _until_due(self, taken: Taken, pace: Pace) -> bool:
        """Whether the job is still ours when the next step is due."""
        while wait := pace.wait(time.monotonic()):
            await asyncio.sleep(min(wait, self._lease / 3))
            if wait > self._lease / 3 and not await self._renew(taken):
                return False
        return True

    async def _renew(self, taken: Taken) -> bool:
        try:
            return await self._jobs.renew(taken, self._lease)
        except HookledgerError as error:
            self._seldom.warning("job %s: not renewed: %s", taken.job.id, error)
            return True  # the fence has the last word

    async def _step_safely(self, taken: Taken, pace: Pace) -> bool:
        """Whether to go on. An outage is no reason to stop: what was committed is known when it is over."""
        try:
            return await self.step(taken, pace.size)
        except HookledgerError as error:
            self._seldom.warning("job %s: %s", taken.job.id, error)
            await asyncio.sleep(min(1.0, self._lease / 4))
            return True

    async def step(self, taken: Taken, most: int) -> bool:
        """Act on up to so many events; False when the job is over or not ours any more."""
        items = await self._jobs.open_items(taken, most)
        if not items:
            return False
        after = await self._jobs.step(taken, items, await self._objections(taken, items), self._lease)
        if after is None:
            return False
        if after.state is JobState.DONE:
            log.info("job %s: done, %d events, %d refused", after.id, after.done, after.refused)
        return after.state is JobState.RUNNING

    async def _objections(self, taken: Taken, items: Sequence[JobItem]) -> dict[UUID, Objection]:
        """As for the single action: the state it may begin in, and for a replay the verdict of its preview. An effect
        is decided in whatever state its event is; the store has the last word on that."""
        name = taken.job.name
        if name == "resolve":
            return {}
        allowed = BY_NAME[name].sources
        only = ", ".join(sorted(allowed))
        found = {
            item.event_id: Objection(Cause.STATE, f"it was {item.state}, and {name} begins only in: {only}")
            for item in items
            if item.state not in allowed
        }
        if name != "replay":
            return found
        seen = {item.event_id: (item.state, item.claim) for item in items if item.event_id not in found}
        for evidence in await self._jobs.evidence(list(seen)):
            event = evidence.event
            if (event.state, event.claim) != seen[event.id]:
                continue  # the store says what changed
            if words := self._objection(evidence):
                found[event.id] = Objection(Cause.DECISION, words)
        return found

    async def _release(self, taken: Taken) -> None:
        try:
            await self._jobs.release(taken)
        except HookledgerError as error:
            log.warning("job %s: not given back, its lease runs out: %s", taken.job.id, error)
