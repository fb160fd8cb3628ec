"""Lets the store decide which event of each entity is first. What disturbs that does not stop the others."""

from __future__ import annotations

import logging
import time

from ..errors import Unavailable
from ..store.protocol import Store

log: logging.Logger = logging.getLogger(__name__)

AGAIN_AFTER = 2.0
"""Seconds until the next try, where rows that it needs were locked: each try waits for them."""


class Placing:
    """Of one worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._again_at = 0.0

    async def place(self) -> bool:
        """Return whether it was decided. Where it could not be, other events are due all the same."""
        if time.monotonic() < self._again_at:
            return False
        try:
            await self._store.entities.place_all()
        except Unavailable as error:
            log.warning("ordered events wait: which are first could not be decided: %s", error)
            self._again_at = time.monotonic() + AGAIN_AFTER
            return False
        return True
