"""The gap that a restore from a backup leaves: calls may have been made that are not on record."""

from __future__ import annotations

import time
from typing import Any

from ..errors import HookledgerError
from ..states import Repeat
from ..store.ops.restores import Restore, Restores
from .model import Effect, Performance

STALE = 1.0
"""Seconds for which an answer of the database is believed."""


class MayBeDone(HookledgerError):
    """It may have been done before the restore: nothing is on record of that time."""


class Gap:
    """Of the store's open restore."""

    def __init__(self, restores: Restores) -> None:
        self._restores = restores
        self._known: Restore | None = None
        self._asked = float("-inf")

    async def objection(self, effect: Effect[Any, Any], what: Performance) -> MayBeDone | None:
        """Why the outcome of this call is unknown without its being made: that of an effect that is never repeated,
        while a restore is not closed, until an operator decided on it. Raises HookledgerError when that cannot be
        found out.
        """
        if effect.policy.repeat is not Repeat.NEVER:
            return None
        if time.monotonic() - self._asked > STALE:
            self._known = await self._restores.gap()
            self._asked = time.monotonic()
        if self._known is None:
            return None
        # Asked at each call: what the number says is no evidence, a refused one counts too.
        if not await self._restores.may_be_done(self._known, what.identity, what.generation, what.number):
            return None
        when = f"{self._known.backup_at:%Y-%m-%d %H:%M} UTC"
        return MayBeDone(
            f"not called: it may have been done between the backup of {when} and its restore; find out, then "
            "hookledger resolve"
        )
