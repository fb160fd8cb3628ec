"""Runs one handler on one event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..effects.attempt import AttemptEffects
from ..effects.thread import in_a_thread
from ..errors import HandlerEnded
from ..model import Claimed, Outcome
from ..observe.second_connection import in_handler
from ..store.ops.reviews import Approval
from ..store.protocol import Transaction, Transactions
from . import outcome as ways
from .check import Checked, Checks
from .event import Current, Event, Renew, SyncEvent
from .route import AsyncFunction, Handler, PlainFunction, Returned
from .statements import AsyncStatements, SyncStatements

Rank = Callable[[Claimed], int]
"""The rank of an event's type among those of its source."""


class Runner:
    """`transactions`: the user's own libraries."""

    def __init__(self, checks: Checks, transactions: Sequence[Transactions], current: Current, rank: Rank) -> None:
        self._read = checks.read
        self.check: Callable[[Handler, Claimed], Checked | None] = checks.check
        self._current = current
        self.rank = rank
        self._adapters = {transaction.plain: transaction for transaction in transactions}

    def library(self, handler: Handler) -> Transactions | None:
        """The user's own that this handler's transaction is in."""
        return self._adapters.get(handler.plain) if handler.transaction else None

    def statements(self, handler: Handler, tx: Transaction, effects: AttemptEffects) -> Any:
        """What the handler gets as `event.tx`: what its own library has, or Hookledger's statements."""
        if handler.plain in self._adapters:
            return tx.tx
        if handler.plain:
            return SyncStatements(tx.tx, asyncio.get_running_loop())
        return AsyncStatements(tx.tx, effects.asked)

    async def run(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: Transaction,
        effects: AttemptEffects,
        renew: Renew,
        approved: Approval | None,
        checked: Checked | None = None,
    ) -> Outcome:
        """The way out that its result means; whatever it raises is raised."""
        result = await self._call(handler, claimed, tx, effects, renew, approved, checked)
        await effects.finish()
        return ways.succeeded(claimed, result, handler.stages, handler.answers)

    async def _call(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: Transaction,
        effects: AttemptEffects,
        renew: Renew,
        approved: Approval | None,
        checked: Checked | None,
    ) -> Returned:
        given = self.statements(handler, tx, effects) if handler.transaction else None
        try:
            with in_handler(handler.name if handler.transaction else None):
                return await self._start(handler, claimed, given, effects, renew, approved, checked)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # by us, or by the timeout
            raise HandlerEnded("the handler's own code cancelled it") from None
        except SystemExit as error:
            raise HandlerEnded(f"the handler called sys.exit({error.code!r})") from error

    def _start(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: Any,
        effects: AttemptEffects,
        renew: Renew,
        approved: Approval | None,
        checked: Checked | None,
    ) -> Awaitable[Returned]:
        if handler.plain:
            loop = asyncio.get_running_loop()
            event: SyncEvent[Any] = SyncEvent(
                claimed, self._read, tx, effects, renew, self._current, loop, approved, checked
            )
            plain: PlainFunction = handler.function  # type: ignore[assignment]  # `plain` says so
            return in_a_thread(lambda: plain(event), "hookledger-handler")
        function: AsyncFunction = handler.function  # type: ignore[assignment]  # `plain` says so
        return function(Event(claimed, self._read, tx, effects, renew, self._current, approved, checked))
