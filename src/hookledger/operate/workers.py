"""Workers: which are alive, and what they handle."""

from __future__ import annotations

from ..model import Kind, Pattern, covers
from ..store.ops.workers import WorkerInfo
from .context import Context


async def workers(context: Context) -> list[WorkerInfo]:
    """Return workers that are alive, and those that died without stopping."""
    return [worker for worker in await context.store.workers() if not worker.left]


async def live_workers(context: Context) -> list[WorkerInfo]:
    return [worker for worker in await context.store.workers() if worker.alive(context.lease)]


def handled_by(workers: list[WorkerInfo]) -> list[Pattern]:
    """Return source and type, or type pattern, of each of their handlers."""
    return [pattern for worker in workers for pattern in worker.handles]


def handles(patterns: list[Pattern], kind: Kind) -> bool:
    """Whether one of the patterns covers this kind."""
    return any(source == kind.source and covers(pattern, kind.type) for source, pattern in patterns)
