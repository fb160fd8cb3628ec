"""The drivers: one text for both databases, and the same values from both."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, Unavailable, WrongState
from hookledger.ids import new_id
from hookledger.states import CircuitState, DeliveryOutcome
from hookledger.store.ops.circuits import Circuits
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.session import Session
from hookledger.store.text import Name, parse, shared
from tests.builders import Raw, delivered
from tests.contract.conftest import OpenStore

DIALECTS: tuple[Name, ...] = ("postgres", "sqlite")
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
IDS = [UUID(int=1), UUID(int=2**128 - 1)]


class Ask:
    """Runs queries that a test makes up."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database = store.circuits._database
        self._monkeypatch = monkeypatch

    def define(self, text: str) -> None:
        for dialect in DIALECTS:
            for name, sql in parse(text, dialect).items():
                self._monkeypatch.setitem(shared(dialect), name, sql)

    async def __call__(self, text: str, /, **parameters: Any) -> list[Any]:
        name = f"made_up_{new_id().hex}"
        self.define(f"-- name: {name}\n{text}")
        return list(await self.database.write(lambda db: db(name, **parameters)))


@pytest.fixture
def ask(store: Store, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return Ask(store, monkeypatch)


async def test_values_come_back_as_they_went_in(ask: Ask) -> None:
    [row] = await ask(
        "SELECT :id::uuid AS event_id, :at::timestamptz AS at, :raw::bytea AS raw, :state::text AS state,"
        " :none::text AS gone_at, :text::text AS object_id",
        id=IDS[0],
        at=WHEN,
        raw=b"\0\xff",
        state=CircuitState.OPEN,
        none=None,
        text="obj_1",
    )
    assert (row["event_id"], row["at"], row["raw"]) == (IDS[0], WHEN, b"\0\xff")
    assert (row["state"], row["gone_at"], row["object_id"]) == ("open", None, "obj_1")


async def test_time_is_reckoned_by_the_database(ask: Ask, clock: Clock) -> None:
    clock.offset = 3600.0
    [row] = await ask(
        "SELECT {now} + {seconds :lease::float8} AS leased_until, {elapsed :at::timestamptz - {now}} AS left_over",
        lease=1.5,
        at=WHEN,
    )
    ahead = row["leased_until"] - datetime.now(UTC)
    assert timedelta(minutes=59) < ahead < timedelta(minutes=61)
    assert row["left_over"] < 0


LISTS: list[tuple[str, list[Any]]] = [
    ("uuid", IDS),
    ("bytea", [b"\0", b"\xff" * 32]),
    ("text", ["a", "b'\"é"]),
    ("bigint", [1, 2**40]),
]


@pytest.mark.parametrize(("kind", "values"), LISTS)
async def test_lists(ask: Ask, kind: str, values: list[Any]) -> None:
    text = f"SELECT (SELECT 1 WHERE :one::{kind} IN {{list :some {kind}}}) AS n"
    for one in values:
        [row] = await ask(text, one=one, some=values)
        assert row["n"] == 1
    [row] = await ask(text, one=values[0], some=[])
    assert row["n"] is None


async def test_rows(ask: Ask) -> None:
    given = [(IDS[1], 7, "x", b"\1"), (IDS[0], None, None, b"")]
    found = await ask(
        "SELECT g.id, g.claim, g.name, g.raw FROM {rows :given id uuid, claim bigint, name text, raw bytea} AS g"
        " ORDER BY g.id",
        given=given,
    )
    assert [(row["id"], row["claim"], row["name"], row["raw"]) for row in found] == sorted(given)


async def test_many(ask: Ask) -> None:
    """One set of parameters after the other: each may be the first that fails."""
    ask.define("-- name: known\nSELECT * FROM {schema}.pauses ORDER BY source")
    ask.define(
        """-- name: keep
INSERT INTO {schema}.pauses (source, pattern, since, actor, reason) VALUES (:source, :pattern, {now}, 'ada', 'why')"""
    )
    given = [{"source": source, "pattern": "*"} for source in "abc"]
    await ask.database.write(lambda db: db.many("keep", given))
    found = await ask.database.read(lambda db: db("known"))
    assert [row["source"] for row in found] == ["a", "b", "c"]
    assert all(abs(datetime.now(UTC) - row["since"]) < timedelta(minutes=1) for row in found)
    more = [{"source": source, "pattern": "*"} for source in "dab"]
    with pytest.raises(BadData):
        await ask.database.write(lambda db: db.many("keep", more))
    assert len(await ask.database.read(lambda db: db("known"))) == 3


async def test_arrivals_are_recorded_with_the_operation(store: Store, ask: Ask, raw: Raw) -> None:
    async def work(db: Session, fails: bool) -> None:
        [[new]] = await db.record([delivered("evt_1")])
        assert new.outcome is DeliveryOutcome.ACCEPTED
        await db("trip_circuit", downstream="bank", reason="x")
        if fails:
            raise WrongState("made up")

    with pytest.raises(WrongState, match="made up"):
        await ask.database.write(lambda db: work(db, True))
    assert (await raw.count("events"), await store.circuits.all()) == (0, [])
    await ask.database.write(lambda db: work(db, False))
    assert (await raw.count("events"), len(await store.circuits.all())) == (1, 1)


async def test_an_operation_that_fails_leaves_nothing(store: Store, ask: Ask) -> None:
    async def work(db: Session) -> None:
        await db("trip_circuit", downstream="bank", reason="x")
        raise WrongState("made up")

    with pytest.raises(WrongState, match="made up"):
        await ask.database.write(work)
    assert await store.circuits.all() == []


async def test_the_write_lock_is_not_held_across_the_event_loop(store: Store, ask: Ask) -> None:
    async def work(db: Session) -> None:
        await db("trip_circuit", downstream="bank", reason="x")
        await asyncio.sleep(0)

    if type(store).__name__ == "PostgresStore":
        await ask.database.write(work)
        return
    with pytest.raises(RuntimeError, match="awaited something else than its queries"):
        await ask.database.write(work)
    assert await store.circuits.all() == []


async def test_a_scan_sees_one_instant_and_ends_in_time(store: Store, ask: Ask) -> None:
    async def work(db: Session) -> list[int]:
        return [len(await db("list_circuits")) for _ in range(2)]

    await store.circuits.trip("bank", "ada", "x")
    assert await ask.database.scan(work, 10.0) == [1, 1]
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    ask.define(f"-- name: endless\n{numbers} SELECT count(*) FROM n")
    with pytest.raises(Unavailable, match=r"longer than 0\.2 s"):
        await ask.database.scan(lambda db: db("endless"), 0.2)


async def test_an_unreadable_value_locks_no_other_session_out(store: Store, open_store: OpenStore, raw: Raw) -> None:
    """On SQLite a statement that is left open keeps this process from writing as soon as another one has written."""
    if type(store).__name__ == "PostgresStore":
        return
    await store.pauses.pause("a", "*", "ada", "x")
    await store.pauses.pause("b", "*", "ada", "x")
    await raw.run("UPDATE pauses SET since = 1000000000000000000 WHERE source = 'a'")
    with pytest.raises(BadData) as kept:  # its traceback keeps whatever is open
        await store.pauses.pauses()
    other = await open_store()
    await other.circuits.trip("bank", "ada", "x")
    await store.circuits.trip("mail", "ada", "x")
    assert kept.value is not None


async def test_a_users_query_behind_a_pooler(database_url: str, store: Store) -> None:
    if type(store).__name__ != "PostgresStore":
        return
    pooled = PostgresStore(database_url, pooler=True)
    await pooled.open()
    try:
        assert [rows async for rows in pooled.imported_keys.query_keys("SELECT 1")] == [[(1,)]]
    finally:
        await pooled.close()


def test_a_dialect_replaces_a_query() -> None:
    text = "-- name: one\n-- Both.\nSELECT 1\n\n-- name: one (sqlite)\n-- Differs because it must.\nSELECT 2\n"
    assert (parse(text, "postgres"), parse(text, "sqlite")) == ({"one": "SELECT 1"}, {"one": "SELECT 2"})
    with pytest.raises(ValueError, match="twice"):
        parse("-- name: one\nSELECT 1\n-- name: one\nSELECT 2\n", "sqlite")


def test_a_part_stands_in_later_queries() -> None:
    text = "-- name: parts\na, b\n\n-- name: whole\nSELECT {parts} FROM {schema}.t\n"
    assert parse(text, "sqlite")["whole"] == "SELECT a, b FROM {schema}.t"


def test_both_databases_know_the_same_queries() -> None:
    assert shared("postgres").keys() == shared("sqlite").keys()


def test_operations_are_methods_without_the_session() -> None:
    assert Circuits.trip.__doc__ == "Open it until an operator resets it, audited."
