"""How long `hookledger copy` takes for an inbox with effects in every state: SQLite → PostgreSQL → SQLite.

    python -m benchmarks.copy [EVENTS] [--kill]

Each copy is a process. With --kill it is killed before and after every commit, and run again until it is complete; at
no moment may both sides be writable. Afterwards the rows of each table and the consistency report must be the same on
all sides, and old events that come again must be duplicates.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.builders import record
from tests.crash.killed_at import COMMITS, ROWS
from tests.inboxes import KEPT, PRUNED, arrived, fill
from tests.services.postgres import Postgres

from hookledger.clock import Clock
from hookledger.states import DeliveryOutcome
from hookledger.store.connect import connect

EVENTS = 100_000
ROWS_A_COMMIT = 8000
"""While it is killed: every commit costs two processes."""
KILLED = -9
SAMPLE = 500
"""Events of each kind that come again."""


async def filled(url: str, events: int) -> None:
    clock = Clock()
    store = connect(url, clock=clock, transaction_limit=60.0)
    await store.open(handlers=1)
    await store.migrate()
    await fill(store, clock, events, pruned=events // 10)
    await store.close()


async def facts(url: str) -> tuple[dict[str, int], Any]:
    store = connect(url, clock=Clock())
    await store.open()
    try:
        return await store.copies.totals(), await store.consistency.report()
    finally:
        await store.close()


async def redelivered(url: str, events: int) -> None:
    store = connect(url, clock=Clock())
    await store.open()
    numbers = range(0, events // 10, max(1, events // 10 // SAMPLE))
    again = await record(store, *(arrived(key.format(n)) for key in (KEPT, PRUNED) for n in numbers))
    assert {one.outcome for one in again} == {DeliveryOutcome.DUPLICATE}
    print(f"{len(again):,} old events came again: all are duplicates")
    await store.close()


def copied(source: str, target: str, *, kill: bool) -> float:
    """Seconds. `kill`: every process dies just before or just after the first commit that brings it further."""
    began, kills, further, step = time.monotonic(), 0, 0, 1
    environment = {**os.environ, "HOOKLEDGER_DATABASE": source, COMMITS: "1", ROWS: str(ROWS_A_COMMIT)}
    arguments = ["copy", "--to", target, "--yes", "--reason", "measured"]
    before = None
    while True:
        module = ["tests.crash.killed_at", str(step)] if kill else ["hookledger"]
        code = subprocess.run([sys.executable, "-m", *module, *arguments], check=False, env=environment).returncode
        if code == 0:
            break
        assert (code, kill) == (KILLED, True)
        kills += 1
        can_write, reached = asyncio.run(state(source, target))
        assert can_write != [True, True]
        if reached == before:
            step += 1  # a step later
        else:
            further += 1
            step = max(1, step - 1)  # again just before the next commit
        before = reached
    if kill:
        print(f"killed {kills} times, around each of {further} commits")
    return time.monotonic() - began


async def state(*urls: str) -> tuple[list[bool], list[Any]]:
    """Which sides can be written, and how far the copy has come."""
    can_write: list[bool] = []
    reached: list[Any] = []
    for url in urls:
        store = connect(url, clock=Clock())
        await store.open()
        health = await store.health()
        known = await store.copies.state() if health.schema else None
        can_write.append(health.writable and known is not None)
        reached.append((health.schema, known))
        await store.close()
    return can_write, reached


def main(events: int, *, kill: bool) -> None:
    with Postgres() as server, tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:///{Path(folder)}/a.db", server.create_database("b"), f"sqlite:///{Path(folder)}/c.db"]
        began = time.monotonic()
        asyncio.run(filled(urls[0], events))
        rows, books = asyncio.run(facts(urls[0]))
        print(f"{events:,} events, {sum(rows.values()):,} rows, filled in {time.monotonic() - began:.0f} s")
        print(f"effects: {books.effects}; pruned: {books.pruned:,}")
        for name, source, target in (("SQLite → PostgreSQL", *urls[:2]), ("PostgreSQL → SQLite", *urls[1:])):
            seconds = copied(source, target, kill=kill)
            print(f"{name}: {seconds:.1f} s, {sum(rows.values()) / seconds:,.0f} rows/s")
            there, theirs = asyncio.run(facts(target))
            rows = {**rows, "actions": rows["actions"] + 2}  # one on each side
            assert there == rows, {name: (rows[name], there[name]) for name in rows if rows[name] != there[name]}
            assert theirs == books
        print("rows of each table and the consistency report: the same on all sides")
        asyncio.run(redelivered(urls[2], events))


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[1:] if given.isdecimal()]
    main(numbers[0] if numbers else EVENTS, kill="--kill" in sys.argv)
