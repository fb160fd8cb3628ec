"""From nothing to the current schema, once, whoever comes first; the same schema in both databases."""

from __future__ import annotations

import asyncio

import pytest

from hookledger.clock import Clock
from hookledger.errors import SchemaMismatch
from hookledger.store import SCHEMA_RANGE
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from tests.builders import Raw, delivered, recorded
from tests.contract.conftest import OpenStore

NEWEST = SCHEMA_RANGE[1]


async def test_migrate_twice(store: Store, raw: Raw) -> None:  # proves R6
    await recorded(store)
    before = await raw.all("migrations"), await raw.all("events")
    assert await store.migrate() == []
    assert (await raw.all("migrations"), await raw.all("events")) == before


async def test_migrations_applied_by_name(open_store: OpenStore) -> None:
    store = await open_store()
    applied = await store.migrate()
    assert applied[0] == "0001_path"
    assert [name for name, _ in store.migrations()][1:] == applied


async def test_four_at_once(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    applied = await asyncio.gather(*(store.migrate() for store in stores))
    assert [bool(names) for names in applied].count(True) == 1
    for store in stores:
        health = await store.health()
        assert (health.writable, health.schema, health.problem) == (True, NEWEST, None)
    assert await Raw(stores[0]).count("migrations") == len(next(filter(None, applied)))


async def test_health_before_and_after(open_store: OpenStore) -> None:  # proves R8
    store = await open_store()
    health = await store.health()
    assert (health.writable, health.schema) == (False, 0)
    assert health.problem is not None
    assert "migrate" in health.problem
    await store.migrate()
    health = await store.health()
    assert (health.writable, health.schema, health.problem) == (True, NEWEST, None)
    assert abs(health.clock_skew) < 60


async def test_health_really_writes(store: Store, raw: Raw) -> None:
    before = await raw.all("probe")
    await store.health()
    after = await raw.all("probe")
    assert len(after) == 1
    assert after != before


@pytest.mark.parametrize("version", [0, SCHEMA_RANGE[0] - 1, NEWEST + 1])
async def test_a_schema_out_of_range_is_reported(store: Store, raw: Raw, version: int) -> None:
    await raw.run(f"DELETE FROM migrations WHERE version < {NEWEST}")
    await raw.run(f"UPDATE migrations SET version = {version}")
    health = await store.health()
    assert (health.writable, health.schema) == (False, version)
    assert health.problem is not None
    assert str(version) in health.problem


async def test_before_the_first_migration(open_store: OpenStore) -> None:
    store = await open_store()
    with pytest.raises(SchemaMismatch, match="migrate"):
        await store.record([delivered()])
    with pytest.raises(SchemaMismatch, match="migrate"):
        await store.waiting()


async def test_the_same_tables_and_columns(sqlite_url: str, postgres_url: str) -> None:
    found = []
    for url, query in (
        (
            sqlite_url,
            "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'",
        ),
        (
            postgres_url,
            "SELECT table_name::text, column_name::text FROM information_schema.columns "
            "WHERE table_schema = 'hookledger'",
        ),
    ):
        store = connect(url, clock=Clock())
        await store.open()
        await store.migrate()
        found.append(set(await Raw(store).run(query)))
        await store.close()
    sqlite, postgres = found
    assert sqlite == postgres
    assert ("events", "claim") in sqlite
