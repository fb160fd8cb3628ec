"""Workers: which are alive, and what they handle."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Kind, Pattern
from ..store.ops.workers import WorkerInfo
from .context import Context


async def workers(context: Context) -> list[WorkerInfo]:
    """Return workers that are alive, and those that died without stopping."""
    return [worker for worker in await context.store.workers() if not worker.left]


async def live_workers(context: Context) -> list[WorkerInfo]:
    """Return those that are alive, and applications that guard routes."""
    return [worker for worker in await context.store.workers() if worker.alive(context.lease)]


async def any_works(context: Context) -> bool:
    """Whether a worker is alive that processes what is due."""
    return any(worker.works(context.lease) for worker in await context.store.workers())


def handled_by(workers: list[WorkerInfo]) -> list[Pattern]:
    """Return what each of their handlers processes."""
    return [pattern for worker in workers for pattern in worker.handles]


def handles(patterns: Iterable[Pattern], kind: Kind) -> bool:
    """Whether one of the patterns covers this kind."""
    return any(pattern.takes(kind) for pattern in patterns)


def version_words(kind: Kind) -> str:
    """Return the type, and its version or that it has none: for types that have a handler in other versions."""
    return str(kind) if kind.version else f"{kind.type} without a version"


def handles_type(patterns: Iterable[Pattern], kind: Kind) -> bool:
    """Whether one of them covers the kind's type, in whichever version: then its events wait, and are not skipped."""
    return any(one.takes_type(kind) for one in patterns)
