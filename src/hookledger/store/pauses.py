"""What a store knows of pauses: what workers leave alone for now."""

from __future__ import annotations

from typing import Protocol

from ..errors import WrongState
from ..jobs import Pause
from .rows import Row, Rows


class Pauses(Protocol):
    """`store.pauses`. A claim looks at them by itself, so a pause holds for every claim that begins after it; what is
    being processed finishes. Deliveries are accepted all the same."""

    async def pause(self, source: str, pattern: str, actor: str, reason: str) -> Pause:
        """Claim nothing of these types, audited. Raises WrongState, which says who paused them and why, when exactly
        these are paused already."""
        ...

    async def resume(self, source: str, pattern: str, actor: str, reason: str) -> None:
        """Take a pause back, audited. Raises WrongState when there is none of exactly these types."""
        ...

    async def pauses(self) -> list[Pause]: ...


def words(source: str, pattern: str) -> str:
    """As people and the audit name it."""
    return f"source {source}" if pattern == "*" else f"source {source}, type {pattern}"


def paused_already(pause: Pause) -> WrongState:
    by = f"by {pause.actor} since {pause.since:%Y-%m-%d %H:%M:%S} UTC ({pause.reason})"
    return WrongState(f"{words(pause.source, pause.pattern)} is paused already, {by}")


def not_paused(source: str, pattern: str) -> WrongState:
    return WrongState(f"{words(source, pattern)} is not paused")


def pause_of(row: Row, rows: Rows) -> Pause:
    return Pause(row["source"], row["pattern"], rows.time(row["since"]), row["actor"], row["reason"])
