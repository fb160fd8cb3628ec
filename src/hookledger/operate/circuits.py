"""Circuits: list them, and stop or allow calls to a downstream."""

from __future__ import annotations

from ..errors import ConfigError
from ..store.ops.audit import Audit
from ..store.ops.circuits import Circuit
from .context import Context


async def circuits(context: Context) -> list[Circuit]:
    """Return every downstream that ever failed or was tripped."""
    return await context.store.circuits.all()


async def trip(context: Context, by: Audit, downstream: str) -> None:
    """Stop all calls to a downstream until it is reset."""
    if not downstream.strip():
        raise ConfigError("the downstream's name is missing")
    await context.store.circuits.trip(downstream, *by)


async def reset(context: Context, by: Audit, downstream: str) -> None:
    """Allow calls to a downstream again."""
    await context.store.circuits.reset(downstream, *by)
