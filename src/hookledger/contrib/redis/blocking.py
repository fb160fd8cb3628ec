"""The guard for plain functions: WSGI applications and scripts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Literal, TypeVar

from .answers import T
from .commands import Client
from .guard import Guard
from .lease import Lease
from .outcome import Outcome

R = TypeVar("R")

CLOSE = 5.0
"""Seconds for what still runs in the guard's thread when it is closed, such as the release of a key."""
_inherited: list[object] = []
"""What a parent process had open. A fork shares its selector, so to close or collect a connection here would end the
parent's."""


class BlockingLease:
    """The lease of work that is a plain function; see Lease."""

    def __init__(self, lease: Lease, call: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._lease = lease
        self._call = call

    @property
    def lost(self) -> bool:
        return self._lease.lost

    @property
    def guarded(self) -> bool:
        return self._lease.guarded

    def renew(self) -> None:
        self._call(self._lease.renew())


class BlockingGuard:
    """Runs plain functions in the thread that calls; Redis and the heartbeat have a thread of the guard.

    `connect` returns a new `redis.asyncio.Redis`; it is called in each process that uses the guard, so that servers
    may fork. `make` returns the guard: `lambda client: Guard(client, away="closed")`.
    """

    def __init__(self, connect: Callable[[], Client], make: Callable[[Client], Guard]) -> None:
        self._connect = connect
        self._make = make
        self._starting = threading.Condition()
        self._process: int | None = None
        self._runs = 0
        """Calls of `run` that are not over."""
        self._thread: threading.Thread
        self._loop: asyncio.AbstractEventLoop
        self._guard: Guard
        self._client: Client

    def run(
        self,
        work: Callable[[BlockingLease], T],
        *,
        caller: str | bytes,
        source: str | bytes,
        key: str | bytes,
        fingerprint: str | bytes,
        repeat: Literal["safe", "never"],
        wait: float = 0.0,
    ) -> Outcome[T]:
        """Run `work` and store its answer, or return the answer that is stored; see Guard.run."""
        with self._running() as guard:
            begun = self.call(
                guard.begin(caller=caller, source=source, key=key, fingerprint=fingerprint, repeat=repeat, wait=wait)
            )
            if isinstance(begun, Outcome):
                return begun
            try:
                answer = work(BlockingLease(begun, self.call))
            except BaseException as error:
                self.call(guard.fail(begun, error))
                raise
            return self.call(guard.finish(begun, answer))

    @property
    def guard(self) -> Guard:
        """The guard of this process, for operators: `blocking.call(blocking.guard.look(…))`."""
        with self._starting:
            return self._started()

    def call(self, step: Coroutine[Any, Any, R]) -> R:
        """Await a coroutine of `guard` in its thread and return what it returns."""
        future = asyncio.run_coroutine_threadsafe(step, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C must not leave a lease that is renewed until the process ends
            raise

    def close(self) -> None:
        """End the thread of this process and close its client, after the calls of `run` that are not over; a later
        call starts another."""
        with self._starting:
            if self._process != os.getpid():
                return
            self._starting.wait_for(lambda: not self._runs)
            if self._process is not None:  # not closed by another thread in the meantime
                self._process = None
                self.call(self._end())
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()

    def __enter__(self) -> BlockingGuard:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _running(self) -> Iterator[Guard]:
        with self._starting:
            guard = self._started()
            self._runs += 1
        try:
            yield guard
        finally:
            with self._starting:
                self._runs -= 1
                self._starting.notify_all()

    def _started(self) -> Guard:
        if self._process != os.getpid():  # threads do not survive a fork
            self._start()
        return self._guard

    def _start(self) -> None:
        if self._process is not None:
            _inherited.append((self._loop, self._client, self._guard))
            self._runs = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hookledger-redis", daemon=True)
        self._thread.start()
        self._guard = self.call(self._open())
        self._process = os.getpid()

    async def _open(self) -> Guard:
        self._client = self._connect()
        return self._make(self._client)

    async def _end(self) -> None:
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=CLOSE)
        await self._client.aclose()
