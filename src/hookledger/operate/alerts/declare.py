"""`@inbox.alert`: your own function as a target of alerts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, overload

from ...effects.signatures import check_takes
from ...errors import ConfigError
from .settings import AlertFunction, check_name, wanted_kinds
from .words import Alert

F = TypeVar("F", bound=Callable[[Alert], Awaitable[None] | None])


class AlertDecorators:
    """`alert`: a base of Inbox."""

    def __init__(self) -> None:
        super().__init__()
        self.alert_functions: list[AlertFunction] = []

    @overload
    def alert(self, function: F, /) -> F: ...

    @overload
    def alert(self, /, *, only: Sequence[str] | None = None) -> Callable[[F], F]: ...

    def alert(self, function: Any = None, /, *, only: Sequence[str] | None = None) -> Any:
        """Call this function, async or plain, with each alert; `only`: of these kinds. It is a target like those of
        `[alerts.targets]`, under its name: called once for each message, and again if it raises or takes longer than
        three times `timeout`. Processes that load the application call it."""
        if function is None:
            return lambda given: self._add(given, only)
        return self._add(function, only)

    def _add(self, function: F, only: Sequence[str] | None) -> F:
        kinds = wanted_kinds(None if only is None else list(only))
        check_takes(function, "alert function", "alert")
        name = check_name(getattr(function, "__name__", type(function).__name__))
        if name in {one.name for one in self.alert_functions}:
            raise ConfigError(f"there are two alert functions called {name!r}: rename one")
        self.alert_functions.append(AlertFunction(name, function, kinds))
        return function
