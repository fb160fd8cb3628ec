"""After restoring a backup: marks effects whose outcome since the backup is not on record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from ..errors import ConfigError, WrongState
from ..store.ops.audit import Audit
from ..store.ops.restores import Restore
from .context import Context
from .workers import live_workers

BATCH = 500
"""Effects per commit."""


async def after_restore(
    context: Context, by: Audit, backup_at: datetime, *, told: Callable[[int], None] = lambda _: None
) -> tuple[Restore, int]:
    """Open the gap after a restore from a backup of this time; returns the number of marked effects. Every planned or
    started effect becomes unknown, and effects that are never repeated wait for an operator until the gap is closed.
    Safe to repeat after an interruption.

    No worker may be alive; `told` gets the number after each batch.
    """
    if backup_at > datetime.now(UTC):
        raise ConfigError("the time of the backup is in the future: give the time at which it was made")
    if alive := await live_workers(context):
        raise WrongState(f"worker {alive[0].id} is alive: stop all workers and receivers first")
    restores = context.store.restores
    restore = await restores.begin(backup_at, *by)
    total, last = 0, b""
    while True:
        number, after = await restores.mark_unknown(restore, last, BATCH)
        if after is None:
            break
        total, last = total + number, after
        told(total)
    await restores.marked(restore)
    return restore, total


async def close_gap(context: Context, by: Audit) -> Restore:
    """Close the gap: the time between backup and restore is reconciled, and effects are performed as declared."""
    return await context.store.restores.close(*by)
