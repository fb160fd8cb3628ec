"""Tickets: each higher than all before it, whoever draws, and whatever crashes, is copied or restored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from hookledger.clock import Clock
from hookledger.errors import Unavailable
from hookledger.operate.copy import Side, copy
from hookledger.store.connect import connect
from hookledger.store.ops.audit import Audit
from hookledger.store.protocol import Store
from hookledger.store.url import without_password
from tests.builders import Raw
from tests.contract.conftest import OpenStore
from tests.services.postgres import Databases

BY = Audit("ada", "a bigger machine")


async def test_each_is_higher_than_all_before(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    drawn = [await one.tickets.draw(count) for one in (store, other, store) for count in (1, 3)]
    assert [list(some) for some in drawn] == [[1], [2, 3, 4], [5], [6, 7, 8], [9], [10, 11, 12]]
    await store.close()
    await store.open()
    assert list(await store.tickets.draw(1)) == [13]


async def test_concurrent_draws_share_no_ticket(open_store: OpenStore) -> None:
    """The first draws, too, which insert the row."""
    stores = [await open_store() for _ in range(4)]
    drawn = await asyncio.gather(*(stores[n % 4].tickets.draw(n % 3 + 1) for n in range(40)))
    given = [ticket for some in drawn for ticket in some]
    assert sorted(given) == list(range(1, len(given) + 1))


async def test_a_handlers_transaction_is_not_in_the_way(store: Store) -> None:
    """Nor is its rollback: a number that was given out stays given out. On SQLite `event.current()` is refused inside
    a transaction, and waits for those of other handlers."""
    tx = store.transaction()
    await tx.tx.execute("CREATE TABLE mine (n INTEGER)")
    drawing = asyncio.create_task(store.tickets.draw(1))
    if not tx.exclusive:
        assert list(await drawing) == [1]
    await tx.rollback()
    assert list(await drawing) == [1]
    assert list(await store.tickets.draw(1)) == [2]


WATCH = [
    "CREATE TABLE seen (value text)",
    """CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO "hookledger".seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$""",
    "CREATE TRIGGER see BEFORE INSERT OR UPDATE ON tickets FOR EACH ROW EXECUTE FUNCTION see()",
]


@pytest.mark.parametrize("pooler", [False, True])
async def test_a_draw_is_on_disk_though_the_database_says_off(postgres_url: str, pooler: bool) -> None:
    """PostgreSQL only: SQLite has one setting for all, FULL."""
    store = connect(postgres_url, clock=Clock(), pooler=pooler)
    await store.open(handlers=1)
    raw = Raw(store)
    try:
        for statement in WATCH:
            await raw.run(statement)
        name = postgres_url.rpartition("/")[2]
        await raw.run(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        await store.close()
        await store.open(handlers=1)
        assert await raw.run("SHOW synchronous_commit") == [("off",)]
        assert [list(await store.tickets.draw(2)) for _ in range(2)] == [[1, 2], [3, 4]]
        assert {value for (value,) in await raw.run("SELECT * FROM seen")} == {"on"}
    finally:
        await store.close()


async def test_a_copy_continues_where_its_source_was(
    store: Store, database_url: str, tmp_path: Path, postgres: Databases
) -> None:
    """To the other database; and while it is copied, the source gives out none."""
    assert list(await store.tickets.draw(7))[-1] == 7
    name = f"hookledger_target_{uuid4().hex}"
    to_postgres = database_url.startswith("sqlite")
    url = postgres.create_database(name) if to_postgres else f"sqlite:///{tmp_path}/target.db"
    target = connect(url, clock=Clock())
    await target.open()
    try:
        await copy(Side(store, without_password(database_url)), Side(target, without_password(url)), BY)
        with pytest.raises(Unavailable, match="was moved"):
            await store.tickets.draw(1)
        assert list(await target.tickets.draw(1)) == [8]
    finally:
        await target.close()
        if to_postgres:
            postgres.drop_database(name)


async def test_a_restored_database_repeats_none(store: Store) -> None:
    """Those that were given out after the backup may stand in another system, as the version of what it has."""
    [last] = await store.tickets.draw(1)
    await store.restores.begin(datetime.now(UTC), "ada", "the disk broke")
    [next_one] = await store.tickets.draw(1)
    assert next_one > last + 1_000_000_000
    await store.restores.begin(datetime.now(UTC), "ada", "again: it was not prepared to its end")
    assert list(await store.tickets.draw(1)) == [next_one + 1]
