"""Whose turn it is among the lanes of an effect: those that come first in the index must not starve the rest."""

from __future__ import annotations

from collections.abc import Sequence

from ..ledger import Effect

Wanted = Sequence[tuple[str, int, float]]
"""(name, how many, lease) of each effect."""


class Turns:
    """Where this process stopped in the lanes of each name; the next claim begins there, and goes round once."""

    def __init__(self) -> None:
        self._next: dict[str, str] = {}

    def begin(self, name: str) -> str:
        """No lane before this one is looked at."""
        return self._next.get(name, "")

    def left(self, wanted: Wanted, taken: Sequence[Effect]) -> Wanted:
        """What is still wanted from the lanes that were passed over; remembers where this round stopped."""
        left = []
        for name, most, lease in wanted:
            mine = [effect for effect in taken if effect.name == name]
            passed_over = self._next.pop(name, "") != ""
            if passed_over and len(mine) < most:
                left.append((name, most - len(mine), lease))
            elif lanes := [effect.lane for effect in mine if effect.lane is not None]:
                self._next[name] = max(lanes) + "\x01"  # the first that can come after it
        return left
