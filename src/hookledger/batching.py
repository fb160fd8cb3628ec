"""Group commit: batches items so that many share one round trip and one commit.

While one batch is in flight the next collects, so batches grow with load; an item
that finds none in flight is flushed immediately. A second batch starts only when
full (two small ones cost more than one) and after `solo_time` (CPU-bound flushes
slow each other down).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import repeat
from typing import Generic, TypeVar

from .errors import Unavailable

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


Flush = Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]]
Done = Callable[[R | Exception], None]


def retry_individually(flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> Flush[T, R]:
    """Return a flush that repeats a failed batch item by item, so that one bad item fails alone. Unavailable fails
    the whole batch."""

    async def one_by_one(items: Sequence[T]) -> Sequence[R | Exception]:
        try:
            return await flush(items)
        except Unavailable:
            raise
        except Exception as error:
            if len(items) == 1:
                return [error]
        results: list[R | Exception] = []
        for item in items:
            try:
                results += await flush([item])
            except Exception as error:
                results.append(error)
        return results

    return one_by_one


def short_way_first(short: Callable[[Sequence[T]], Awaitable[Sequence[R | None]]], rest: Flush[T, R]) -> Flush[T, R]:
    """Return a flush that leaves to `rest` only the items for which `short` has no result. The others keep theirs
    even if the rest fails."""

    async def in_turn(items: Sequence[T]) -> Sequence[R | Exception]:
        first: Sequence[R | None]
        try:
            first = await short(items)
        except Unavailable:
            raise
        except Exception:  # one item is bad: find it individually
            first = [None] * len(items)
        left = [item for item, result in zip(items, first, strict=True) if result is None]
        if not left:
            return [result for result in first if result is not None]
        others: Iterator[R | Exception]
        try:
            others = iter(await rest(left))
        except Exception as error:
            others = repeat(error)
        return [next(others) if result is None else result for result in first]

    return in_turn


class Batcher(Generic[T, R]):
    """Flush queued items in batches.

    `flush` takes up to `max_items`; returns a result or exception per item, in order.
    `max_queued`: `put` raises Unavailable beyond it. `max_in_flight`: concurrent batches.
    `solo_time`: seconds the newest batch runs alone. `step`: batch size is the multiple
    of it nearest half the recent peak, so one half commits while the other collects
    (decision 0031); None: `max_items`. `weigh`, `max_weight`: stop filling a batch at
    this total weight.
    """

    def __init__(
        self,
        flush: Flush[T, R],
        *,
        max_items: int,
        max_queued: int,
        max_in_flight: int = 1,
        solo_time: float = 0.0,
        step: int | None = None,
        weigh: Callable[[T], int] | None = None,
        max_weight: int = 0,
    ) -> None:
        self._flush = flush
        self._max_items = max_items
        self._max_queued = max_queued
        self._max_in_flight = max_in_flight
        self._solo_time = solo_time
        self._step = step
        self._weigh = weigh
        self._max_weight = max_weight
        self._queue: deque[tuple[T, Done[R]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight = 0  # batches
        self._items_in_flight = 0
        self._recent_peak = 0  # of items queued and in flight
        self._solo: asyncio.TimerHandle | None = None  # until it fires, no batch starts beside the newest

    def put(self, item: T, done: Done[R]) -> None:
        """Queue an item; `done` gets its result or exception. Raises Unavailable when the queue is full."""
        if len(self._queue) >= self._max_queued:
            raise Unavailable(f"the queue is full: {self._max_queued} items wait").because("queue_full")
        self._queue.append((item, done))
        if self._in_flight < self._max_in_flight:  # false for most items under load: saves a call
            self._start()

    @property
    def queued(self) -> int:
        """How many items wait for their batch."""
        return len(self._queue)

    async def submit(self, item: T) -> R:
        """Queue an item and return its result."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def done(result: R | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.put(item, done)
        return await future

    async def drain(self) -> None:
        """Wait until every queued item has its result."""
        while self._tasks:
            await asyncio.wait(self._tasks)  # gather would cancel the flushes with the caller

    def _start(self) -> None:
        if self._may_start(beside=self._in_flight):
            self._in_flight += 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _may_start(self, *, beside: int) -> bool:
        """Whether a batch may start beside so many others."""
        if not beside:
            return bool(self._queue)
        return beside < self._max_in_flight and self._solo is None and len(self._queue) >= self._batch_size()

    def _batch_size(self) -> int:
        if self._step is None:
            return self._max_items
        return min(self._max_items, max(1, round(self._recent_peak / 2 / self._step)) * self._step)

    def _update_peak(self, present: int) -> None:
        """Follow a rise immediately and a fall slowly; capped at what the largest batch needs."""
        cap = 2 * (self._max_items + (self._step or 0))
        self._recent_peak = min(cap, max(present, self._recent_peak - 1))

    def _next_batch(self) -> list[tuple[T, Done[R]]]:
        """Remove the next batch from the queue."""
        size = min(self._batch_size(), len(self._queue))
        if self._weigh is None:
            return [self._queue.popleft() for _ in range(size)]
        batch: list[tuple[T, Done[R]]] = []
        weight = 0
        while len(batch) < size and (not batch or weight < self._max_weight):
            batch.append(self._queue.popleft())
            weight += self._weigh(batch[-1][0])
        return batch

    def _begin_solo(self) -> asyncio.TimerHandle | None:
        if self._solo_time and self._max_in_flight > 1:
            self._solo = asyncio.get_running_loop().call_later(self._solo_time, self._end_solo)
        return self._solo

    def _end_solo(self) -> None:
        self._solo = None
        self._start()

    async def _run(self) -> None:
        if not self._may_start(beside=self._in_flight - 1):  # another batch took the items
            self._in_flight -= 1
            return
        batch = self._next_batch()
        self._items_in_flight += len(batch)
        solo = self._begin_solo()
        try:
            results = await self._flush([item for item, _ in batch])
        except asyncio.CancelledError:
            results = [Unavailable("the flush was cancelled: its outcome is unknown")] * len(batch)
        except Exception as error:
            results = [error] * len(batch)
        self._update_peak(self._items_in_flight + len(self._queue))
        self._items_in_flight -= len(batch)
        self._in_flight -= 1
        if solo is not None and solo is self._solo:
            solo.cancel()
            self._solo = None
        self._start()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # start the next flush before delivering results
        for (_, done), result in zip(batch, results, strict=True):
            try:
                done(result)
            except Exception:
                log.exception("a batch result could not be delivered")  # the other items still get theirs
