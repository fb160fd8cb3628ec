"""`/healthz`: the receiver answers. `/readyz`: and the database can be written, in a schema we know.

In public it says only whether it is ready; the operator's listener, which asks with a token, also says why not, and
whether workers live to do what is due.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from ..model import Health
from ..store import SCHEMA_RANGE
from .finding import Finding

Probe = Callable[[], Awaitable[Health]]
ALIVE = b'{"status":"alive"}'
HEALTH = ("/healthz", "/readyz")
SAYS = (200, 500, 503)
"""What a receiver answers there; whatever else is said comes from somebody else."""
SILENT = 7.0
"""Seconds after which a receiver is taken to be stuck; one that waits for its database says so before that."""


PROBE = b"x-hookledger-probe"
"""The header in which the operator's listener presents the token to the receiver."""
PROBE_TOKEN = "HOOKLEDGER_PROBE_TOKEN"  # noqa: S105 - the name of an environment variable


@cache
def probe_token() -> str:
    """Known to this process, and to those that one supervisor started."""
    return os.environ.get(PROBE_TOKEN) or secrets.token_urlsafe(24)


def asks_why(presented: bytes | None) -> bool:
    return presented is not None and hmac.compare_digest(presented, probe_token().encode())


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

    async def answer(self, path: str, *, why: bool) -> tuple[int, bytes] | None:
        """Status and JSON for a health path; None for any other. `why`: whoever asks may know the details."""
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


class WorkersWatch:
    """Whether somebody works, for the operator's `/readyz`: asked at most once a second, however many ask us."""

    def __init__(
        self, look: Callable[[], Awaitable[Sequence[Finding]]], *, every: float = 1.0, patience: float = 5.0
    ) -> None:
        self._look = look
        self._every = every
        self._patience = patience
        self._asked = float("-inf")
        self._found: Sequence[Finding] = ()
        self._lock = asyncio.Lock()

    async def add(self, status: int, body: bytes) -> tuple[int, bytes]:
        """The answer of a receiver that is ready, with what the workers are; 503 where due work has none."""
        report = msgspec.json.decode(body, type=dict[str, Any])
        async with self._lock:
            if time.monotonic() - self._asked >= self._every:
                async with asyncio.timeout(self._patience):
                    self._found = await self._look()
                self._asked = time.monotonic()
        report["workers"] = [f"{one.about}: {one.says}" for one in self._found]
        for one in self._found:
            if one.level == "problem":
                report |= {"status": "not ready", "problem": f"{one.about}: {one.says}; {one.do}"}
                return 503, msgspec.json.encode(report)
        return status, msgspec.json.encode(report)


class Receiver:
    """The health of a receiver that has a process, or a thread, of its own: asked where it takes deliveries, so that
    one that is stuck, full or gone is not called ready by somebody else who is fine."""

    def __init__(self, host: str, port: int, *, patience: float = SILENT) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to ask, not to listen
        self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._patience = patience
        self._asking: dict[str, asyncio.Task[tuple[int, bytes]]] = {}

    async def answer(self, path: str) -> tuple[int, bytes] | None:
        """What the receiver says, or 503 where it says nothing; None for what is no health path. Many who ask at the
        same time share one question."""
        if path not in HEALTH:
            return None
        asking = self._asking.get(path)
        if asking is None:
            asking = self._asking[path] = asyncio.create_task(self._said(path))
            asking.add_done_callback(lambda _: self._asking.pop(path, None))
        return await asyncio.shield(asking)

    async def _said(self, path: str) -> tuple[int, bytes]:
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
                said = await client.get(f"{self._url}{path}", headers={PROBE.decode(): probe_token()})
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise OSError(str(error)) from error
        if said.status_code not in SAYS:
            raise ValueError(f"{said.status_code} is not what a receiver says of its health")
        return said.status_code, said.content
