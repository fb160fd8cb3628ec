"""SQLite alone: a writer blocks every ack, so a handler's transaction has a hard limit.

The one file here that does not run on both stores: PostgreSQL's writers do not block one another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hookledger.clock import Clock
from hookledger.errors import TransactionTooLong
from hookledger.states import State
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from hookledger.store.sqlite.watch import VARIABLE, LockWatch
from tests.builders import Raw, claimed, event, recorded, settle, way_out

LIMIT = 0.25
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    store = connect(sqlite_url, clock=Clock(), transaction_limit=LIMIT)
    await store.open(handlers=8)
    await store.migrate()
    await Raw(store).run("CREATE TABLE ledger (entry text)")
    yield store
    await store.close()


async def test_a_handler_that_waits_too_long(store: Store) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.tx.execute("INSERT INTO ledger VALUES ('late')")
    # The ack queues behind the handler, and gets its turn when the limit strikes: nobody else ends this.
    await recorded(store, "evt_2")
    with pytest.raises(TransactionTooLong):
        await tx.tx.execute("INSERT INTO ledger VALUES ('later')")
    with pytest.raises(TransactionTooLong):
        await tx.commit([way_out(owner, "complete")])
    await tx.rollback()
    assert await Raw(store).count("ledger") == 0
    assert (await event(store, owner.id)).state is State.PROCESSING
    assert await settle(store, owner, "reschedule")


async def test_one_statement_that_runs_too_long(store: Store) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.tx.execute("INSERT INTO ledger VALUES ('late')")
    endless = asyncio.create_task(tx.tx.fetchval(ENDLESS))
    await recorded(store, "evt_2")
    with pytest.raises(TransactionTooLong):
        await endless
    with pytest.raises(TransactionTooLong):
        await tx.commit([way_out(owner, "complete")])
    assert await Raw(store).count("ledger") == 0


@pytest.mark.parametrize("then", ["write", "commit", "rollback"])
async def test_the_event_loop_is_blocked(store: Store, sqlite_url: str, then: str) -> None:
    """The limit strikes while nobody can be told; what the handler does next must not slip through."""
    owner = await claimed(store)
    other = connect(sqlite_url, clock=Clock())
    await other.open()
    tx = store.transaction()
    await tx.tx.execute("INSERT INTO ledger VALUES ('late')")
    time.sleep(LIMIT * 2)
    if then == "write":
        with pytest.raises(TransactionTooLong):
            await tx.tx.execute("INSERT INTO ledger VALUES ('outside any transaction')")
    if then != "rollback":
        with pytest.raises(TransactionTooLong):
            await tx.commit([way_out(owner, "complete")])
    await tx.rollback()
    assert await Raw(other).count("ledger") == 0
    assert (await event(other, owner.id)).state is State.PROCESSING
    assert await settle(store, owner, "reschedule")
    await other.close()


async def test_another_process_gets_the_lock(store: Store, sqlite_url: str) -> None:
    other = connect(sqlite_url, clock=Clock())
    await other.open()
    tx = store.transaction()
    await tx.tx.execute("INSERT INTO ledger VALUES ('late')")
    await recorded(other)
    with pytest.raises(TransactionTooLong):
        await tx.tx.execute("SELECT 1")
    await other.close()


async def test_the_next_transaction_has_its_own_limit(store: Store) -> None:
    first = store.transaction()
    await first.tx.execute("INSERT INTO ledger VALUES ('a')")
    owner = await claimed(store)  # gets its turn when the first is over
    second = store.transaction()
    await second.tx.execute("INSERT INTO ledger VALUES ('b')")
    await first.rollback()
    await second.commit([way_out(owner, "complete")])
    assert await Raw(store).all("ledger") == [("b",)]


async def test_statements_outside_a_handlers_transaction_have_no_limit(store: Store) -> None:
    [(n,)] = await Raw(store).run(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000) SELECT count(*) FROM n"
    )
    assert n == 500_000


async def test_the_supervisor_sees_who_holds_the_lock(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LockWatch.create(tmp_path / "watch")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "watch"))
    supervisor = LockWatch(tmp_path / "watch")
    store = connect(sqlite_url, clock=Clock())
    await store.open()
    await store.migrate()
    tx = store.transaction()
    assert supervisor.held_for() == 0.0
    await tx.tx.execute("SELECT 1")
    assert supervisor.held_for() > 0.0
    await tx.rollback()
    assert supervisor.held_for() == 0.0
    await store.close()
