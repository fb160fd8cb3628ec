"""Keeps the published keys that proved a request in the database, so that a restart needs no fetch.

Nothing waits for it: while the database is away keys are fetched, and what they proved is kept later.
"""

from __future__ import annotations

import asyncio
import logging

from ..errors import HookledgerError
from ..store.ops.published import PublishedKeys
from .keyring import Fetched

log = logging.getLogger(__name__)

MAX_KEYS = 64
"""Keys of each contract; the longest not fetched go."""


class KeptKeys:
    def __init__(self, keyring: Fetched, store: PublishedKeys) -> None:
        self._keyring = keyring
        self._store = store
        self._loaded = False
        self._turn = asyncio.Lock()

    async def sync(self) -> None:
        """Read what was kept, once, and keep what has proved a request since."""
        async with self._turn:
            try:
                if not self._loaded:
                    self._keyring.restore(await self._store.kept())
                    self._loaded = True
                for where, key in self._keyring.unsaved():
                    await self._store.keep(key, most=MAX_KEYS)
                    self._keyring.saved(where, key)
            except HookledgerError as error:
                log.debug("published keys are not kept yet: %s", error)

    async def run(self, every: float = 2.0) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await self.sync()
            except Exception:
                log.exception("published keys are not kept: internal error")
