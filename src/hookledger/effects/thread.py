"""Plain functions, each in a separate thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from ..errors import HandlerEnded

T = TypeVar("T")


def in_a_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run a plain function in a new thread.

    Not in a pool: a function that overruns its timeout cannot be stopped, and
    a pool full of those would starve everyone else. A daemon, so that it
    cannot keep the process either.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # without an error there is a result
        else:
            future.set_exception(error if isinstance(error, Exception) else HandlerEnded(repr(error)))

    def run() -> None:
        result, failure = None, None
        try:
            result = context.run(function)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the worker is gone, and with it the waiter
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
