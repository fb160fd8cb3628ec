"""Store published keys that verified a request in the database, so that a restart needs no fetch.

Nothing waits for it: while the database is down keys are fetched, and stored later.
"""

from __future__ import annotations

import asyncio
import logging

from ..errors import HookledgerError
from ..store.ops.published import PublishedKeys
from .keyring import Fetched

log: logging.Logger = logging.getLogger(__name__)

MAX_KEYS = 64
"""Keys of each contract; those that were not fetched for longest are deleted."""


class KeptKeys:
    def __init__(self, keyring: Fetched, store: PublishedKeys) -> None:
        self._keyring = keyring
        self._store = store
        self._loaded = False
        self._turn = asyncio.Lock()

    async def sync(self) -> None:
        """Load the stored keys once, and store those that have verified a request since."""
        async with self._turn:
            try:
                if not self._loaded:
                    self._keyring.restore(await self._store.kept())
                    self._loaded = True
                for where, key in self._keyring.unsaved():
                    await self._store.keep(key, most=MAX_KEYS)
                    self._keyring.saved(where, key)
            except HookledgerError as error:
                log.debug("published keys are not stored yet: %s", error)

    async def run(self, every: float = 2.0) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await self.sync()
            except Exception:
                log.exception("published keys are not stored: internal error")
