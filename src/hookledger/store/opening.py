"""Opens a store when it is first needed, once on each event loop, and closes it with that loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from ..errors import Unavailable
from .protocol import Store

T = TypeVar("T")

PAUSE = 1.0
"""Seconds after a failure in which everybody gets the same answer."""

Open = Callable[[contextlib.AsyncExitStack], Awaitable[T]]


class Opener:
    """`make`: returns a store that is not open yet. The caller opens only one at a time."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._not_before = float("-inf")

    async def open(self, stack: contextlib.AsyncExitStack, *, writer_process: bool = False) -> Store:
        """Closed with the stack; Unavailable while there is no database. `writer_process`: see `Store.open`."""
        if time.monotonic() < self._not_before:
            raise Unavailable("the database did not answer a moment ago")
        store = self._make()
        try:
            await store.open(writer_process=writer_process)
        except Unavailable:
            # Those who wait for their turn now need not wait for the same answer once more.
            self._not_before = time.monotonic() + PAUSE
            raise
        stack.push_async_callback(store.close)
        return store


class _Life(Generic[T]):
    """What is open on one event loop."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.value: T | None = None
        self.generator: AsyncGenerator[None, None] | None = None


class PerLoop(Generic[T]):
    """One T for each event loop, because connections and tasks belong to the loop that made them.

    Tests and reloaded servers start a second loop, often without saying that the first is over. `asyncio.run` closes
    every open async generator before its loop, so what is open lives in one.
    """

    def __init__(self) -> None:
        self._lives: dict[asyncio.AbstractEventLoop, _Life[T]] = {}

    def here(self) -> T | None:
        """What is open on the running loop."""
        life = self._lives.get(asyncio.get_running_loop())
        return None if life is None else life.value

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The last loop on which something was opened and that still runs."""
        running = [loop for loop, life in list(self._lives.items()) if life.value is not None and loop.is_running()]
        return running[-1] if running else None

    async def open(self, open_it: Open[T]) -> T:
        """What is open on the running loop; `open_it` opens it, and its stack is closed with it."""
        loop = asyncio.get_running_loop()
        if loop not in self._lives:
            for gone in [other for other in list(self._lives) if other.is_closed()]:
                self._lives.pop(gone, None)
        life = self._lives.setdefault(loop, _Life())
        async with life.turn:
            if life.value is None:
                generator = _live(life, open_it)
                await anext(generator)
                life.generator = generator
            assert life.value is not None
            return life.value

    async def close(self) -> None:
        """Close what is open on the running loop."""
        life = self._lives.get(asyncio.get_running_loop())
        if life is None:
            return
        async with life.turn:
            if life.generator is not None:
                await life.generator.aclose()
                life.generator = None


async def _live(life: _Life[T], open_it: Open[T]) -> AsyncGenerator[None, None]:
    try:
        async with contextlib.AsyncExitStack() as stack:
            life.value = await open_it(stack)
            yield
    finally:
        life.value = None
