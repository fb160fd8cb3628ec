"""A finding of the doctor."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "warn", "problem"]


class Finding(Struct, frozen=True):
    """One line of the doctor's report."""

    level: Level
    about: str
    says: str
    do: str = ""
    """What to do about it."""
