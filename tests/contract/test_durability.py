"""Acked means on disk, whatever the server's defaults are."""

from __future__ import annotations

from pathlib import Path

import apsw

from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import Raw, delivered

WATCH = [
    "CREATE TABLE seen (way text, value text)",
    """CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN INSERT INTO seen VALUES (NEW.key, current_setting('synchronous_commit')); RETURN NEW; END $$""",
    "CREATE TRIGGER see BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION see()",
]


async def test_postgres_commits_synchronously_though_the_database_says_off(postgres_url: str) -> None:  # proves R6
    store = connect(postgres_url, clock=Clock())
    assert isinstance(store, PostgresStore)
    await store.open()
    await store.migrate()
    name = postgres_url.rpartition("/")[2]
    await Raw(store).run(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    await store.close()

    await store.open()
    raw = Raw(store)
    try:
        assert await raw.run("SHOW synchronous_commit") == [("off",)]
        for statement in WATCH:
            await raw.run(statement.replace("INSERT INTO seen", 'INSERT INTO "hookledger".seen'))
        assert await store.record_new([delivered("short")]) != [None]
        await store.record([delivered("long")])
        assert sorted(await raw.run("SELECT * FROM seen")) == [("long", "on"), ("short", "on")]
    finally:
        await store.close()


async def test_sqlite_syncs_every_commit_and_checkpoints_elsewhere(tmp_path: Path) -> None:  # proves R6
    store = SqliteStore(tmp_path / "inbox.db")
    await store.open()
    await store.migrate()
    try:

        def pragmas(connection: apsw.Connection) -> list[object]:
            names = ("synchronous", "journal_mode", "wal_autocheckpoint")
            return [connection.execute(f"PRAGMA {name}").fetchall()[0][0] for name in names]

        assert await store._do(pragmas) == [2, "wal", 0]
    finally:
        await store.close()


async def test_what_a_handler_does_to_its_session_ends_with_it(postgres_url: str) -> None:
    """PostgreSQL only: SQLite has no session to leave anything in."""
    store = connect(postgres_url, clock=Clock())
    await store.open(handlers=1)
    await store.migrate()
    try:
        first = store.transaction()
        await first.execute("SET search_path = nowhere")
        await first.execute("SELECT pg_advisory_lock(7)")
        await first.commit([])
        second = store.transaction()
        assert await second.fetchval("SHOW search_path") != "nowhere"
        held = await second.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7")
        await second.rollback()
        assert held == 0
    finally:
        await store.close()
