"""`hookledger prune` killed again and again: each event is whole or wholly pruned, and the books always say so."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from hookledger.clock import Clock
from hookledger.model import Kind
from hookledger.states import DeliveryOutcome
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import SOURCE, TYPE, WORKER, delivered, record, settle
from tests.crash.processes import PATIENCE, ROOT
from tests.services.forked import Forked
from tests.soak import amount

EVENTS = amount(100, 200, 200)
SETTINGS = """
[retention]
events = "0s"
batch = 5
batch_delay = "50ms"
"""


async def finished(store: Store) -> None:
    """All with their attempts, and every third delivered again."""
    await record(store, *(delivered(f"evt_{n}") for n in range(EVENTS)))
    while owners := await store.claim(WORKER, [Kind(SOURCE, TYPE)], 50, 60.0):
        for owner in owners:
            assert await settle(store, owner, "complete")
    await record(store, *(delivered(f"evt_{n}") for n in range(0, EVENTS, 3)))


def pruning(folder: Path, url: str) -> Forked:
    settings = folder / "hookledger.toml"
    settings.write_text(SETTINGS)
    arguments = ["prune", "--now", "--config", str(settings), "--database", url]
    return Forked("hookledger", arguments, cwd=ROOT, env=os.environ)


async def test_pruning_survives_kill_9(database_url: str, tmp_path: Path) -> None:
    clock = Clock()
    store = connect(database_url, clock=clock)
    await store.open()
    try:
        await store.migrate()
        await finished(store)
        clock.offset += 1
        kills, rounds = 0, (0.02, 0.05, 0.1, 0.03)[: amount(2, 4, 4)]
        for after in rounds:
            before = (await store.consistency.report()).pruned
            process = pruning(tmp_path, database_url)
            while process.poll() is None and (await store.consistency.report()).pruned == before:
                time.sleep(0.01)
            time.sleep(after)
            if process.poll() is None:
                process.kill()
                kills += 1
            process.wait()
            books = await store.consistency.report()
            assert books.imbalances == ()
            assert books.kept + books.pruned == EVENTS
        assert kills, "it was over before each kill"
        assert pruning(tmp_path, database_url).wait(60) == 0
        books = await store.consistency.report()
        assert (books.imbalances, books.kept, books.pruned) == ((), 0, EVENTS)
        verdicts = await record(store, *(delivered(f"evt_{n}") for n in range(EVENTS)))
        assert {verdict.outcome for verdict in verdicts} == {DeliveryOutcome.DUPLICATE}
    finally:
        await store.close()


async def test_a_living_worker_prunes(database_url: str, tmp_path: Path) -> None:
    """Two workers prune beside their work, without `hookledger prune`."""
    store = connect(database_url, clock=Clock())
    await store.open()
    settings = tmp_path / "hookledger.toml"
    settings.write_text('[retention]\nevents = "0s"\ninterval = "50ms"\nbatch_delay = "1ms"\n')
    command = ["work", "--app", "tests.crash.app:inbox", "--config", str(settings), "--database", database_url]
    workers = []
    try:
        await store.migrate()
        await finished(store)
        workers = [Forked("hookledger", command, cwd=ROOT, env=os.environ) for _ in range(2)]
        deadline = time.monotonic() + PATIENCE
        while (books := await store.consistency.report()).pruned < EVENTS:
            assert time.monotonic() < deadline, books
            assert books.imbalances == ()
            await asyncio.sleep(0.05)
        assert {worker.poll() for worker in workers} == {None}
        verdicts = await record(store, *(delivered(f"evt_{n}") for n in range(EVENTS)))
        assert {verdict.outcome for verdict in verdicts} == {DeliveryOutcome.DUPLICATE}
        assert (await store.consistency.report()).imbalances == ()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        await store.close()
