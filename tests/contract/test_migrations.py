"""From nothing to the current schema, once, however many migrate; the same schema in both databases."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, SchemaMismatch, StoreError
from hookledger.operate.doctor.checks import health_findings
from hookledger.states import State
from hookledger.store import BEFORE_FIRST, SCHEMA_RANGE
from hookledger.store.connect import connect
from hookledger.store.postgres import store as postgres_store
from hookledger.store.protocol import Store
from hookledger.store.sqlite import store as sqlite_store
from hookledger.store.text import migrations
from tests.builders import Raw, claimed, delivered, event, record, recorded, settle
from tests.contract.conftest import OpenStore

NEWEST = SCHEMA_RANGE[1]
LATER = [
    (NEWEST + 1, "colour", "ALTER TABLE {schema}.sources ADD COLUMN colour text"),
    (NEWEST + 2, "red", "UPDATE {schema}.sources SET colour = 'red'"),
]
"""Migrations of releases to come, made for these tests."""


def in_dialect(package: str, text: str) -> str:
    return text.replace("{schema}.", "") if "sqlite" in package else text


def release_with(monkeypatch: pytest.MonkeyPatch, more: list[tuple[int, str, str]]) -> None:
    """A release that has these migrations besides ours."""

    def known(package: str) -> list[tuple[int, str, str]]:
        return [*migrations(package), *((v, name, in_dialect(package, text)) for v, name, text in more)]

    for module in (sqlite_store, postgres_store):
        monkeypatch.setattr(module, "migrations", known)


async def test_migrate_twice(store: Store, raw: Raw) -> None:
    await recorded(store)
    before = await raw.all("migrations"), await raw.all("events")
    assert await store.migrate() == []
    assert (await raw.all("migrations"), await raw.all("events")) == before


@pytest.mark.unmigrated
async def test_migrations_applied_by_name(open_store: OpenStore) -> None:
    store = await open_store()
    applied = await store.migrate()
    assert applied[0] == "0001_initial"
    assert [name for name, _ in store.migrations()][1:] == applied


async def test_the_check_of_stages_reads_no_event_that_is_there(postgres_url: str) -> None:
    """It would lock the events of a large inbox, and the intake with them, for as long as it reads them all."""
    connection = await asyncpg.connect(postgres_url)
    try:
        asked = "SELECT convalidated FROM pg_constraint WHERE conname = 'stage_of_event'"
        assert await connection.fetchval(asked) is False
    finally:
        await connection.close()


@pytest.mark.unmigrated
async def test_four_stores_migrate_concurrently(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    applied = await asyncio.gather(*(store.migrate() for store in stores))
    assert [bool(names) for names in applied].count(True) == 1
    for store in stores:
        health = await store.health()
        assert (health.writable, health.schema, health.problem) == (True, NEWEST, None)
    assert await Raw(stores[0]).count("migrations") == len(next(filter(None, applied)))


async def test_later_migrations_keep_every_row(store: Store, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    event_id = await recorded(store)
    await store.know_sources(["stripe"])
    before = await raw.all("events")
    release_with(monkeypatch, LATER)
    assert await store.migrate() == [f"{version:04}_{name}" for version, name, _ in LATER]
    assert await raw.all("events") == before
    assert await raw.all("sources") == [("stripe", "red")]
    health = await store.health()
    assert (health.writable, health.schema, health.problem) == (True, LATER[-1][0], None), "the schema supports us"
    assert (await event(store, event_id)).state is State.PENDING


# ── releases that the schema is newer than ───────────────────────────────────

CONTRACTING = (NEWEST + 3, "contracts", f"UPDATE {{schema}}.schema_support SET oldest = {NEWEST + 1}")


async def test_a_process_of_this_release_works_on_until_a_migration_says_that_it_is_too_old(
    store: Store, open_store: OpenStore, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await open_store()
    with monkeypatch.context() as patch:
        release_with(patch, LATER)
        await other.migrate()
    before = await raw.all("probe")
    assert (await store.health()).writable
    assert await raw.all("probe") != before, "it was really written"
    owner = await claimed(store)
    assert await settle(store, owner, "complete")
    [written, *_] = health_findings(await store.health())
    assert (written.level, "newer than this release" in written.says) == ("ok", True)
    assert await store.migrate() == [], "an older release has nothing to add"
    release_with(monkeypatch, [*LATER, CONTRACTING])
    await other.migrate()
    health = await store.health()
    assert (health.writable, health.schema) == (False, CONTRACTING[0])
    assert "newer release" in (health.problem or "")
    [refused] = health_findings(health)
    assert (refused.level, refused.about) == ("problem", "database")


@pytest.mark.parametrize(
    ("oldest", "works"), [(1, True), (NEWEST - 1, True), (NEWEST, True), (NEWEST + 1, False), (NEWEST + 2, False)]
)
async def test_which_releases_a_newer_schema_supports(store: Store, raw: Raw, oldest: int, works: bool) -> None:
    await raw.run(f"UPDATE migrations SET version = {NEWEST + 2} WHERE version = {NEWEST}")
    await raw.run(f"UPDATE schema_support SET oldest = {oldest}")
    assert (await store.health()).writable is works


async def test_what_a_schema_supports_is_asked_only_where_it_is_newer(store: Store, raw: Raw) -> None:
    """A database that is restored to its first schema has no such table."""
    await raw.run("DROP TABLE schema_support")
    assert (await store.health()).writable
    await raw.run(f"DELETE FROM migrations WHERE version >= {SCHEMA_RANGE[0]}")
    health = await store.health()
    assert (health.writable, "run 'hookledger migrate'" in (health.problem or "")) == (False, True)


async def test_a_schema_that_does_not_say_what_it_supports_is_refused(store: Store, raw: Raw) -> None:
    await raw.run(f"UPDATE migrations SET version = {NEWEST + 1} WHERE version = {NEWEST}")
    await raw.run("DELETE FROM schema_support")
    health = await store.health()
    assert (health.writable, "newer release" in (health.problem or "")) == (False, True)


async def test_one_row_says_what_a_schema_supports(raw: Raw) -> None:
    assert [row[1] for row in await raw.all("schema_support")] == [1]
    two = "2" if raw.now.isdigit() else "false"
    for values in (f"({two}, 1)", "(NULL, 0)"):
        with pytest.raises(BadData):
            await raw.run(f"INSERT INTO schema_support (one, oldest) VALUES {values}")


async def test_a_failing_migration_changes_nothing(store: Store, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await raw.all("migrations")
    broken = (NEWEST + 2, "broken", "UPDATE {schema}.no_such_table SET colour = 'red'")
    with monkeypatch.context() as patch:
        release_with(patch, [LATER[0], broken])
        with pytest.raises(StoreError):
            await store.migrate()
    assert await raw.all("migrations") == before
    assert (await store.health()).writable
    release_with(monkeypatch, LATER)
    assert len(await store.migrate()) == 2, "the first of them was not applied by half"


async def test_a_database_made_before_the_first_release_is_refused(store: Store, raw: Raw) -> None:
    await raw.run("DELETE FROM migrations WHERE version > 1")
    await raw.run("UPDATE migrations SET name = 'path'")
    for version in (NEWEST + 1, NEWEST + 14):
        await raw.run(f"INSERT INTO migrations (version, name, applied_at) SELECT {version}, 'old', applied_at "
                      "FROM migrations WHERE version = 1")  # fmt: skip
    before = await raw.all("migrations")
    health = await store.health()
    assert (health.writable, health.schema) == (False, BEFORE_FIRST)
    assert "create a new database" in (health.problem or "")
    with pytest.raises(SchemaMismatch, match="create a new database"):
        await store.migrate()
    assert await raw.all("migrations") == before


@pytest.mark.unmigrated
async def test_health_before_and_after(open_store: OpenStore) -> None:
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


@pytest.mark.parametrize("version", [SCHEMA_RANGE[0] - 1, NEWEST + 1])
async def test_a_schema_out_of_range_is_reported(store: Store, raw: Raw, version: int) -> None:
    await raw.run(f"DELETE FROM migrations WHERE version > 1 AND version >= {version}")
    if version > 1:
        await raw.run(f"UPDATE migrations SET version = {version} WHERE version = 1")
    await raw.run(f"UPDATE schema_support SET oldest = {NEWEST + 1}")
    health = await store.health()
    assert (health.writable, health.schema) == (False, version)
    assert health.problem is not None
    assert str(version) in health.problem


@pytest.mark.unmigrated
async def test_before_the_first_migration(open_store: OpenStore) -> None:
    store = await open_store()
    with pytest.raises(SchemaMismatch, match="migrate"):
        await store.record([delivered()])
    with pytest.raises(SchemaMismatch, match="migrate"):
        await store.waiting()


@pytest.mark.unmigrated
async def test_a_migration_waits_for_the_intake(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that locks the intake's tables in the intake's order waits for a commit, and never deadlocks."""
    store = connect(postgres_url, clock=Clock())
    await store.open()
    await store.migrate()
    locks = "LOCK TABLE {schema}.identities, {schema}.events, {schema}.deliveries IN ACCESS EXCLUSIVE MODE"
    release_with(monkeypatch, [(NEWEST + 1, "locks", locks)])
    migrating = asyncio.create_task(store.migrate())
    results = await asyncio.gather(*(record(store, delivered(f"evt_{n}")) for n in range(20)))
    assert await migrating == [f"{NEWEST + 1:04}_locks"]
    assert len(results) == await Raw(store).count("events") == 20
    await store.close()


@pytest.mark.unmigrated
async def test_the_same_indexes(sqlite_url: str, postgres_url: str) -> None:
    found = []
    for url, query in (
        (sqlite_url, "SELECT tbl_name, name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"),
        (
            postgres_url,
            "SELECT tablename::text, indexname::text FROM pg_indexes "
            "WHERE schemaname = 'hookledger' AND indexname NOT LIKE '%_pkey'",
        ),
    ):
        store = connect(url, clock=Clock())
        await store.open()
        await store.migrate()
        found.append(set(await Raw(store).run(query)))
        await store.close()
    sqlite, postgres = found
    assert sqlite == postgres
    assert ("events", "events_in_review") in sqlite


@pytest.mark.unmigrated
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
