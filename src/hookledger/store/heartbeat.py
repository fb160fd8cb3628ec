"""What a store must do for a worker's heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID


class Heartbeat(Protocol):
    """A connection of its own that keeps leases alive, used from the heartbeat's thread."""

    async def beat(self, claims: Sequence[tuple[UUID, int]], lease: float) -> set[UUID]:
        """Say that the worker lives, and what it handles; renew these leases; returns the ids that are still ours."""

    async def close(self) -> None: ...
