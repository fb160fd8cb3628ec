"""What an object is now, fetched by the source's own function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..effects.model import is_async
from ..effects.thread import in_a_thread
from ..errors import ConfigError
from .event import Facts

Present = Callable[[Any], Any]
"""An async or plain function of the event."""


class Currents:
    """Each source's function, if it has one."""

    def __init__(self) -> None:
        self._functions: dict[str, Present] = {}

    def add(self, source: str, function: Present) -> None:
        if source in self._functions:
            raise ConfigError(f"source {source!r}: there are two functions for what is current")
        self._functions[source] = function

    async def fetch(self, event: Facts) -> Any:
        """What the function says; a plain one is run in a thread."""
        function = self._functions.get(event.source)
        if function is None:
            raise ConfigError(f"source {event.source!r} does not say what is current: declare @source.current")
        if is_async(function):
            return await function(event)
        return await in_a_thread(lambda: function(event), "hookledger-current")
