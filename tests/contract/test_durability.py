"""Acked means on disk, whatever the server's defaults are."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from hookledger.clock import Clock
from hookledger.ids import new_id
from hookledger.model import StoredAnswer
from hookledger.states import EffectState
from hookledger.store.connect import connect
from hookledger.store.ops.rejections import RejectedRequest
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import LEASE, WORKER, Raw, claimed, delivered, way_out
from tests.ledger import CALL, finish, get, plan, reach, start, take

WATCH = [
    "CREATE TABLE seen (way text, value text)",
    """CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN INSERT INTO seen VALUES (NEW.key, current_setting('synchronous_commit')); RETURN NEW; END $$""",
    "CREATE TRIGGER see BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION see()",
]


# proves R6
async def test_postgres_commits_synchronously_though_the_database_says_off(postgres_url: str) -> None:
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
        assert await store.claim_new([delivered("short claim")], WORKER, LEASE) != [None]
        await store.record_claimed([delivered("long claim")], WORKER, LEASE)
        seen = sorted(await raw.run("SELECT * FROM seen"))
        assert seen == [(way, "on") for way in ("long", "long claim", "short", "short claim")]
    finally:
        await store.close()


WATCH_ANSWERS = [
    "CREATE TABLE seen (value text)",
    """CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN INSERT INTO "hookledger".seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$""",
    "CREATE CONSTRAINT TRIGGER see AFTER INSERT ON answers DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
    "EXECUTE FUNCTION see()",
]


@pytest.mark.parametrize("pooler", [False, True])
async def test_an_answer_that_is_sent_is_on_disk(postgres_url: str, pooler: bool) -> None:
    """PostgreSQL only: SQLite has one setting for all. After a crash the sender would get another answer."""
    store = connect(postgres_url, clock=Clock(), pooler=pooler)
    await store.open(handlers=1)
    await store.migrate()
    raw = Raw(store)
    try:
        for statement in WATCH_ANSWERS:
            await raw.run(statement)
        name = postgres_url.rpartition("/")[2]
        await raw.run(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        await store.close()
        await store.open(handlers=1)
        assert await raw.run("SHOW synchronous_commit") == [("off",)]

        alone, plain, inside = [await claimed(store, key) for key in ("alone", "plain", "inside")]
        answer = StoredAnswer(200, b"", b"it is done")
        await store.settle([way_out(alone, "complete", answer=answer), way_out(plain, "complete")])
        transaction = store.transaction()
        await transaction.tx.execute("SELECT 1")
        await transaction.commit([way_out(inside, "complete", answer=answer)])
        assert await raw.run("SELECT value FROM seen") == [("on",)] * 2
        assert await raw.run("SHOW synchronous_commit") == [("off",)]
    finally:
        await store.close()


WATCH_EFFECTS = [
    "CREATE TABLE seen (way text, value text)",
    """CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO "hookledger".seen
       VALUES (NEW.state, current_setting('synchronous_commit') || ' ' || current_setting('lock_timeout'));
       RETURN NEW; END $$""",
    "CREATE TRIGGER see BEFORE INSERT OR UPDATE ON effects FOR EACH ROW EXECUTE FUNCTION see()",
]


@pytest.mark.parametrize("pooler", [False, True])
async def test_every_step_of_a_call_is_on_disk(postgres_url: str, pooler: bool) -> None:
    """PostgreSQL only: SQLite has one setting for all. And nobody waits long for a handler's lock."""
    clock = Clock()
    store = connect(postgres_url, clock=clock, pooler=pooler)
    await store.open(handlers=1)
    await store.migrate()
    raw = Raw(store)
    try:
        owner = await claimed(store)
        await plan(store, owner, "later")
        for statement in WATCH_EFFECTS:
            await raw.run(statement)
        name = postgres_url.rpartition("/")[2]
        await raw.run(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        await store.close()
        await store.open(handlers=1)
        assert await raw.run("SHOW synchronous_commit") == [("off",)]

        first = await start(store, owner, "a")
        await finish(store, first.identity, 1, "done")
        known = await reach(store, clock, owner, EffectState.UNKNOWN, CALL, "b")
        await store.ledger.put_off(known, None, None)
        known = await get(store, known.identity)
        await store.ledger.restart(known, WORKER, LEASE)
        clock.offset += LEASE + 1
        [expired] = await store.ledger.expired(5)
        await store.ledger.mark_unknown(expired, None)
        await store.ledger.conclude(await get(store, known.identity), False, None, None)
        await store.ledger.resolve(await get(store, known.identity), "happened", None, "ada", "looked")
        [entry] = await take(store)
        await finish(store, entry.identity, 1, "refused", due_in=5.0)
        seen = await raw.run("SELECT * FROM seen")
        assert {value for _, value in seen} == {"on 5s", "on 500ms"}
        assert [way for way, value in seen if value == "on 500ms"] == ["started"] * 2, "for new ones, less long"
        assert {way for way, _ in seen} == {"started", "done", "unknown", "planned"}
        assert len(seen) == 11
    finally:
        await store.close()


WATCH_CASES = [
    "CREATE TABLE seen (what text, value text)",
    """CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO "hookledger".seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
       RETURN NEW; END $$""",
    "CREATE TRIGGER see BEFORE INSERT ON actions FOR EACH ROW EXECUTE FUNCTION see()",
    "CREATE TRIGGER see BEFORE INSERT ON rejections FOR EACH ROW EXECUTE FUNCTION see()",
]


@pytest.mark.parametrize("pooler", [False, True])
async def test_what_operators_do_is_on_disk_and_strangers_cause_no_sync(postgres_url: str, pooler: bool) -> None:
    """PostgreSQL only: SQLite has one setting for all."""
    store = connect(postgres_url, clock=Clock(), pooler=pooler)
    await store.open(handlers=1)
    await store.migrate()
    raw = Raw(store)
    try:
        owner = await claimed(store, body=b"one")
        odd = delivered(body=b"two")
        await store.record([odd])
        for statement in WATCH_CASES:
            await raw.run(statement)
        await store.quarantine.accept(odd.id, 0, odd.items[0], "ada", "why")
        await store.alerts.alert(owner.id, "words")
        await store.imported_keys.import_keys("stripe", [b"k" * 32], "ada", "why")
        refused = RejectedRequest(new_id(), "stripe", "stale", "POST", "/", b"", b"", b"", None)
        await store.rejections.add([refused], {("stripe", "stale"): 1}, most=1, most_bytes=1)
        assert (await store.key_audits.audit_keys("stripe", last=5)).events == 2
        assert await raw.run("SELECT * FROM seen") == [("actions", "on")] * 3 + [("rejections", "off")]
    finally:
        await store.close()


async def test_sqlite_syncs_every_commit_and_checkpoints_elsewhere(tmp_path: Path) -> None:
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
        await first.tx.execute("SET search_path = nowhere")
        await first.tx.execute("SELECT pg_advisory_lock(7)")
        await first.commit([])
        second = store.transaction()
        assert await second.tx.fetchval("SHOW search_path") != "nowhere"
        held = await second.tx.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7")
        await second.rollback()
        assert held == 0
    finally:
        await store.close()
