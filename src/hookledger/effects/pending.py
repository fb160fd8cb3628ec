"""What `event` returns before it is awaited, and what notices that it never was."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from ..errors import ForgottenAwait

T = TypeVar("T")


class Pending(Coroutine[Any, Any, T]):
    """What `event.once`, `newer`, `call` and `later` return, and statements of `event.tx`: it happens when it is
    awaited, and must be.

    `if event.once(…)` without `await` would always be true, so the truth of
    this is refused; and a handler that never awaits it is failed.
    """

    def __init__(
        self, what: str, run: Callable[[], Coroutine[Any, Any, T]], waiting: dict[int, Pending[Any]]
    ) -> None:
        self.what: str = what
        self._run = run
        self._waiting = waiting
        self._begun: Coroutine[Any, Any, T] | None = None
        waiting[id(self)] = self  # kept until its end, so that its id stays its own

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begin().__await__()

    # A coroutine, so that a task group takes it, and type checkers report one that is never awaited.
    def send(self, value: Any) -> Any:
        return self._begin().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begin().throw(*error)

    def close(self) -> None:
        if self._begun is not None:
            self._begun.close()

    def _begin(self) -> Coroutine[Any, Any, T]:
        if self._begun is None:
            self._begun = self._to_the_end()
        return self._begun

    async def _to_the_end(self) -> T:
        try:
            return await self._run()
        finally:
            self._waiting.pop(id(self), None)  # not earlier: one that was only begun has not happened

    # Declared as no bool, so that pyright reports `if event.once(…)`; and not as NoReturn, because mypy would then
    # take the rest of the handler for unreachable and skip checking it.
    def __bool__(self) -> str:
        raise ForgottenAwait(f"write `await {self.what}`: without it nothing has happened yet")
