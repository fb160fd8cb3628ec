"""One attempt: run the handler, then commit its transaction with the outcome as the last statement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..errors import ClaimLost, HandlerEnded, HookledgerError, NeedsDecision, Signal, WrongState
from ..model import Claimed, Outcome
from ..observe.logs import about
from ..states import State
from ..store.protocol import Store, Transaction, Transactions
from . import outcome as ways
from .claim import Leases
from .declare import Effects
from .effects import AttemptEffects
from .event import Current, Event, Renew, SyncEvent, SyncStatements
from .ledger import Calls
from .outcome import Settler
from .retry import RetryPolicy
from .route import AsyncFunction, Handler, PlainFunction, Result
from .thread import in_a_thread

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
        calls: Calls,
        leases: Leases,
        effects: Effects,
        read: Read,
        settings: Defaults,
        transactions: Sequence[Transactions],
        planned: Callable[[], None],
        current: Current,
    ) -> None:
        """`transactions`: the user's own libraries; `planned` is told when the outbox has something to do."""
        self._store = store
        self._settler = settler
        self._calls = calls
        self._leases = leases
        self._declared = effects
        self._read = read
        self._settings = settings
        self._adapters = {transaction.plain: transaction for transaction in transactions}
        self._planned = planned
        self._current = current

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
            self._leases.drop(claimed.id)

    async def _failed(self, handler: Handler, claimed: Claimed, error: Exception) -> None:
        if isinstance(error, ClaimLost):
            log.warning("late outcome refused: event %s is not ours any more", claimed.id)
            return
        with about(event_id=str(claimed.id), event_key=claimed.key, event_type=claimed.type):
            way = ways.failed(claimed, handler.retry or self._settings.retry, error)
            _tell(way, handler, error)
            await self._settler.settle(way)
            if isinstance(error, NeedsDecision):
                await self._go_on_if_known(claimed, error)

    async def _go_on_if_known(self, claimed: Claimed, error: NeedsDecision) -> None:
        """The answer may have come between the handler's question and the event's review: then nobody else would send
        it round.
        """
        try:
            if await self._calls.is_known(error.identity):
                reason = "what it waited for is known"
                await self._store.retry(claimed.id, State.NEEDS_REVIEW, "hookledger", reason)
        except WrongState:
            log.debug("event %s was sent round already", claimed.id)
        except HookledgerError as failure:
            log.warning("event %s waits for a person, who may find its answer there already: %s", claimed.id, failure)

    async def _attempt(self, handler: Handler, group: Sequence[Claimed]) -> None:
        adapter = self._adapters.get(handler.plain) if handler.transaction else None
        tx = self._store.transaction(adapter.adapter() if adapter else None)
        effects = [self._effects(handler, claimed, tx) for claimed in group]
        abandoned = False
        try:
            if adapter:
                await tx.begin()
            pairs = zip(group, effects, strict=True)
            outcomes = [await self._run(handler, claimed, tx, asked) for claimed, asked in pairs]
            if tx.begun:
                await tx.commit(outcomes)
                if any(asked.planned for asked in effects):
                    self._planned()
                return
        except (asyncio.CancelledError, TimeoutError):
            abandoned = handler.plain  # its thread cannot be stopped
            raise
        finally:
            # Nothing to undo after a commit; after anything else, everything.
            await asyncio.shield(tx.rollback(abandoned=abandoned))
        await asyncio.gather(*map(self._settler.settle, outcomes))

    def _effects(self, handler: Handler, claimed: Claimed, tx: Transaction) -> AttemptEffects:
        def owns() -> bool:
            return self._leases.owns(claimed.id)

        return AttemptEffects(claimed, tx, self._calls, self._declared.find, owns, transaction=handler.transaction)

    async def _run(self, handler: Handler, claimed: Claimed, tx: Transaction, effects: AttemptEffects) -> Outcome:
        facts = about(event_id=str(claimed.id), event_key=claimed.key, event_type=claimed.type)
        with facts:
            limit = self._settings.timeout if handler.timeout is None else handler.timeout
            async with asyncio.timeout(limit):
                result = await self._call(handler, claimed, tx, effects)
                await effects.finish()
                return ways.succeeded(claimed, result)

    async def _call(
        self, handler: Handler, claimed: Claimed, tx: Transaction, effects: AttemptEffects
    ) -> Result:
        renew = self._renewal(claimed)
        given = tx.tx if handler.transaction else None
        try:
            if handler.plain:
                loop = asyncio.get_running_loop()
                if given is not None and True not in self._adapters:
                    given = SyncStatements(given, loop)
                event: SyncEvent[Any] = SyncEvent(
                    claimed, self._read, given, effects, renew, self._current, loop
                )
                plain: PlainFunction = handler.function  # type: ignore[assignment]  # `plain` says so
                return await in_a_thread(lambda: plain(event), "hookledger-handler")
            function: AsyncFunction = handler.function  # type: ignore[assignment]  # `plain` says so
            return await function(Event(claimed, self._read, given, effects, renew, self._current))
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
