"""Versions: a part of what is claimed, so that events of a version without a handler hold up no others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw

from hookledger.clock import Clock
from hookledger.ids import new_id, stage_id
from hookledger.model import Claimed, Kind, Pattern, Share
from hookledger.states import State
from hookledger.store.ops.filters import Filter
from hookledger.store.ops.job import NewJob
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import (
    KIND,
    LEASE,
    SOURCE,
    TYPE,
    Raw,
    arrival,
    crash,
    delivered,
    event,
    history,
    item,
    keys,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.contract.test_plans import nodes, pages, wait_in_line

OLD, NEW = Kind(SOURCE, TYPE, "2023-10-16"), Kind(SOURCE, TYPE, "2024-06-20")


async def of(store: Store, key: str, kind: Kind, **other: object) -> UUID:
    """A new event of this version."""
    return await recorded(
        store, key, body=key.encode(), source=kind.source, type=kind.type, version=kind.version, **other
    )


async def take(store: Store, kind: Kind, limit: int = 10) -> list[Claimed]:
    return await store.claim("w", [kind], limit, LEASE)


async def test_a_claim_names_the_version(store: Store) -> None:
    for key, kind in (("old", OLD), ("new", NEW), ("none", KIND)):
        await of(store, key, kind)
    assert {one.kind for one in await store.waiting()} == {OLD, NEW, KIND}
    [new] = await take(store, NEW)
    assert (new.key, new.version, new.kind) == ("new", NEW.version, NEW)
    assert keys(await take(store, KIND)) == ["none"]
    assert {one.kind for one in await store.waiting()} == {OLD}
    assert [row.version for row in await store.search.events(Filter(source=SOURCE))] == [
        "",
        "2024-06-20",
        "2023-10-16",
    ]


async def test_kinds_of_one_type_share_a_claim(store: Store) -> None:
    """Each within the limit of the share, the longest due first."""
    for number in range(3):
        await of(store, f"old{number}", OLD)
        await of(store, f"new{number}", NEW)
    claimed = await store.claim_shares("w", [Share((OLD, NEW), 4)], LEASE)
    assert sorted(keys(claimed)) == ["new0", "new1", "old0", "old1"]


async def test_items_of_one_request_may_have_different_versions(store: Store) -> None:
    await record(store, arrival(item("a", b"a", version="1"), item("b", b"b", version="2"), body=b"ab"))
    assert keys(await take(store, Kind(SOURCE, TYPE, "2"))) == ["b"]


async def test_the_first_delivery_decides_the_version(store: Store) -> None:
    """A repeated delivery with another version, which no signature may cover, changes nothing and adds nothing."""
    ident = await of(store, "a", OLD)
    [again] = await record(store, delivered("a", b"a", version="2099-01-01"))
    assert (again.event_id, again.outcome.value) == (ident, "duplicate")
    assert [one.kind for one in await store.waiting()] == [OLD]
    assert (await event(store, ident)).version == OLD.version


async def test_a_version_stays_through_retry_crash_and_replay(store: Store, clock: Clock) -> None:
    ident = await of(store, "a", OLD)
    [first] = await take(store, OLD)
    assert await settle(store, first, "reschedule", due_in=0.0)
    await crash(store, clock, OLD)
    owner = await crash(store, clock, OLD)
    assert owner.id == ident
    [waiting] = await store.waiting()
    assert (waiting.kind, waiting.alone) == (OLD, True)
    assert await store.claim_alone("w", [NEW, KIND], LEASE) == []
    [alone] = await store.claim_alone("w", [NEW, OLD], LEASE)
    assert await settle(store, alone, "complete")
    await store.replay(ident, State.PROCESSED, "ada", "again")
    [again] = await store.claim_alone("w", [OLD], LEASE)
    assert (again.id, again.version, again.run) == (ident, OLD.version, 2)


async def test_a_pause_of_a_type_holds_in_every_version(store: Store) -> None:
    await of(store, "a", OLD)
    await store.pauses.pause(SOURCE, TYPE, "ada", "why")
    assert (await store.waiting(), await take(store, OLD)) == ([], [])
    assert [one.pattern for one in await store.pauses.pauses()] == [TYPE]
    await store.pauses.resume(SOURCE, TYPE, "ada", "why")
    assert keys(await take(store, OLD)) == ["a"]


async def test_stages_have_the_version_of_their_event(store: Store) -> None:
    ident = await of(store, "a", OLD)
    [owner] = await take(store, OLD)
    assert await store.settle([way_out(owner, "complete", stages=("mail",))])
    mail = Kind(f"{SOURCE}/mail", TYPE, OLD.version)
    assert [one.kind for one in await store.waiting()] == [mail]
    [stage] = await take(store, mail)
    assert await settle(store, stage, "complete")
    seen = (await event(store, ident)).claim
    added = await store.stages.add(ident, seen, "crm", "ada", "new stage")
    assert added == stage_id(ident, "crm")
    assert [row.version for row in (await history(store, ident)).stages] == [OLD.version] * 2


async def test_ordered_events_keep_their_order_across_versions(store: Store) -> None:
    """An earlier event of a version without a handler keeps the later one waiting: it is not passed over."""
    await of(store, "first", OLD, entity="sub_1", ordered=True, order_at=1.0)
    await of(store, "second", NEW, entity="sub_1", ordered=True, order_at=2.0)
    await store.entities.place_all()
    assert await take(store, NEW) == []
    [blocking] = await store.entities.blocked_by([OLD])
    assert (blocking.kind, blocking.entities) == (OLD, 1)
    assert await store.entities.blocked_by([NEW, KIND]) == []
    [first] = await take(store, OLD)
    assert await settle(store, first, "complete")
    await store.entities.place_all()
    assert keys(await take(store, NEW)) == ["second"]


async def test_lag_is_by_version(store: Store) -> None:
    for key, kind in (("a", OLD), ("b", OLD), ("c", NEW)):
        await of(store, key, kind)
    assert {(one.kind, one.pending) for one in await store.search.lag()} == {(OLD, 2), (NEW, 1)}


async def test_only_the_version_named_is_skipped(store: Store, clock: Clock) -> None:
    for key, kind in (("a", OLD), ("b", NEW)):
        await of(store, key, kind)
    clock.offset += 10
    assert await store.skip_unhandled(OLD, 5.0, 10) == 1
    assert [one.kind for one in await store.waiting()] == [NEW]


async def test_receivers_meet_the_first_versions_concurrently(open_store: OpenStore, raw: Raw) -> None:
    """Each batch keeps workers of earlier releases away from its sources: in any order, and once for each source."""
    stores = [await open_store() for _ in range(3)]
    sources = ["a", "b", "c", "d"]

    async def receive(number: int, receiver: Store) -> int:
        order = sources if number % 2 else sources[::-1]
        given = [
            delivered(f"{number}:{name}", f"{number}{name}".encode(), source=name, version="1") for name in order
        ]
        return len(await record(receiver, *given))

    batches = [receive(number, stores[number % 3]) for number in range(12)]
    assert await asyncio.gather(*batches) == [len(sources)] * 12
    assert await raw.count("events") == 48
    assert sorted(await raw.run("SELECT source FROM pauses")) == [(name,) for name in sources]


async def test_a_job_says_only_what_its_filter_needs(store: Store, raw: Raw) -> None:
    """Workers of earlier releases run jobs, too, and know no version."""
    ident = await of(store, "a", OLD)
    for where, stored in (
        (Filter(source=SOURCE, states=(State.PENDING,)), '{"source":"stripe","states":["pending"]}'),
        (Filter(version="2023-*"), '{"version":"2023-*"}'),
    ):
        new = NewJob(id=new_id(), name="discard", where=where, actor="ada", reason="why", per_second=10.0)
        job = await store.jobs.plan(new, 1)
        assert (job.where, job.total) == (where, 1)
        assert await raw.run(f"SELECT filter FROM jobs WHERE id = {raw.ident(job.id)}") == [(stored,)]
    assert (await event(store, ident)).state is State.PENDING


async def test_what_workers_take_of_versions_is_known_to_others(store: Store, raw: Raw) -> None:
    """Apart from handlers of all versions: earlier releases read only those, and would not understand the others."""
    given = [Pattern(SOURCE, "invoice.*"), Pattern(SOURCE, TYPE, "2024-*")]
    await store.register("w", given)
    [worker] = await store.workers()
    assert worker.handles == tuple(given)
    [(handles, versions)] = await raw.run("SELECT handles, versions FROM workers")
    assert (handles, versions) == ('[["stripe","invoice.*"]]', '[["stripe","invoice.paid","2024-*"]]')


async def test_no_version_is_longer_than_the_schema_allows(store: Store) -> None:
    await of(store, "a", Kind(SOURCE, TYPE, "v" * 64))
    assert [len(one.kind.version) for one in await store.waiting()] == [64]


async def rows_of_a_look(store: Store) -> int:
    """How much a look at the queue reads: SQLite's steps, the rows of PostgreSQL's plan."""
    if isinstance(store, SqliteStore):
        return await store._do(lambda connection: _steps(connection, store.sql("waiting"), (store._now(),)))
    assert isinstance(store, PostgresStore)
    async with store._opened().bare() as connection:
        [plan] = await (await connection.prepare(store.sql("waiting"))).explain(analyze=True)
    return sum(int(node["Actual Rows"] * node["Actual Loops"]) for node in nodes(plan["Plan"]))


def _steps(connection: apsw.Connection, sql: str, args: Sequence[Any]) -> int:
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    connection.set_progress_handler(count, 10)
    try:
        connection.execute(sql, args).fetchall()
    finally:
        connection.set_progress_handler(None)
    return steps * 10


async def test_a_long_queue_of_another_version_is_not_walked(store: Store, raw: Raw) -> None:
    """Neither by a look nor by a claim, of a version or of events without one, of the same type and due later."""
    on_sqlite = isinstance(store, SqliteStore)
    new, without = Share((Kind("a", "t0", "2024"),), 8), Share((Kind("a", "t0"),), 8)
    await wait_in_line(raw, on_sqlite, "a", 1, 1000, version="2023")
    await wait_in_line(raw, on_sqlite, "a", 50_001, 50_008, version="2024")
    await wait_in_line(raw, on_sqlite, "a", 50_009, 50_016)
    await raw.run("ANALYZE")
    few = [*await pages(store, [new]), *await pages(store, [without]), await rows_of_a_look(store)]
    await wait_in_line(raw, on_sqlite, "a", 1001, 21_000, version="2023")
    many = [*await pages(store, [new]), *await pages(store, [without]), await rows_of_a_look(store)]
    assert all(after < before * 1.5 for before, after in zip(few, many, strict=True)), (few, many)
