"""Rolls back the transaction of a handler that raised, and finds out whether the handler had committed it."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from ..errors import HandlerCommitted, MayHaveCommitted
from ..retry import message_of
from ..store.protocol import Transaction
from .route import Handler

log: logging.Logger = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds for which a worker that is told to stop waits for a rollback."""


async def undo(handler: Handler, tx: Transaction, error: BaseException) -> NoReturn:
    """Roll back, and raise why the attempt ended: `error`, what explains it, or HandlerCommitted.

    Also a worker that is told to stop has time for this: what was committed must not be run again.
    """
    explained = tx.explain(error) if isinstance(error, Exception) else error
    abandoned = handler.plain and isinstance(error, asyncio.CancelledError | TimeoutError)  # its thread lives on
    committed = await _answer(asyncio.ensure_future(tx.rollback(abandoned=abandoned)))
    if committed and not isinstance(error, HandlerCommitted):
        raise HandlerCommitted(f"{HandlerCommitted()}; then {type(error).__name__}: {message_of(error)}") from error
    if explained is not error:
        raise explained from error
    raise error


async def _answer(rollback: asyncio.Future[bool]) -> bool:
    """Whether the handler had committed. If we are stopped before that is known, it counts as if it had."""
    try:
        return await asyncio.shield(rollback)
    except asyncio.CancelledError:
        await asyncio.wait([rollback], timeout=PATIENCE)
        if rollback.done():
            return rollback.result()
        rollback.add_done_callback(_unheard)
        raise MayHaveCommitted() from None


def _unheard(rollback: asyncio.Future[bool]) -> None:
    if not rollback.cancelled() and (error := rollback.exception()):
        log.warning("the transaction of a handler that was stopped: %s", error)
