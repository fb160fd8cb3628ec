"""`/healthz` and `/readyz` for operators: the receiver's health, and whether workers are alive for what is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ..receive.health import HEALTH, PROBE, probe_token
from ..store.history import Health
from .context import Context
from .doctor.finding import Finding

SAYS = (200, 500, 503)
"""Statuses of a receiver's health checks; any other comes from another program."""
SILENT = 7.0
"""Seconds after which a receiver counts as stuck; one that waits for its database answers earlier."""


async def database_health(context: Context) -> Health:
    """Return whether the database can be written, its schema version, and its clock."""
    return await context.store.health()


class WorkersWatch:
    """Adds the workers' state to `/readyz`; reads it at most once a second."""

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
        """Return a ready receiver's answer with the workers' state; 503 if work is due and no worker is alive."""
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
    """The health of a receiver in another process or thread: asked on the delivery port, so that a stuck, full or
    dead receiver is not reported ready."""

    def __init__(self, host: str, port: int, *, patience: float = SILENT) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to ask, not to listen
        self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._patience = patience
        self._asking: dict[str, asyncio.Task[tuple[int, bytes]]] = {}

    async def answer(self, path: str) -> tuple[int, bytes] | None:
        """Return the receiver's answer, or 503 if there is none; None for other paths. Concurrent callers share one
        request."""
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
            problem = f"the receiver did not answer within {self._patience:g} s"
        except (OSError, ValueError):
            problem = "the receiver does not answer"
        return 503, msgspec.json.encode({"status": "not ready", "problem": problem})

    async def _ask(self, path: str) -> tuple[int, bytes]:
        import httpx2

        try:
            # Plain HTTP: without `verify=False` each request would load all certificates first.
            async with httpx2.AsyncClient(timeout=None, trust_env=False, verify=False) as client:
                said = await client.get(f"{self._url}{path}", headers={PROBE.decode(): probe_token()})
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise OSError(str(error)) from error
        if said.status_code not in SAYS:
            raise ValueError(f"{said.status_code} is not a status of a receiver's health check")
        return said.status_code, said.content
