"""Groups what arrives together, so that many share one round trip and one commit.

While one group is on its way the next one gathers: groups grow with the load,
and a lone item waits for nobody. A second group goes beside the first only when
it is full: two small ones cost more than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from .errors import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


Flush = Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]]
Done = Callable[[R | Exception], None]


def isolating(flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> Flush[T, R]:
    """A flush in which one item that is refused does not take its neighbours with it. An outage is everyone's."""

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


class Batcher(Generic[T, R]):
    """`flush` gets up to `most` items and returns a result or an exception for each, in order."""

    def __init__(
        self,
        flush: Flush[T, R],
        *,
        most: int,
        queue: int,
        parallel: int = 1,
    ) -> None:
        self._flush = flush
        self._most = most
        self._limit = queue
        self._parallel = parallel
        self._queue: deque[tuple[T, Done[R]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0

    def put(self, item: T, done: Done[R]) -> None:
        """`done` gets the item's own result or exception. Raises Unavailable at once when too many wait already."""
        if len(self._queue) >= self._limit:
            raise Unavailable("the queue is full")
        self._queue.append((item, done))
        if self._under_way < self._parallel:  # under load most find all under way, and save a call
            self._start()

    async def submit(self, item: T) -> R:
        """The same for those who wait."""
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
        """Wait until everything submitted has its result."""
        while self._tasks:
            await asyncio.wait(self._tasks)  # gather would cancel them with whoever waits here

    def _start(self) -> None:
        if self._may_go(beside=self._under_way):
            self._under_way += 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _may_go(self, *, beside: int) -> bool:
        """Whether a group may go beside so many others."""
        return beside < self._parallel and len(self._queue) >= (self._most if beside else 1)

    async def _run(self) -> None:
        if not self._may_go(beside=self._under_way - 1):  # another one took what there was
            self._under_way -= 1
            return
        group = [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]
        try:
            results = await self._flush([item for item, _ in group])
        except asyncio.CancelledError:
            results = [Unavailable("given up")] * len(group)
        except Exception as error:
            results = [error] * len(group)
        self._under_way -= 1
        self._start()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # whoever may go goes first: the store works while we tell
        for (_, done), result in zip(group, results, strict=True):
            try:
                done(result)
            except Exception:
                log.exception("a result could not be told")  # the others still can
