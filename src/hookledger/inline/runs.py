"""The events that are handled here, each once: held, started, ended, cut short, lost."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from typing import Protocol
from uuid import UUID

from msgspec.structs import replace

from ..errors import Permanent
from ..model import Claimed, Outcome, base_source
from ..observe.watchdog import Busy
from ..receive.answering import Reply
from ..work import outcome as ways
from ..work.handle import Ended, Returned, busy_in
from ..work.parts import Parts
from ..work.route import Handler
from ..work.settings import CALLS_END, CANCEL_END, HEAR, SETTLE_END, WorkSettings
from ..work.slots import Library, Limited

log: logging.Logger = logging.getLogger(__name__)

FAILED, KNOWN, RETRY, LATER = Reply("failed"), Reply("known"), Reply("retry"), Reply("later")


class MakeParts(Protocol):
    """Makes the parts that run handlers."""

    def __call__(
        self, *, name: str, lost: Callable[[UUID], None], stuck: Callable[[], None], ended: Ended, returned: Returned
    ) -> Parts: ...


class Run:
    """One event that is handled here."""

    def __init__(self, claimed: Claimed, handler: Handler, limited: tuple[str, Library]) -> None:
        self.claimed = claimed
        self.handler = handler
        self.limited = limited
        """What limits how many run: its source, and its library."""
        self.has_slot: bool = False
        self.context: contextvars.Context = contextvars.Context()
        """That of its request. What another handler set, which may start this one, is not for it."""
        self.task: asyncio.Task[None] | None = None
        """None: not started."""
        self.cancelled: bool = False
        """Whether we cancelled it."""
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        """What its delivery is answered."""

    def answer(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)


class Runs:
    """`stuck` is called, in another thread, when a handler has blocked the event loop beyond every timeout."""

    def __init__(self, parts: MakeParts, work: WorkSettings, *, name: str, stuck: Callable[[], None]) -> None:
        self.parts: Parts = parts(
            name=name, lost=self._on_lost, stuck=stuck, ended=self._on_ended, returned=self._on_returned
        )
        self._work = work
        self._runs: dict[UUID, Run] = {}
        self._ready: dict[UUID, Run] = {}
        """Those that wait until they may start, in the order in which they came."""
        self._settling: set[asyncio.Task[bool]] = set()
        self._stopping = False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, event_id: UUID) -> Run | None:
        return self._runs.get(event_id)

    def hold(self, claimed: Claimed, handler: Handler, since: float) -> Run:
        """Keep an event that was claimed after this monotonic time."""
        self.parts.leases.hold([claimed], since)
        limited = base_source(claimed.source), self.parts.library(handler)
        run = self._runs[claimed.id] = Run(claimed, handler, limited)
        return run

    def release(self, claimed: Claimed) -> None:
        """Release a claim whose event cannot be handled here."""
        self._settle(ways.released(claimed))

    def start(self, run: Run) -> None:
        """Start a run, or let it wait for a slot."""
        if self._stopping:
            self._end(run, ways.released(run.claimed))
            return
        run.context = contextvars.copy_context()
        self._ready[run.claimed.id] = run
        self._start_ready()

    def _start_ready(self) -> None:
        """Start what waits, first come first served; what a limit stops does not stop others."""
        for run in list(self._ready.values()):
            if self.parts.slots.left <= 0:
                return
            if all(map(self._has_slot, run.limited)):
                del self._ready[run.claimed.id]
                self._take_slot(run)
                handling = self.parts.handling.handle(run.handler, [run.claimed])
                run.task = self._loop.create_task(handling, context=run.context)
                run.task.add_done_callback(partial(self._ended, run))

    def _take_slot(self, run: Run) -> None:
        self.parts.slots.take(*run.limited)
        run.has_slot = True

    def _release_slot(self, run: Run) -> None:
        if run.has_slot:
            run.has_slot = False
            self.parts.slots.release(*run.limited)

    def _has_slot(self, limited: Limited) -> bool:
        """A library that could not begin a transaction is asked again: its event is put off and waits elsewhere."""
        slots = self.parts.slots
        return slots.free(limited) > 0 or (not isinstance(limited, str) and slots.resting(limited))

    async def stop(self) -> None:
        """Let what runs finish, cut it short after [work] shutdown_timeout, and release what was not started."""
        self._stopping = True
        self.release_unstarted()
        running = [run.task for run in self._runs.values() if run.task is not None]
        if running:
            await asyncio.wait(running, timeout=self._work.shutdown_timeout)
        for _ in range(2):  # the second time for those that wait for a database that does not answer
            left = [run for run in self._runs.values() if run.task is not None]
            for run in left:
                self._cancel(run)
            if left:
                await asyncio.wait([run.task for run in left if run.task], timeout=CANCEL_END)

    def release_unstarted(self) -> None:
        for run in list(self._runs.values()):
            if run.task is None:
                self._end(run, ways.released(run.claimed))

    async def close(self) -> None:
        """Wait for what is being written, and end the heartbeat."""
        self.release_unstarted()  # a commit in flight may have claimed more
        await self.parts.calls.close(CALLS_END)
        if self._settling:
            await asyncio.wait(self._settling, timeout=SETTLE_END)
        await asyncio.to_thread(self.parts.leases.stop)

    def _on_ended(self, outcome: Outcome, error: Exception | None) -> None:
        """The outcome is recorded: what its delivery is answered."""
        run = self._runs.get(outcome.id)
        if run is not None and run.claimed.claim == outcome.claim:
            run.answer(reply_to(outcome, error))

    def _on_returned(self, group: Sequence[Claimed]) -> None:
        """Another handler may start while the outcome of this one is recorded; `queue` limits how many wait."""
        for claimed in group:
            run = self._runs.get(claimed.id)
            if run is not None and run.claimed.claim == claimed.claim:
                self._release_slot(run)
        self._start_ready()

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        claimed = run.claimed
        self._release_slot(run)
        if task.cancelled():
            owned = self.parts.leases.owns(claimed.id)
            by_us = run.cancelled or self._stopping
            self._end(run, ways.cut_short(claimed, run.handler, self._work, owned=owned, by_worker=by_us))
        else:
            if error := task.exception():
                log.error("a handler that answers: internal error", exc_info=error)
            self._forget(run)
        self._start_ready()

    def _end(self, run: Run, way: Outcome) -> None:
        """Settle a run that did not do so itself."""
        self._settle(way)
        self._forget(run)

    def _settle(self, way: Outcome) -> None:
        task = self._loop.create_task(self.parts.settler.settle(way))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def _forget(self, run: Run) -> None:
        """If it has no outcome yet, that is unknown: no answer, and the next delivery finds what became of it."""
        self.parts.leases.drop(run.claimed.id)
        if self._ready.get(run.claimed.id) is run:
            del self._ready[run.claimed.id]
        if self._runs.get(run.claimed.id) is run:
            del self._runs[run.claimed.id]
        run.answer(RETRY)

    def _on_lost(self, event_id: UUID) -> None:
        """Called in the heartbeat's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._look_again, event_id)

    def _look_again(self, event_id: UUID) -> None:
        """Its outcome may be committed: a loop that a handler has blocked hears of that after the heartbeat."""
        run = self._runs.get(event_id)
        if run is not None:
            self._loop.call_later(HEAR * self._work.lease, self._abandon, run)

    def _abandon(self, run: Run) -> None:
        event_id = run.claimed.id
        if self._runs.get(event_id) is run:
            log.warning("claim lost: event %s is abandoned, nothing it still does is kept", event_id)
            if run.task is None:
                self._end(run, ways.released(run.claimed))
            else:
                self._cancel(run)

    def _cancel(self, run: Run) -> None:
        run.cancelled = True
        if run.task is not None:
            run.task.cancel()

    def busy(self, task: asyncio.Task[object] | None) -> Busy | None:
        """What a task handles. Called in the watchdog's thread."""
        for run in list(self._runs.values()):
            if task is not None and run.task is task:
                return busy_in(run.handler, run.claimed)
        return None


def reply_to(outcome: Outcome, error: Exception | None) -> Reply:
    """What a delivery is answered whose attempt ended so."""
    if outcome.answer is not None:
        return Reply("run", outcome.answer.status, outcome.answer.headers, outcome.answer.body)
    if outcome.transition == "complete":
        return KNOWN
    if isinstance(error, Permanent) and error.answer is not None and outcome.transition == "fail":
        refused = error.answer.stored()
        return Reply("refused", refused.status, refused.headers, refused.body)
    if outcome.transition in ("fail", "skip", "review"):
        return FAILED
    return replace(RETRY, retry_after=max(0, min(3600, ceil(outcome.due_in))))
