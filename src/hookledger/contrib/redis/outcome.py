"""What a guarded call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from .answers import T


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The answer, and how it was found."""

    answer: T
    repeated: bool
    """The answer is that of an earlier call: nothing ran."""
    guarded: bool = True
    """False: the work ran without a lease, because Redis was away, and another caller may have run it too."""
    stored: bool = True
    """False: duplicates do not get this answer; they may run the work again."""
