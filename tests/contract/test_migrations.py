"""From nothing to the current schema, once, whoever comes first; the same schema in both databases."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, SchemaMismatch
from hookledger.identities import body_identity, key_identity
from hookledger.model import Kind
from hookledger.states import DeliveryOutcome
from hookledger.store import SCHEMA_RANGE
from hookledger.store.connect import connect
from hookledger.store.postgres import store as postgres_store
from hookledger.store.protocol import Store
from hookledger.store.queries import migrations
from hookledger.store.sqlite import store as sqlite_store
from tests.builders import Raw, claim, delivered, item, record, recorded, settle
from tests.contract.conftest import OpenStore
from tests.contract.test_impossible_rows import (
    ACTION,
    ATTEMPT,
    CANCELLED,
    DELIVERY,
    EFFECT,
    EFFECT_CALL,
    EFFECTS,
    EVENT,
    FROZEN,
    IDENTITY,
    JOB,
    OVER,
    REFUSED,
    RUNNING,
    STATES,
    in_dialect,
    insert,
)

NEWEST = SCHEMA_RANGE[1]


def blob(raw: Raw, value: bytes) -> str:
    """As a literal of the dialect."""
    return f"x'{value.hex()}'" if raw.now.isdigit() else f"'\\x{value.hex()}'::bytea"


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


OLD: list[tuple[str, dict[str, str]]] = [
    *(("events", EVENT | {"state": f"'{state}'", "error": "'e'"} | needs) for state, needs in STATES.items()),
    *(("events", EVENT | {"state": "'pending'", "due_at": "NOW", "crashes": f"{n}"}) for n in (1, 2, 3)),
    *(
        ("events", EVENT | {"state": "'pending'", "due_at": "NOW", "key_origin": f"'{origin}'"})
        for origin in ("unsigned_id", "composite", "digest")
    ),
    *(
        ("deliveries", DELIVERY | {"outcome": f"'{outcome}'", "event_state": "'failed'", "delivery_id": "'d'"})
        for outcome in ("accepted", "duplicate", "conflict", "same_body", "invalid")
    ),
    *(("identities", IDENTITY | {"kind": f"'{kind}'"}) for kind in ("key", "body")),
    *(("effects", EFFECT | {"state": f"'{state}'"} | needs) for state, needs in EFFECTS.items()),
    ("effect_calls", EFFECT_CALL),
    ("attempts", ATTEMPT),
    ("actions", ACTION),
    ("sources", {"name": "'stripe'"}),
]
"""What a database of version 2 may hold."""


async def migrate_to(version: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As a release did that knew no newer one."""

    def known(package: str) -> list[tuple[int, str, str]]:
        return [migration for migration in migrations(package) if migration[0] <= version]

    with monkeypatch.context() as patch:
        for module in (sqlite_store, postgres_store):
            patch.setattr(module, "migrations", known)
        return await store.migrate()


