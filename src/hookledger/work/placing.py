"""Lets the store decide which event of each entity is first; what disturbs that does not stop other events."""

from __future__ import annotations

import logging
import time

from ..errors import Unavailable
from ..store.protocol import Store
from ..store.sqlstate import is_contention

log: logging.Logger = logging.getLogger(__name__)

AGAIN_AFTER = 2.0
"""Seconds until the next try, where it could not be decided."""
AROUND_LOCKS = 60.0
"""Seconds for which entities with locked events are left for later, after one was waited for in vain: to look for
locks first costs a statement that is hardly ever needed."""


class Placing:
    """Of one worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._again_at = 0.0
        self._around_until = 0.0

    async def place(self) -> bool:
        """Return whether it was decided. Where it could not be, other events are due all the same."""
        if time.monotonic() < self._again_at:
            return False
        try:
            await self._place()
        except Unavailable as error:
            log.warning("ordered events wait: which are first could not be decided: %s", error)
            self._again_at = time.monotonic() + AGAIN_AFTER
            return False
        return True

    async def _place(self) -> None:
        entities = self._store.entities
        if time.monotonic() >= self._around_until:
            try:
                await entities.place_all()
            except Unavailable as error:
                if not is_contention(error):
                    raise
                log.warning(
                    "another session has locked ordered events; the other events of their entities wait for it"
                )
            else:
                return
            self._around_until = time.monotonic() + AROUND_LOCKS
        await entities.place_all(around_locks=True)
