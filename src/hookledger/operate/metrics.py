"""`/metrics` of the operator's listener: this process, the database, and the others of `hookledger serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..observe.metrics.process import ProcessMetrics, silent
from .gauges import DatabaseGauges

METRICS = "/metrics"
PATIENCE = 3.0
"""Seconds that another process has to answer."""
LARGEST = 8 * 2**20
"""Bytes of its answer."""
_REQUEST = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n"


class MetricsPage:
    """`others`: the Unix socket on which each of the other processes answers, by its kind."""

    def __init__(self, own: ProcessMetrics, gauges: DatabaseGauges, others: Mapping[str, str]) -> None:
        self._own = own
        self._gauges = gauges
        self._others = others
        self._making: asyncio.Task[str] | None = None

    async def text(self) -> str:
        """Return the metrics of all; concurrent callers share one reading."""
        if self._making is None:
            self._making = asyncio.create_task(self._make())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    def _made(self, _: object) -> None:
        self._making = None

    async def _make(self) -> str:
        from ..observe.metrics.samples import in_text, joined

        others = asyncio.create_task(metrics_of(self._others, PATIENCE))
        database = in_text(await self._gauges.samples())
        return joined([self._own.text(), *await others, database])


async def metrics_of(processes: Mapping[str, str], patience: float) -> list[str]:
    """Return the metrics of other processes, from their Unix sockets by kind; that one is silent, if it does not
    answer within so many seconds."""
    return await asyncio.gather(*(_ask(kind, path, patience) for kind, path in processes.items()))


async def _ask(kind: str, path: str, patience: float) -> str:
    try:
        async with asyncio.timeout(patience):
            return await _fetch(path)
    except (OSError, ValueError, asyncio.IncompleteReadError):  # TimeoutError is an OSError
        return silent(kind)


async def _fetch(path: str) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_REQUEST)
        found = bytearray()
        while part := await reader.read(2**16):
            found += part
            if len(found) > LARGEST:
                raise ValueError("the answer is too large")
    finally:
        writer.transport.abort()
    head, _, body = bytes(found).partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError("the process answered with an error")
    return body.decode()
