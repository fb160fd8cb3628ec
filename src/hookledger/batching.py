"""Groups what arrives together, so that many share one round trip and one commit.

While one group is on its way the next one gathers: groups grow with the load,
and a lone item waits for nobody. A second group goes beside the first only when
it is full, since two small ones cost more than one, and when the first has been
away for long: where work is what takes the time, two at once only get in each
other's way.
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
    """`flush` gets up to `most` items and returns a result or an exception for each, in order.

    `parallel`: how many groups may be under way; `patience`: for how many seconds the last to go has it to itself.
    `step`: groups are as many of these as come nearest to half of the crowd, so that one half is on its way while the
    other gathers (decision 0031); without, they take whatever there is. `weigh`: what an item weighs; a group takes
    no more once it has `heaviest`.
    """

    def __init__(
        self,
        flush: Flush[T, R],
        *,
        most: int,
        queue: int,
        parallel: int = 1,
        patience: float = 0.0,
        step: int | None = None,
        weigh: Callable[[T], int] | None = None,
        heaviest: int = 0,
    ) -> None:
        self._flush = flush
        self._most = most
        self._limit = queue
        self._parallel = parallel
        self._patience = patience
        self._step = step
        self._weigh = weigh
        self._heaviest = heaviest
        self._queue: deque[tuple[T, Done[R]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0  # groups
        self._away = 0  # items in them
        self._crowd = 0  # the most items that were here at once, lately
        self._alone: asyncio.TimerHandle | None = None  # the last group to go is to be left alone until then

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
        if not beside:
            return bool(self._queue)
        return beside < self._parallel and self._alone is None and len(self._queue) >= self._full()

    def _full(self) -> int:
        """How many make a group."""
        if self._step is None:
            return self._most
        return min(self._most, max(1, round(self._crowd / 2 / self._step)) * self._step)

    def _remember(self, here: int) -> None:
        """Of a rush no more than makes the largest group, so that it is soon forgotten."""
        enough = 2 * (self._most + (self._step or 0))
        self._crowd = min(enough, max(here, self._crowd - 1))

    def _gathered(self) -> list[tuple[T, Done[R]]]:
        """The next group, out of the queue."""
        size = min(self._full(), len(self._queue))
        if self._weigh is None:
            return [self._queue.popleft() for _ in range(size)]
        group: list[tuple[T, Done[R]]] = []
        weight = 0
        while len(group) < size and (not group or weight < self._heaviest):
            group.append(self._queue.popleft())
            weight += self._weigh(group[-1][0])
        return group

    def _leave_alone(self) -> asyncio.TimerHandle | None:
        """For a while: a second group waits even if it is full."""
        if self._patience and self._parallel > 1:
            self._alone = asyncio.get_running_loop().call_later(self._patience, self._long_enough)
        return self._alone

    def _long_enough(self) -> None:
        self._alone = None
        self._start()

    async def _run(self) -> None:
        if not self._may_go(beside=self._under_way - 1):  # another one took what there was
            self._under_way -= 1
            return
        group = self._gathered()
        self._away += len(group)
        alone = self._leave_alone()
        try:
            results = await self._flush([item for item, _ in group])
        except asyncio.CancelledError:
            results = [Unavailable("given up")] * len(group)
        except Exception as error:
            results = [error] * len(group)
        self._remember(self._away + len(self._queue))
        self._away -= len(group)
        self._under_way -= 1
        if alone is not None and alone is self._alone:
            alone.cancel()
            self._alone = None
        self._start()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # whoever may go goes first: the store works while we tell
        for (_, done), result in zip(group, results, strict=True):
            try:
                done(result)
            except Exception:
                log.exception("a result could not be told")  # the others still can
