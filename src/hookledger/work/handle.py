"""One attempt: run the handler, then commit its transaction with the outcome as the last statement."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from ..errors import ClaimLost, HandlerEnded, HookledgerError, Signal
from ..model import Claimed, Outcome
from ..observe.logs import about
from ..store.protocol import Store, Transaction
from . import outcome as ways
from .event import Event, Renew, SyncEvent
from .outcome import Settler
from .retry import RetryPolicy
from .route import AsyncFunction, Handler, PlainFunction, Result

log = logging.getLogger(__name__)

Read = Callable[[Claimed], Any]


class Defaults(Protocol):
    """What a worker's settings say for handlers that say nothing."""

    @property
    def timeout(self) -> float: ...
    @property
    def lease(self) -> float: ...
    @property
    def retry(self) -> RetryPolicy: ...


class Handling:
    """What every attempt needs."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        read: Read,
        settings: Defaults,
        finished: Callable[[UUID], None],
    ) -> None:
        """`finished` is told each event that has left `processing`."""
        self._store = store
        self._settler = settler
        self._read = read
        self._settings = settings
        self._finished = finished

    async def handle(self, handler: Handler, group: Sequence[Claimed]) -> None:
        """One event, or several in one transaction. If one of several fails, each goes alone."""
        try:
            await self._attempt(handler, group)
        except Exception as error:  # whatever the handler raises has a way out of `processing`
            if len(group) > 1:
                for claimed in group:
                    await self.handle(handler, [claimed])
                return
            await self._failed(handler, group[0], error)
        for claimed in group:
            self._finished(claimed.id)

    async def _failed(self, handler: Handler, claimed: Claimed, error: Exception) -> None:
        if isinstance(error, ClaimLost):
            log.warning("late outcome refused: event %s is not ours any more", claimed.id)
            return
        with about(event_id=str(claimed.id), event_key=claimed.key, event_type=claimed.type):
            way = ways.failed(claimed, handler.retry or self._settings.retry, error)
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
            limit = self._settings.timeout if handler.timeout is None else handler.timeout
            async with asyncio.timeout(limit):
                return ways.succeeded(claimed, await self._call(handler, claimed, tx))

    async def _call(self, handler: Handler, claimed: Claimed, tx: Transaction) -> Result:
        renew = self._renewal(claimed)
        try:
            if handler.plain:
                loop = asyncio.get_running_loop()
                return await _in_a_thread(handler, SyncEvent(claimed, self._read, tx, renew, loop))
            function: AsyncFunction = handler.function  # type: ignore[assignment]  # `plain` says so
            return await function(Event(claimed, self._read, tx, renew))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # by us, or by the time-out
            raise HandlerEnded("the handler was cancelled by something of its own") from None
        except SystemExit as error:
            raise HandlerEnded(f"the handler called sys.exit({error.code!r})") from error

    def _renewal(self, claimed: Claimed) -> Renew:
        async def renew() -> None:
            if not await self._store.renew(claimed.id, claimed.claim, self._settings.lease):
                raise ClaimLost()

        return renew


def _in_a_thread(handler: Handler, event: SyncEvent) -> asyncio.Future[Result]:
    """Run a plain function in a thread of its own.

    Not in a pool: a function that overruns its time-out cannot be stopped, and
    a pool full of those would starve everyone else. A daemon, so that it
    cannot keep the process either.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    context = contextvars.copy_context()
    plain: PlainFunction = handler.function  # type: ignore[assignment]  # `plain` says so

    def settle(result: Result, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error if isinstance(error, Exception) else HandlerEnded(repr(error)))

    def run() -> None:
        result, failure = None, None
        try:
            result = context.run(plain, event)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the worker is gone, and nobody waits for this any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="hookledger-handler", daemon=True).start()
    return future


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
