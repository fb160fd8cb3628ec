"""From a filter to a condition: the pieces that it needs, from `filters.sql` of either store, with their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
        for name, needed in self._needed(where):
            text = self._pieces[name]
            for place, value in enumerate(needed):
                values.append(value)
                text = text.replace(f"{{{place}}}", f"{self._parameter}{len(values)}")
            texts.append(text)
        if where.states:  # names of ours, written out: the planner must see which partial index they are in
            names = ", ".join(f"'{state.value}'" for state in where.states)
            texts.append(self._pieces["states"].replace("{0}", names))
        return "\n  AND ".join(texts) or self._pieces["everything"], values

    def _needed(self, where: Filter) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Pieces and their values, the dear ones last."""
        if where.type is not None and where.type.endswith("*"):
            yield "type_begins", (where.type[:-1], where.type[:-1] + LAST)
        elif where.type is not None:
            yield "type", (where.type,)
        for name in ("source", "key", "object_id", "account", "cause"):
            if (value := getattr(where, name)) is not None:
                yield name, (value,)
        for name in ("since", "until"):
            if (moment := getattr(where, name)) is not None:
                yield name, (self._moment(moment),)
        if where.attention:
            yield "attention", ()
        if where.effect is not None:
            name, separator, key = where.effect.partition(":")
            yield ("effect_key", (name, key)) if separator else ("effect", (name,))
        if where.error is not None:
            yield "error", (where.error,)
        if where.text is not None:
            yield "text", (where.text.encode(),)
