"""The guard for plain functions: WSGI applications and scripts."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

from .answers import T
from .commands import Client
from .guard import Guard
from .lease import Lease
from .outcome import Outcome

R = TypeVar("R")


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
        self._starting = threading.Lock()
        self._process: int | None = None
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
        guard = self.guard
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
            if self._process != os.getpid():  # threads do not survive a fork
                self._start()
        return self._guard

    def call(self, step: Coroutine[Any, Any, R]) -> R:
        """Await a coroutine of `guard` in its thread and return what it returns."""
        future = asyncio.run_coroutine_threadsafe(step, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C must not leave a lease that is renewed until the process ends
            raise

    def close(self) -> None:
        """End the thread of this process and close its client; a later call starts another."""
        with self._starting:
            if self._process == os.getpid():
                self._process = None
                self.call(self._client.aclose())
                self._loop.call_soon_threadsafe(self._loop.stop)

    def __enter__(self) -> BlockingGuard:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="hookledger-redis", daemon=True).start()
        self._guard = self.call(self._open())
        self._process = os.getpid()

    async def _open(self) -> Guard:
        self._client = self._connect()
        return self._make(self._client)
