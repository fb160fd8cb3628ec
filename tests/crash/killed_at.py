"""`python -m tests.crash.killed_at STEP ARGUMENTS…`: the command line, killed with -9 before its STEP-th statement.

With step 0 it runs to its end and writes how many statements there were to the file that STEPS names. A turn or lease
lasts a moment only, so that whoever comes after a dead one need not wait for long.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from hookledger.cli import main
from hookledger.operate import actions, reconcile
from hookledger.upkeep import prune

STEPS = "HOOKLEDGER_TEST_STEPS"
SOON = 0.5


class Counter:
    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def count_sqlite(counter: Counter) -> None:
    def traced(_cursor: Any, _sql: str, _bindings: Any) -> bool:
        counter.step()
        return True

    apsw.connection_hooks.append(lambda connection: connection.set_exec_trace(traced))


def count_postgres(counter: Counter) -> None:
    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        setattr(asyncpg.Connection, name, counted(getattr(asyncpg.Connection, name), counter))


def counted(ask: Any, counter: Counter) -> Any:
    async def asked(self: Any, *args: Any, **more: Any) -> Any:
        counter.step()
        return await ask(self, *args, **more)

    asked.__name__ = ask.__name__
    return asked


if __name__ == "__main__":
    counter = Counter(int(sys.argv.pop(1)))
    count_sqlite(counter)
    count_postgres(counter)
    for module in (prune, reconcile, actions):
        vars(module)["LEASE"] = SOON
    reconcile.PAGE = 3  # the listed events are a few pages
    try:
        main()
    finally:
        if place := os.environ.get(STEPS):
            Path(place).write_text(str(counter.steps))
