"""After a restore from a backup: nothing is on record of the time since, and this says so for every effect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ..errors import WrongState
from ..store.ops.restores import Restore
from ..store.protocol import Store
from .finding import Finding
from .insight import Insight

BATCH = 500
"""Effects in one commit."""


async def after_restore(
    store: Store,
    backup_at: datetime,
    actor: str,
    reason: str,
    *,
    lease: float,
    told: Callable[[int], None] = lambda _: None,
) -> tuple[Restore, int]:
    """Open the gap, and make every effect unknown that was planned or started; how many. May be repeated when it was
    interrupted. `lease`: that of the workers, none of which may be alive; `told` is told of each batch.
    """
    alive = [worker.id for worker in await store.workers() if worker.alive(lease)]
    if alive:
        raise WrongState(f"worker {alive[0]} is alive: stop workers and receivers first")
    restore = await store.restores.begin(backup_at, actor, reason)
    total, last = 0, b""
    while True:
        number, after = await store.restores.doubt(restore, last, BATCH)
        if after is None:
            break
        total, last = total + number, after
        told(total)
    await store.restores.doubted(restore)
    return restore, total


async def gap(insight: Insight) -> list[Finding]:
    """Whether a restore is not closed yet."""
    return judge_gap(await insight.gap())


def judge_gap(restore: Restore | None) -> list[Finding]:
    if restore is None:
        return []
    says = (
        f"restored on {restore.restored_at:%Y-%m-%d %H:%M} UTC from a backup of "
        f'{restore.backup_at:%Y-%m-%d %H:%M} UTC: effects with repeat="never" wait for an operator'
    )
    do = "reconcile every source, then `hookledger doctor --after-restore --done --reason …`"
    if restore.doubted_at is None:
        says, do = "a restore was not prepared to its end", "run `hookledger doctor --after-restore` again"
    return [Finding("problem", "restore", says, do)]
