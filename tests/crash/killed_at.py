"""`python -m tests.crash.killed_at STEP ARGUMENTS…`: the command line, killed with -9 before its STEP-th statement.

With COMMITS in the environment it is killed at a commit instead: steps are the moments before and after each.
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
from hookledger.operate import copy
from hookledger.operate.alerts import sender
from hookledger.operate.consistency import check
from hookledger.operate.reconcile import compare, reconcile
from hookledger.operate.retention import prune
from hookledger.store.sqlite.files import Connection

STEPS = "HOOKLEDGER_TEST_STEPS"
ROWS = "HOOKLEDGER_TEST_ROWS"
COMMITS = "HOOKLEDGER_TEST_COMMITS"
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


def count_commits(counter: Counter) -> None:
    commit, execute, fetch = Connection.commit, asyncpg.Connection.execute, asyncpg.Connection.fetch

    def committed(self: Connection) -> None:
        counter.step()
        commit(self)
        counter.step()

    async def executed(self: Any, sql: str, *args: Any, **more: Any) -> Any:
        commits = sql.startswith("COMMIT")
        if commits:
            counter.step()
        result = await execute(self, sql, *args, **more)
        if commits:
            counter.step()
        return result

    async def fetched(self: Any, sql: str, *args: Any, **more: Any) -> Any:
        commits = "INSERT" in sql and not self.is_in_transaction()
        if commits:
            counter.step()
        result = await fetch(self, sql, *args, **more)
        if commits:
            counter.step()
        return result

    Connection.commit = committed  # type: ignore[method-assign]
    for name, instead in (("execute", executed), ("fetch", fetched)):
        setattr(asyncpg.Connection, name, instead)


def counted(ask: Any, counter: Counter) -> Any:
    async def asked(self: Any, *args: Any, **more: Any) -> Any:
        counter.step()
        return await ask(self, *args, **more)

    asked.__name__ = ask.__name__
    return asked


if __name__ == "__main__":
    counter = Counter(int(sys.argv.pop(1)))
    if COMMITS in os.environ:
        count_commits(counter)
    else:
        count_sqlite(counter)
        count_postgres(counter)
    for module in (prune, compare, reconcile, sender, check):
        vars(module)["LEASE"] = SOON
    compare.PAGE = 3  # the listed events are a few pages
    check.SIZES, check.SAVE = (10, 10), 0.0  # a check has many steps
    copy.ROWS = int(os.environ.get(ROWS, "40"))  # some tables take several batches
    try:
        main()
    finally:
        if place := os.environ.get(STEPS):
            Path(place).write_text(str(counter.steps))
