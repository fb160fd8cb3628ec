"""One attempt: run the handler, then commit its transaction with the outcome as the last statement."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from ..errors import ClaimLost, HookledgerError, Signal
from ..model import Claimed, Outcome
from ..observe.logs import about
from ..store.protocol import Store, Transaction
from . import outcome as ways
from .event import Event, SyncEvent
from .outcome import Settler
from .retry import RetryPolicy
from .route import AsyncFunction, Handler, PlainFunction, Result

log = logging.getLogger(__name__)

Read = Callable[[Claimed], Any]


class Handling:
    """What every attempt needs."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        read: Read,
        threads: Executor,
        *,
        timeout: float,
        retry: RetryPolicy,
    ) -> None:
        self._timeout = timeout
        self._retry = retry
        self._store = store
        self._settler = settler
        self._read = read
        self._threads = threads

    async def handle(self, handler: Handler, group: Sequence[Claimed]) -> None:
        """One event, or several in one transaction. If one of several fails, each goes alone."""
        try:
            await self._attempt(handler, group)
        except Exception as error:  # whatever the handler raises has a way out of `processing`
            if len(group) > 1:
                for claimed in group:
                    await self.handle(handler, [claimed])
                return
            [claimed] = group
            if isinstance(error, ClaimLost):
                log.warning("late outcome refused: event %s is not ours any more", claimed.id)
                return
            with about(event_id=str(claimed.id), event_key=claimed.key, event_type=claimed.type):
                way = ways.failed(claimed, handler.retry or self._retry, error)
                _tell(way, handler, error)
                await self._settler.settle(way)

    async def _attempt(self, handler: Handler, group: Sequence[Claimed]) -> None:
        tx = self._store.transaction()
        try:
            outcomes = [await self._run(handler, claimed, tx) for claimed in group]
            if tx.begun:
                await tx.commit(outcomes)
                return
        finally:
            # Nothing to undo after a commit; after anything else, everything.
            await asyncio.shield(tx.rollback())
        await asyncio.gather(*map(self._settler.settle, outcomes))

    async def _run(self, handler: Handler, claimed: Claimed, tx: Transaction) -> Outcome:
        facts = about(event_id=str(claimed.id), event_key=claimed.key, event_type=claimed.type)
        with facts:
            async with asyncio.timeout(self._timeout if handler.timeout is None else handler.timeout):
                return ways.succeeded(claimed, await self._call(handler, claimed, tx))

    async def _call(self, handler: Handler, claimed: Claimed, tx: Transaction) -> Result:
        if not handler.plain:
            function: AsyncFunction = handler.function  # type: ignore[assignment]  # `plain` says so
            return await function(Event(claimed, self._read, tx))
        loop = asyncio.get_running_loop()
        plain: PlainFunction = handler.function  # type: ignore[assignment]
        event = SyncEvent(claimed, self._read, tx, loop)
        context = contextvars.copy_context()
        return await loop.run_in_executor(self._threads, lambda: context.run(plain, event))


def _tell(way: Outcome, handler: Handler, error: Exception) -> None:
    """One line per failed attempt; a defect of ours or of the handler's with its traceback."""
    expected = isinstance(error, Signal | HookledgerError | OSError)
    level = {"skip": logging.INFO, "wait": logging.INFO, "reschedule": logging.WARNING}.get(
        way.transition, logging.ERROR
    )
    log.log(
        level,
        "%s: %s: %s",
        handler.name,
        way.transition,
        way.reason,
        exc_info=None if expected or level < logging.ERROR else error,
    )
