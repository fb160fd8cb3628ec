"""A worker killed before each of its statements: every stage of an event begins once and is processed once."""

import asyncio
import os
from collections import Counter
from pathlib import Path

from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.ops.consistency import Violation
from hookledger.store.ops.workers import Reclaim
from tests.builders import SOURCE, delivered
from tests.crash.checker import Database
from tests.crash.killed_at import STEPS
from tests.crash.processes import ROOT
from tests.crash.stages_app import BUSINESS, STAGES
from tests.services.forked import Forked
from tests.soak import amount

KILLS = amount(12, 40, 1_000_000)
"""Evenly over all statements; scripts/soak kills before every one."""


def run(folder: Path, url: str, step: int) -> int:
    """The exit code of a worker that is killed before this statement; of 0 it is not."""
    log = folder / "log"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")},
        "HOOKLEDGER_APP": "tests.crash.stages_app:inbox",
        "HOOKLEDGER_DATABASE": url,
        STEPS: str(folder / "steps"),
    }
    arguments = [str(step), "work", "--drain"]
    process = Forked("tests.crash.killed_at", arguments, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        return process.wait(60)
    finally:
        process.kill()


async def reclaimed(url: str) -> list[str]:
    """What the dead worker held is due again, as after its lease; what the consistency check finds."""
    clock = Clock()
    store = connect(url, clock=clock)
    await store.open()
    clock.offset += 3600
    await store.reclaim([Reclaim(e.id, e.claim, -3600.0, "died") for e in await store.expired(100)])
    await store.close()
    return [violation.kind for violation in await books(url)]


async def books(url: str) -> list[Violation]:
    store = connect(url, clock=Clock())
    await store.open()
    report = await store.consistency.report()
    await store.close()
    return list(report.imbalances)


async def deliver(url: str, prefix: str) -> None:
    store = connect(url, clock=Clock())
    await store.open()
    kinds = ("order", "bare")
    await store.know_sources([SOURCE])
    await store.record([delivered(f"{prefix}_{n}", b"%d" % n, type=kinds[n % 2]) for n in range(4)])
    await store.close()


async def prepare(url: str) -> None:
    store = connect(url, clock=Clock())
    await store.open()
    await store.migrate()
    await store.close()


def test_a_worker_is_killed_at_every_statement(database_url: str, tmp_path: Path) -> None:
    asyncio.run(prepare(database_url))
    database = Database(database_url)
    database.rows(BUSINESS)
    asyncio.run(deliver(database_url, "measured"))
    assert run(tmp_path, database_url, 0) == 0, (tmp_path / "log").read_text()[-2000:]
    total = int((tmp_path / "steps").read_text())
    killed, steps = 0, range(1, total + 1, max(1, total // KILLS))
    for step in steps:
        asyncio.run(deliver(database_url, f"at_{step}"))
        killed += run(tmp_path, database_url, step) != 0
        assert asyncio.run(reclaimed(database_url)) == []
    assert killed > len(steps) / 4
    assert run(tmp_path, database_url, 0) == 0, (tmp_path / "log").read_text()[-2000:]
    done = Counter((row["what"], row["key"]) for row in database.rows("SELECT what, key FROM business"))
    keys = {row["key"]: row["type"] for row in database.rows("SELECT key, type FROM {h}events WHERE parent IS NULL")}
    wanted = {(stage, key) for key in keys for stage in STAGES}
    wanted |= {("event", key) for key, kind in keys.items() if kind == "order"}
    assert done == dict.fromkeys(wanted, 1)
    states = {row["state"] for row in database.rows("SELECT state FROM {h}events")}
    assert states == {"processed"}
    assert asyncio.run(books(database_url)) == []
