"""Copying the whole inbox: nothing is left out, and at no moment can both sides be written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hookledger.clock import Clock
from hookledger.errors import SchemaMismatch, StoreError, Unavailable, WrongState
from hookledger.ids import effect_identity
from hookledger.ledger import Started
from hookledger.operate import copy as operation
from hookledger.operate.copy import Side, abandon, copy, look
from hookledger.states import DeliveryOutcome, EffectState, State
from hookledger.store import SCHEMA_RANGE
from hookledger.store.connect import connect
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.copy import Copies, Copy, CopyState
from hookledger.store.ops.filters import EVERYTHING
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.postgres.tables import KINDS
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from hookledger.store.tables import LOCAL, Table
from hookledger.store.url import without_password
from tests.builders import KIND, SOURCE, WORKER, Raw, claim, claimed, delivered, record, recorded, settle
from tests.contract.conftest import OpenStore
from tests.guards import ask
from tests.inboxes import KEPT, PRUNED, arrived, fill
from tests.ledger import intent, start
from tests.services.postgres import Databases

BY = Audit("ada", "a bigger machine")
OpenTarget = Callable[[], Awaitable[Side]]


@pytest.fixture
def source(store: Store, database_url: str) -> Side:
    return Side(store, without_password(database_url))


@pytest.fixture
def kind(database_url: str) -> str:
    """Of the targets: the other kind, unless the test says so."""
    return "postgres" if database_url.startswith("sqlite") else "sqlite"


@pytest.fixture
async def open_target(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, clock: Clock
) -> AsyncIterator[OpenTarget]:
    """Opens one more empty database."""
    async with AsyncExitStack() as stack:

        async def opened() -> Side:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path}/target-{uuid4().hex}.db"
            else:
                databases: Databases = request.getfixturevalue("postgres")
                name = f"hookledger_target_{uuid4().hex}"
                url = databases.create_database(name)
                stack.callback(databases.drop_database, name)
            made = connect(url, clock=clock)
            await made.open(handlers=4)
            stack.push_async_callback(made.close)
            return Side(made, without_password(url))

        yield opened


@pytest.fixture
async def target(open_target: OpenTarget) -> Side:
    return await open_target()


async def everything(store: Store) -> dict[str, list[Any]]:
    """Every row of every table, by column names, as it travels."""
    found = {}
    for table in await store.copies.tables():
        rows = await store.copies.read(table, None, 10_000, 10**9)
        found[table.name] = sorted(repr(sorted(zip(table.columns, row, strict=True))) for row in rows)
    return found


async def state(side: Side) -> CopyState | None:
    known = await side.store.copies.state()
    return None if known is None else known.state


async def is_writable(side: Side) -> bool:
    """Whether both the health check and an arrival say so."""
    health = await side.store.health()
    try:
        await record(side.store, delivered(f"probe_{uuid4().hex}"))
    except (Unavailable, SchemaMismatch):
        assert not health.writable
        return False
    assert health.writable
    return True


# ── nothing is left out ──────────────────────────────────────────────────────


async def test_every_table_and_column_is_copied_or_about_the_database_itself(store: Store, raw: Raw) -> None:
    if isinstance(store, SqliteStore):
        names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
        columns = "SELECT name FROM pragma_table_info('{}')"
    else:
        names = "SELECT relname::text FROM pg_class WHERE relnamespace = 'hookledger'::regnamespace AND relkind = 'r'"
        columns = (
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 'hookledger.{}'::regclass AND attnum > 0 "
            "AND NOT attisdropped"
        )
    tables = await store.copies.tables()
    assert {table.name for table in tables} | {*LOCAL} == {name for (name,) in await raw.run(names)}
    for table in tables:
        assert table.key, table.name
        assert {*table.columns} == {name for (name,) in await raw.run(columns.format(table.name))}
        if isinstance(store, PostgresStore):
            assert {*table.columns.values()} <= KINDS, f"say in store/postgres/tables.py how {table.name} travels"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_an_inbox_arrives_whole(source: Side, target: Side, clock: Clock) -> None:
    await fill(source.store, clock)
    assert all((await source.store.copies.totals()).values()), "a table without rows proves nothing"
    before = await source.store.consistency.report()
    told: list[int] = []
    done = await copy(source, target, BY, told.append)
    ours, theirs = await everything(source.store), await everything(target.store)
    assert len(theirs["actions"]) == len(ours["actions"]) + 1, "the target's own entry in the audit log"
    assert {*theirs.pop("actions")} > {*ours.pop("actions")}
    assert theirs == ours
    assert await target.store.consistency.report() == before
    assert (await state(source), await state(target)) == (CopyState.MOVED, CopyState.COMPLETE)
    assert done.rows == await target.store.copies.totals()
    assert told[-1] == sum(done.rows.values()) - 1
    # What came before is known there, and nothing is done twice.
    again = await record(target.store, arrived(KEPT.format(3)), arrived(PRUNED.format(1)))
    assert {one.outcome for one in again} == {DeliveryOutcome.DUPLICATE}
    owner = await claimed(target.store, "new", type="t.new")
    done_before = intent(owner, PRUNED.format(1), "charge")
    [known] = await target.store.ledger.start([done_before], WORKER)
    assert known is not None
    assert not isinstance(known, Started)
    assert known.state is EffectState.DONE
    assert effect_identity(SOURCE, "charge", PRUNED.format(1)) == done_before.identity
    late = await ask(target.store, owner, 1720, PRUNED.format(1))
    assert (late.applied, late.other_version, late.other_key) == (False, "1731", PRUNED.format(1))


async def test_a_table_takes_several_batches_and_large_rows_go_alone(
    source: Side, target: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "ROWS", 3)
    monkeypatch.setattr(operation, "SIZE", 2000)
    bodies = {f"evt_{n}": bytes([n]) * (5000 if n % 4 == 0 else 300) for n in range(23)}
    await record(source.store, *(delivered(key, body) for key, body in bodies.items()))
    sizes: list[int] = []

    async def read(self: Any, table: Table, *args: Any) -> Any:
        rows = await inner(self, table, *args)
        if table.name == "requests":
            sizes.append(
                sum(len(value) for row in rows for value in row if isinstance(value, bytes) and len(value) > 99)
            )
            assert len(rows) <= 3
            assert sizes[-1] <= 2000 or len(rows) == 1
        return rows

    inner = Copies.read
    monkeypatch.setattr(Copies, "read", read)
    await copy(source, target, BY)
    assert sum(sizes) == sum(map(len, bodies.values()))
    found = {
        row.body
        for row in [await target.store.quarantine.request(e.request_id) for e in await all_events(target)]
        if row
    }
    assert found == {*bodies.values()}


async def all_events(side: Side) -> list[Any]:
    return await side.store.search.events(EVERYTHING, limit=1000)


async def test_a_copy_moves_to_a_third_database(source: Side, open_target: OpenTarget, clock: Clock) -> None:
    await fill(source.store, clock)
    first, second = await open_target(), await open_target()
    await copy(source, first, BY)
    await copy(first, second, BY)
    assert [await is_writable(side) for side in (source, first, second)] == [False, False, True]
    actions = await Raw(second.store).run("SELECT to_state FROM actions WHERE name = 'copy' ORDER BY id")
    assert [state for (state,) in actions] == ["moving", "complete", "moving", "complete"]


# ── the source can be written no more ────────────────────────────────────────


async def moving(source: Side) -> Copy:
    return await source.store.copies.move("elsewhere", BY)


async def test_every_operation_fails_in_every_process(source: Side, open_store: OpenStore, clock: Clock) -> None:
    await fill(source.store, clock)
    other, store = await open_store(), source.store
    owner = await claim(other, KIND)
    assert await settle(other, owner, "complete")  # its statements are prepared
    event = await recorded(other, "before")
    await moving(source)
    before = await everything(store)
    writes: list[Callable[[Store], Awaitable[Any]]] = [
        lambda store: record(store, delivered("after")),
        lambda store: record(store, arrived(KEPT.format(3))),
        lambda store: store.claim(WORKER, [KIND], 10, 60.0),
        lambda store: store.discard(event, State.PENDING, "ada", "why"),
        lambda store: store.pauses.pause(SOURCE, "other", "ada", "why"),
        lambda store: store.circuits.reset("bank", "ada", "why"),
        lambda store: store.register("worker-9", [(SOURCE, "*")]),
        lambda store: store.ledger.claim(WORKER, [("mail", 5, 60.0)]),
        lambda store: store.imported_keys.import_keys(SOURCE, [b"\7" * 32], "ada", "why"),
        lambda store: store.know_sources(["another"]),
    ]
    for each in (store, other, await open_store()):
        for number, write in enumerate(writes):
            with pytest.raises(Unavailable, match="this inbox is being moved to another database: elsewhere"):
                await write(each)
                pytest.fail(f"write {number} did not fail")
        with pytest.raises(Unavailable, match="is being moved"):
            transaction = each.transaction()
            try:
                await transaction.once(intent(owner, "k", "once"))
            except Exception as error:
                await transaction.rollback()
                raise error if isinstance(error, Unavailable) else Unavailable(str(error)) from error
        health = await each.health()
        assert not health.writable
        assert health.problem == (await store.copies.state()).message  # type: ignore[union-attr]
    assert await everything(store) == before


async def test_no_statement_can_change_any_table(source: Side, raw: Raw, clock: Clock) -> None:
    await fill(source.store, clock)
    await moving(source)
    postgres = isinstance(source.store, PostgresStore)
    tables = {table.name: table for table in await source.store.copies.tables()}
    for name in (*tables, "probe", "migrations"):
        column = tables[name].key[0] if name in tables else "one" if name == "probe" else "version"
        verbs = [
            f"DELETE FROM {name}",
            f"UPDATE {name} SET {column} = {column}",
            f"INSERT INTO {name} SELECT * FROM {name}",
        ]
        for verb in [*verbs, *([f"TRUNCATE {name}"] if postgres else [])]:
            with pytest.raises(Unavailable, match="is being moved"):
                await raw.run(verb)
                pytest.fail(f"{verb} was done")


async def test_the_writer_process_is_told_too(database_url: str, clock: Clock) -> None:
    store = connect(database_url, clock=clock)
    await store.open(writer_process=True)
    try:
        await store.migrate()
        await record(store, delivered("before"))
        await store.copies.move("elsewhere", BY)
        with pytest.raises(Unavailable, match="is being moved"):
            await record(store, delivered("after"))
        assert not (await store.health()).writable
    finally:
        await store.close()


async def test_arrivals_while_it_begins_are_recorded_or_refused(
    source: Side, target: Side, open_store: OpenStore
) -> None:
    """Each arrival that was acked is in the copy, and every sender gets an answer."""
    other, acked, refused = await open_store(), [], 0
    begun = asyncio.Event()

    async def send(n: int) -> None:
        nonlocal refused
        for m in range(1000):
            key = f"evt_{n}_{m}"
            try:
                await record(other, delivered(key))
            except Unavailable:
                refused += 1
                return
            acked.append(key)
            begun.set()

    senders = [asyncio.create_task(send(n)) for n in range(3)]
    await begun.wait()
    await copy(source, target, BY)
    await asyncio.gather(*senders)
    assert refused == 3
    assert {event.key for event in await all_events(target)} >= {*acked[-1000:]}
    assert (await target.store.consistency.report()).kept == len(acked)


# ── when it does not begin ───────────────────────────────────────────────────


async def test_it_does_not_begin_while_an_event_is_processing(source: Side, target: Side) -> None:
    owner = await claimed(source.store)
    await start(source.store, owner)
    with pytest.raises(WrongState, match="1 events are processing and 1 effects are started: stop all workers"):
        await copy(source, target, BY)
    assert (await state(source), await is_writable(source)) == (None, True)
    assert not (await target.store.health()).schema


async def test_a_target_with_rows_is_refused(source: Side, target: Side) -> None:
    await target.store.migrate()
    await recorded(target.store)
    with pytest.raises(WrongState, match="not empty: its table requests"):
        await look(source, target)
    with pytest.raises(WrongState, match="not empty"):
        await copy(source, target, BY)
    assert (await state(source), await state(target)) == (None, None)
    assert await is_writable(target)


async def test_a_target_used_during_the_copy_is_refused(source: Side, target: Side) -> None:
    await target.store.migrate()
    begun = await source.store.copies.move(target.name, BY)
    await recorded(target.store)
    with pytest.raises(WrongState, match="not empty"):
        await target.store.copies.receive(begun, source.name)
    assert await is_writable(target)


async def test_source_and_target_differ(source: Side, open_store: OpenStore) -> None:
    with pytest.raises(WrongState, match="the same database"):
        await copy(source, Side(await open_store(), source.name), BY)
    # Under another name it is found out, too; then it can be abandoned.
    other = Side(await open_store(), "another name")
    with pytest.raises(WrongState, match="being moved"):
        await copy(source, other, BY)
    await abandon(source, other, BY)
    assert await is_writable(source)


async def test_a_target_of_another_version_is_refused(source: Side, target: Side) -> None:
    await target.store.migrate()
    newest = SCHEMA_RANGE[1]
    await Raw(target.store).run(f"UPDATE migrations SET version = {newest + 1} WHERE version = {newest}")
    assert (await target.store.health()).writable, "this release works with it, and does not know all its tables"
    with pytest.raises(SchemaMismatch, match="newer release"):
        await copy(source, target, BY)
    assert await state(source) is None


async def test_a_difference_stops_it_before_the_source_is_moved(
    source: Side, target: Side, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(source.store, clock)
    write = Copies.write

    async def losing(self: Any, copy: Copy, table: Table, rows: Any, position: Any) -> Copy:
        return await write(self, copy, table, rows[1:] if table.name == "effects" else rows, position)

    monkeypatch.setattr(Copies, "write", losing)
    with pytest.raises(StoreError, match=r"differ \(effects: 28 and 27\)"):
        await copy(source, target, BY)
    assert (await state(source), await state(target)) == (CopyState.MOVING, CopyState.INCOMPLETE)
    await abandon(source, target, BY)
    assert [await is_writable(side) for side in (source, target)] == [True, False]


# ── only this copy, and only this target ─────────────────────────────────────


async def interrupted(source: Side, target: Side, monkeypatch: pytest.MonkeyPatch, at: str = "events") -> None:
    """Ends when it comes to this table."""
    write = Copies.write

    async def stops(self: Any, copy: Copy, table: Table, *rest: Any) -> Copy:
        if table.name == at:
            raise KeyboardInterrupt
        return await write(self, copy, table, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Copies, "write", stops)
        with pytest.raises(KeyboardInterrupt):
            await copy(source, target, BY)


async def test_an_interrupted_copy_is_resumed(
    source: Side, target: Side, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(source.store, clock)
    await interrupted(source, target, monkeypatch)
    there = await target.store.copies.totals()
    assert there["identities"]
    assert not there["events"]
    assert [await is_writable(side) for side in (source, target)] == [False, False]
    told: list[int] = []
    await copy(source, target, BY, told.append)
    assert told[0] > sum(there.values()), "it begins with what is there"
    assert [await is_writable(side) for side in (source, target)] == [False, True]
    again = await copy(source, target, BY)
    assert again.state is CopyState.COMPLETE, "harmless once it is complete"


async def test_an_incomplete_target_is_no_source_and_no_other_target(
    source: Side, target: Side, open_target: OpenTarget, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(source.store, clock)
    await interrupted(source, target, monkeypatch)
    another = await open_target()
    with pytest.raises(WrongState, match="incomplete copy"):
        await copy(target, another, BY)
    await another.store.migrate()
    with pytest.raises(WrongState, match="the target cannot be used: this inbox is an incomplete copy"):
        await copy(another, target, BY)
    with pytest.raises(WrongState, match="is being moved"):
        await copy(source, another, BY)
    assert await state(another) is None


async def test_only_the_first_target_becomes_complete(source: Side, open_target: OpenTarget) -> None:
    """Though both were reached under one name."""
    await recorded(source.store)
    first, second = [(await open_target())._replace(name="target") for _ in range(2)]
    await copy(source, first, BY)
    with pytest.raises(WrongState, match="was moved"):
        await copy(source, second, BY)
    assert [await is_writable(side) for side in (source, first, second)] == [False, True, False]


async def test_an_abandoned_copy_opens_the_source_and_never_the_target(
    source: Side, target: Side, open_target: OpenTarget, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(source.store, clock)
    await interrupted(source, target, monkeypatch)
    await abandon(source, target, BY)
    assert (await state(source), await state(target)) == (None, CopyState.ABANDONED)
    assert [await is_writable(side) for side in (source, target)] == [True, False]
    with pytest.raises(WrongState, match="abandoned copy"):
        await copy(source, target, BY)
    with pytest.raises(WrongState, match="not being copied"):
        await abandon(source, target, BY)
    another = await open_target()
    await copy(source, another, BY)
    assert [await is_writable(side) for side in (source, target, another)] == [False, False, True]
    with pytest.raises(WrongState, match="was moved"):
        await abandon(source, another, BY)


@pytest.mark.parametrize("step", ["receive", "write", "moved"])
async def test_a_process_that_wakes_up_after_it_was_abandoned_completes_nothing(
    source: Side, target: Side, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Though the target knew nothing of the copy when it was abandoned."""
    await recorded(source.store)
    async with asleep_before(step, copy(source, target, BY), monkeypatch) as sleeper:
        await abandon(source, target, BY)
        assert await is_writable(source)
    with pytest.raises(WrongState):
        await sleeper
    assert [await is_writable(side) for side in (source, target)] == [True, False]


async def test_it_cannot_be_abandoned_once_the_source_is_moved(
    source: Side, target: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(source.store)
    async with asleep_before("complete", copy(source, target, BY), monkeypatch) as sleeper:
        with pytest.raises(WrongState, match="was moved"):
            await abandon(source, target, BY)
        assert [await is_writable(side) for side in (source, target)] == [False, False]
    await sleeper
    assert [await is_writable(side) for side in (source, target)] == [False, True]


@asynccontextmanager
async def asleep_before(
    step: str, work: Coroutine[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Task[Any]]:
    """The work, stopped before this operation until the end of the block."""
    inner = getattr(Copies, step)
    stopped, goes_on = asyncio.Event(), asyncio.Event()

    async def late(self: Copies, *args: Any) -> Any:
        stopped.set()
        await goes_on.wait()
        return await inner(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Copies, step, late)
        task = asyncio.create_task(work)
        await stopped.wait()
    yield task
    goes_on.set()
