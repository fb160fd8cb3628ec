"""`hookledger prune` killed again and again: each event is whole or wholly pruned, and the books always say so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hookledger.clock import Clock
from hookledger.model import Kind
from hookledger.states import DeliveryOutcome
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import SOURCE, TYPE, WORKER, delivered, record, settle
from tests.crash.processes import PATIENCE, ROOT

EVENTS = 200
SETTINGS = """
[retention]
events = "0s"
batch = 5
pause = "5ms"
"""


async def finished(store: Store) -> None:
    """All with their attempts, and every third delivered again."""
    await record(store, *(delivered(f"evt_{n}") for n in range(EVENTS)))
    while owners := await store.claim(WORKER, [Kind(SOURCE, TYPE)], 50, 60.0):
        for owner in owners:
            assert await settle(store, owner, "complete")
    await record(store, *(delivered(f"evt_{n}") for n in range(0, EVENTS, 3)))


def pruning(folder: Path, url: str) -> subprocess.Popen[bytes]:
    settings = folder / "hookledger.toml"
    settings.write_text(SETTINGS)
    command = [sys.executable, "-m", "hookledger", "prune", "--now", "--config", str(settings), "--database", url]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


async def test_pruning_survives_kill_9(database_url: str, tmp_path: Path) -> None:  # proves R49
    clock = Clock()
    store = connect(database_url, clock=clock)
    await store.open()
    try:
        await store.migrate()
        await finished(store)
        clock.offset += 1
        kills = 0
        for after in (0.02, 0.05, 0.1):
            before = (await store.books.accounting()).pruned
            process = pruning(tmp_path, database_url)
            while process.poll() is None and (await store.books.accounting()).pruned == before:
                time.sleep(0.005)
            time.sleep(after)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
            process.wait()
            books = await store.books.accounting()
            assert books.imbalances == ()
            assert books.kept + books.pruned == EVENTS
        assert kills >= 2
        assert pruning(tmp_path, database_url).wait(60) == 0
        books = await store.books.accounting()
        assert (books.imbalances, books.kept, books.pruned) == ((), 0, EVENTS)
        verdicts = await record(store, *(delivered(f"evt_{n}") for n in range(EVENTS)))
        assert {verdict.outcome for verdict in verdicts} == {DeliveryOutcome.DUPLICATE}
    finally:
        await store.close()


async def test_a_living_worker_prunes(database_url: str, tmp_path: Path) -> None:  # proves R49
    """Nobody calls `hookledger prune`: two workers do it by themselves, beside their work."""
    store = connect(database_url, clock=Clock())
    await store.open()
    settings = tmp_path / "hookledger.toml"
    settings.write_text('[retention]\nevents = "0s"\nevery = "50ms"\npause = "1ms"\n')
    command = [sys.executable, "-m", "hookledger", "work", "--app", "tests.crash.app:inbox"]
    command += ["--config", str(settings), "--database", database_url]
    workers = []
    try:
        await store.migrate()
        await finished(store)
        workers = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(2)
        ]
        deadline = time.monotonic() + PATIENCE
        while (books := await store.books.accounting()).pruned < EVENTS:
            assert time.monotonic() < deadline, books
            assert books.imbalances == ()
            await asyncio.sleep(0.05)
        assert {worker.poll() for worker in workers} == {None}
        verdicts = await record(store, *(delivered(f"evt_{n}") for n in range(EVENTS)))
        assert {verdict.outcome for verdict in verdicts} == {DeliveryOutcome.DUPLICATE}
        assert (await store.books.accounting()).imbalances == ()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        await store.close()
