"""`/healthz`: the receiver runs. `/readyz`: and the database is writable, with a supported schema.

The receiver tells the public only whether it is ready. The operator's listener asks with a token, and also tells why
not and whether workers are alive.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache

import msgspec

from ..store import SCHEMA_RANGE
from ..store.history import Health

Probe = Callable[[], Awaitable[Health]]
ALIVE = b'{"status":"alive"}'
HEALTH = ("/healthz", "/readyz")

PROBE = b"x-hookledger-probe"
"""The header in which the operator's listener sends the token to the receiver."""
PROBE_TOKEN = "HOOKLEDGER_PROBE_TOKEN"  # noqa: S105 - the name of an environment variable


@cache
def probe_token() -> str:
    """Return the token that this process shares with the others of its supervisor."""
    return os.environ.get(PROBE_TOKEN) or secrets.token_urlsafe(24)


def may_see_details(presented: bytes | None) -> bool:
    return presented is not None and hmac.compare_digest(presented, probe_token().encode())


class Readiness:
    """Checks the database at most once a second, however many requests ask."""

    def __init__(
        self,
        probe: Probe,
        *,
        rejected: Callable[[], Mapping[str, int]] = dict,
        every: float = 1.0,
        patience: float = 5.0,
    ) -> None:
        """`rejected`: how many requests were rejected since the start, by reason."""
        self._probe = probe
        self._rejected = rejected
        self._every = every
        self._patience = patience
        self._asked = float("-inf")
        self._health = Health(False, 0, 0.0, "not checked yet")
        self._lock = asyncio.Lock()

    async def ask(self) -> Health:
        async with self._lock:
            if time.monotonic() - self._asked >= self._every:
                try:
                    async with asyncio.timeout(self._patience):
                        self._health = await self._probe()
                except TimeoutError:
                    self._health = Health(False, 0, 0.0, f"no answer within {self._patience:g} s")
                self._asked = time.monotonic()
            return self._health

    @property
    def skew(self) -> float:
        """Seconds by which the database's clock was ahead at the last check."""
        return self._health.clock_skew

    async def answer(self, path: str, *, why: bool) -> tuple[int, bytes] | None:
        """Return status and JSON for a health path; None for any other. `why`: include the details."""
        if path == "/healthz":
            return 200, ALIVE
        if path != "/readyz":
            return None
        health = await self.ask()
        low, high = SCHEMA_RANGE
        status = "ready" if health.writable else "not ready"
        details = {
            "database_writable": health.writable,
            "schema": health.schema,
            "schema_range": [low, high],
            "clock_skew": round(health.clock_skew, 3),
            "problem": health.problem,
            "rejected": dict(self._rejected()),
        }
        report = {"status": status, **(details if why else {})}
        return (200 if health.writable else 503), msgspec.json.encode(report)
