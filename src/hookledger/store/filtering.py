"""From a filter to a condition: the pieces that it needs, from `filters.sql` of either store, with their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ..filters import Filter

LAST = "\U0010ffff"
"""After whatever begins alike."""


class Condition:
    """What stands after WHERE, about events called `e`, and the values of its parameters."""

    def __init__(self, pieces: Mapping[str, str], parameter: str, moment: Callable[[datetime], Any]) -> None:
        """`parameter`: how the dialect writes one, before its number; `moment`: how it takes an instant."""
        self._pieces = pieces
        self._parameter = parameter
        self._moment = moment

    def of(self, where: Filter, *given: Any) -> tuple[str, list[Any]]:
        """The condition, and all the values: those `given` come first, as the caller's own parameters."""
        texts, values = [], list(given)

        def need(name: str, *needed: Any) -> None:
            text = self._pieces[name]
            for place, value in enumerate(needed):
                values.append(value)
                text = text.replace(f"{{{place}}}", f"{self._parameter}{len(values)}")
            texts.append(text)

        if where.source is not None:
            need("source", where.source)
        if where.type is not None and where.type.endswith("*"):
            need("type_begins", where.type[:-1], where.type[:-1] + LAST)
        elif where.type is not None:
            need("type", where.type)
        if where.states:  # names of ours, written out: the planner must see which partial index they are in
            names = ", ".join(f"'{state.value}'" for state in where.states)
            texts.append(self._pieces["states"].replace("{0}", names))
        if where.key is not None:
            need("key", where.key)
        if where.object_id is not None:
            need("object_id", where.object_id)
        if where.since is not None:
            need("since", self._moment(where.since))
        if where.until is not None:
            need("until", self._moment(where.until))
        if where.attention:
            need("attention")
        if where.error is not None:
            need("error", where.error)
        if where.text is not None:
            need("text", where.text.encode("utf-8", "surrogatepass"))
        return "\n  AND ".join(texts) or self._pieces["everything"], values