async def test_from_version_2_every_row_is_kept(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # proves R7, R44
    store = await open_store()
    assert await migrate_to(2, store, monkeypatch) == ["0001_path", "0002_effects"]
    raw = Raw(store)
    for table, row in OLD * 3:
        if table != "sources" or not await raw.count("sources"):
            await raw.run(insert(raw, table, in_dialect(raw, row)))
    tables = sorted({table for table, _ in OLD})
    before = {table: await raw.all(table) for table in tables}
    assert not (await store.health()).writable
    assert await store.migrate() == [name for name, _ in store.migrations()][3:]
    store = await open_store()  # what was prepared before knows other columns
    raw = Raw(store)
    trouble = ("retrying", "failed", "needs_review")
    causes = [row[13] if row[12] in trouble else None for row in before["events"]]  # state, and its reason
    more = [(None, cause, None, None) for cause in causes]  # no alert, not emptied, of no account
    before["events"] = [(*row, *new) for row, new in zip(before["events"], more, strict=True)]
    before["deliveries"] = [(*row, None) for row in before["deliveries"]]  # of no retry
    before["actions"] = [(*row, None) for row in before["actions"]]  # replaced nothing
    assert {table: await raw.all(table) for table in tables} == before
    assert (await raw.count("rejections"), await raw.count("rejection_counts")) == (0, 0)
    # And it works on: the indexes are there, and what was refused before is refused still.
    assert (await store.health()).writable
    assert {w.alone for w in await store.waiting()} == {False, True}
    [_, *_] = await store.expired(10)
    await recorded(store, "new", type="new")
    assert await settle(store, await claim(store, Kind("stripe", "new")), "complete")
    with pytest.raises(BadData):
        await raw.run(insert(raw, "events", EVENT | {"state": "'pending'"}))


async def test_from_version_7_every_job_is_kept(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # proves R7, R46
    store = await open_store()
    await migrate_to(7, store, monkeypatch)
    raw = Raw(store)
    for row in (JOB, FROZEN, RUNNING | {"leased_until": "NOW"}, OVER, CANCELLED) * 2:
        await raw.run(insert(raw, "jobs", row))
    await raw.run(insert(raw, "job_items", REFUSED))
    before, items = await raw.all("jobs"), await raw.all("job_items")
    assert await store.migrate() == [name for name, _ in store.migrations()][8:]
    store = await open_store()
    assert await Raw(store).all("jobs") == [(*row, None, None, None) for row in before]
    assert await Raw(store).all("job_items") == items
    assert {job.resolving for job in await store.jobs.jobs()} == {None}


async def test_from_version_9_every_identity_is_kept(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # proves R7, R14
    store = await open_store()
    await migrate_to(9, store, monkeypatch)
    raw = Raw(store)
    old = {"identity": blob(raw, key_identity("stripe", b"old")), "source": "'stripe'"}
    for other in (old, {"kind": "'body'"}, {"kind": "'admitted'"}):
        await raw.run(insert(raw, "identities", in_dialect(raw, IDENTITY | other)))
    await raw.run(insert(raw, "events", in_dialect(raw, EVENT | {"state": "'pending'", "due_at": "NOW"})))
    await raw.run(insert(raw, "deliveries", in_dialect(raw, DELIVERY)))
    before = [await raw.all(table) for table in ("identities", "events", "deliveries")]
    assert len(before[0]) == 3
    assert (await store.migrate())[0] == "0010_lighter_intake"
    store = await open_store()
    found = [await Raw(store).all(table) for table in ("identities", "events", "deliveries")]
    assert all(row in found[0] for row in before[0])
    assert found[1:] == [[(*row, None) for row in table] for table in before[1:]]
    [[again]] = await store.record([delivered("old")])
    assert again.outcome is not DeliveryOutcome.ACCEPTED, "its key was taken before"
    assert len(await Raw(store).all("events")) == 1


async def test_from_version_10_a_body_is_known_whatever_its_type(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:  # proves R6, R13
    """Before, the identity of a body held the type that a header claimed."""
    store = await open_store()
    await migrate_to(10, store, monkeypatch)
    raw = Raw(store)
    for n, kind in enumerate(("push", "invoice.paid", "é/type")):
        content = item(f"old-{n}", b"body %d" % n, source="é-src", type=kind, unsigned=True).fingerprint
        row = {"identity": blob(raw, body_identity("é-src", content, kind)), "fingerprint": blob(raw, content)}
        row |= {"kind": "'body'", "source": "'é-src'"}
        await raw.run(insert(raw, "identities", in_dialect(raw, IDENTITY | row)))
    assert "0012_bodies" in await store.migrate()
    again = [delivered(f"new-{n}", b"body %d" % n, source="é-src", type="made up", unsigned=True) for n in range(3)]
    assert [one.outcome for one in await record(store, *again)] == [DeliveryOutcome.SAME_BODY] * 3
    assert await Raw(store).all("events") == []


async def test_the_intake_may_be_at_work(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:  # proves R6
    """In another order than the intake's, the migration and a commit would wait for each other."""
    store = connect(postgres_url, clock=Clock())
    await store.open()
    await migrate_to(9, store, monkeypatch)
    commit = await asyncpg.connect(postgres_url)
    async with commit.transaction():
        await commit.execute("LOCK TABLE hookledger.identities IN ROW EXCLUSIVE MODE")
        migrating = asyncio.create_task(store.migrate())
        while not await commit.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            assert not migrating.done()
            await asyncio.sleep(0.01)
        for table in ("requests", "events", "deliveries"):
            await commit.execute(f"LOCK TABLE hookledger.{table} IN ROW EXCLUSIVE MODE")
    await commit.close()
    assert await migrating == [name for name, _ in store.migrations()][9:]
    await store.close()


async def test_the_same_indexes(sqlite_url: str, postgres_url: str) -> None:
    """A table that was made anew has lost none."""
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
