"""`/healthz`: the receiver answers. `/readyz`: and the database can be written, in a schema we know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from ..model import Health
from ..store import SCHEMA_RANGE

Probe = Callable[[], Awaitable[Health]]
ALIVE = b'{"status":"alive"}'
HEALTH = ("/healthz", "/readyz")
SAYS = (200, 500, 503)
"""What a receiver answers there; whatever else is said comes from somebody else."""
SILENT = 7.0
"""Seconds after which a receiver is taken to be stuck; one that waits for its database says so before that."""


class Readiness:
    """Asks the database at most once a second, however many ask us."""

    def __init__(
        self,
        probe: Probe,
        *,
        rejected: Callable[[], Mapping[str, int]] = dict,
        every: float = 1.0,
        patience: float = 5.0,
    ) -> None:
        """`rejected`: how many requests were refused since the start, by reason."""
        self._probe = probe
        self._rejected = rejected
        self._every = every
        self._patience = patience
        self._asked = float("-inf")
        self._health = Health(False, 0, 0.0, "not asked yet")
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
        """How far the database's clock was ahead when last asked."""
        return self._health.clock_skew

    async def answer(self, path: str) -> tuple[int, bytes] | None:
        """Status and JSON for a health path; None for any other."""
        if path == "/healthz":
            return 200, ALIVE
        if path != "/readyz":
            return None
        health = await self.ask()
        low, high = SCHEMA_RANGE
        report = {
            "status": "ready" if health.writable else "not ready",
            "database_writable": health.writable,
            "schema": health.schema,
            "schema_range": [low, high],
            "clock_skew": round(health.clock_skew, 3),
            "problem": health.problem,
            "rejected": dict(self._rejected()),
        }
        return (200 if health.writable else 503), msgspec.json.encode(report)


class Receiver:
    """The health of a receiver that has a process, or a thread, of its own: asked where it takes deliveries, so that
    one that is stuck, full or gone is not called ready by somebody else who is fine."""

    def __init__(self, host: str, port: int, *, patience: float = SILENT) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to ask, not to listen
        self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._patience = patience

    async def answer(self, path: str) -> tuple[int, bytes] | None:
        """What the receiver says, or 503 where it says nothing; None for what is no health path."""
        if path not in HEALTH:
            return None
        try:
            async with asyncio.timeout(self._patience):
                return await self._ask(path)
        except TimeoutError:
            problem = f"the receiver does not answer within {self._patience:g} s"
        except (OSError, ValueError):
            problem = "the receiver does not answer"
        return 503, msgspec.json.encode({"status": "not ready", "problem": problem})

    async def _ask(self, path: str) -> tuple[int, bytes]:
        import httpx2

        try:
            # No TLS is spoken there: without `verify=False` each question would read all certificates first.
            async with httpx2.AsyncClient(timeout=None, trust_env=False, verify=False) as client:
                said = await client.get(f"{self._url}{path}")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise OSError(str(error)) from error
        if said.status_code not in SAYS:
            raise ValueError(f"{said.status_code} is not what a receiver says of its health")
        return said.status_code, said.content
