"""Stages: rows that begin with the processing of their event, and live, are pruned and erased as part of it."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import apsw
import asyncpg
import pytest

from hookledger.clock import Clock, Seconds
from hookledger.errors import ClaimLost, WrongState
from hookledger.ids import new_id, stage_id
from hookledger.model import Claimed, Kind, stage_source
from hookledger.operate.retention.prune import Pruner
from hookledger.operate.retention.settings import Limits, RetentionSettings
from hookledger.states import CallOutcome, State
from hookledger.store.connect import connect
from hookledger.store.history import EventRow
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.filters import Filter
from hookledger.store.ops.job import NewJob
from hookledger.store.ops.stages import add_stages
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.session import Session
from tests.builders import (
    KIND,
    LEASE,
    SOURCE,
    TYPE,
    WORKER,
    Raw,
    claim,
    claimed,
    crash,
    delivered,
    event,
    history,
    item,
    record,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.ledger import finish, start

STAGES = ("finance", "provision")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def of(stage: str) -> Kind:
    return Kind(stage_source(SOURCE, stage), TYPE)


async def staged(store: Store, key: str = "evt_1", stages: tuple[str, ...] = STAGES, **other: Any) -> UUID:
    """A processed event with these stages."""
    owner = await claimed(store, key, **other)
    assert await settle(store, owner, "complete", stages=stages)
    return owner.id


async def stages_of(store: Store, event_id: UUID) -> dict[str | None, State]:
    return {row.stage: row.state for row in (await history(store, event_id)).stages}


async def check(store: Store) -> None:
    assert (await store.consistency.report()).imbalances == ()


# ── they begin ──


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_stages_begin_with_the_outcome_of_their_event(store: Store, in_transaction: bool) -> None:
    owner = await claimed(store, object_id="in_1", account="acct_1", provider_id="evt_1", occurred_at=1e9)
    if in_transaction:
        transaction = store.transaction()
        await transaction.tx.execute("SELECT 1")
        assert await stages_of(store, owner.id) == {} if isinstance(store, PostgresStore) else True
        await transaction.commit([way_out(owner, "complete", stages=STAGES)])
    else:
        assert await settle(store, owner, "complete", stages=STAGES)
    assert await stages_of(store, owner.id) == dict.fromkeys(STAGES, State.PENDING)
    parent, row = await event(store, owner.id), await event(store, stage_id(owner.id, "finance"))
    shared = ("type", "key", "key_origin", "provider_id", "object_id", "occurred_at", "account", "request_id", "item")
    assert {name: getattr(row, name) for name in shared} == {name: getattr(parent, name) for name in shared}
    assert (row.received_at, row.parent, row.stage, row.source) == (
        parent.received_at,
        parent.id,
        "finance",
        "stripe/finance",
    )
    assert (row.run, row.claim, row.attempts, row.attention, row.result) == (1, 0, 0, False, None)
    taken = await claim(store, of("finance"))
    assert (taken.body, taken.stage, taken.id) == (b"{}", "finance", row.id)
    assert await store.claim(WORKER, [KIND], 5, LEASE) == []
    await check(store)


@pytest.mark.parametrize("way", ["skip", "reschedule", "wait", "fail", "review", "release"])
async def test_nothing_begins_with_another_outcome(store: Store, way: Any) -> None:
    owner = await claimed(store)
    assert await settle(store, owner, way, stages=STAGES)
    assert await stages_of(store, owner.id) == {}


async def test_nothing_begins_after_a_lost_claim(store: Store, clock: Clock) -> None:
    await record(store, delivered())
    late = await crash(store, clock)
    assert not await settle(store, late, "complete", stages=STAGES)
    transaction = store.transaction()
    await transaction.tx.execute("SELECT 1")
    with pytest.raises(ClaimLost):
        await transaction.commit([way_out(late, "complete", stages=STAGES)])
    assert await stages_of(store, late.id) == {}
    assert await settle(store, await claim(store), "complete", stages=STAGES)
    assert len(await stages_of(store, late.id)) == 2
    await check(store)


async def test_the_first_processing_fixes_the_stages(store: Store) -> None:
    """A replay of the event neither repeats its stages nor adds those that came since."""
    ident = await staged(store, stages=("finance",))
    finance = await claim(store, of("finance"))
    await settle(store, finance, "fail")
    row = await event(store, ident)
    await store.replay(ident, row.state, "ada", "again", seen=row.claim)
    assert await settle(store, await claim(store), "complete", stages=STAGES)
    assert await stages_of(store, ident) == {"finance": State.FAILED}
    await check(store)


async def test_stages_of_a_batch(store: Store) -> None:
    await record(store, *(delivered(f"evt_{n}") for n in range(5)))
    owners = await store.claim(WORKER, [KIND], 5, LEASE)
    transaction = store.transaction()
    await transaction.tx.execute("SELECT 1")
    await transaction.commit([way_out(owner, "complete", stages=STAGES) for owner in owners])
    assert len(await store.claim(WORKER, [of(stage) for stage in STAGES], 50, LEASE)) == 10
    await check(store)


async def test_an_event_without_stages_costs_what_it_cost(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is written by the same statements as ever, and by no more."""
    said: list[str] = []

    def traced(_cursor: Any, sql: str, _bindings: Any) -> bool:
        said.append(sql)
        return True

    def noting(ask: Any) -> Any:
        async def asked(self: Any, sql: str, *args: Any, **more: Any) -> Any:
            said.append(sql)
            return await ask(self, sql, *args, **more)

        return asked

    def hook(connection: apsw.Connection) -> None:
        connection.set_exec_trace(traced)

    apsw.connection_hooks.append(hook)
    try:
        for name in ("execute", "fetch"):
            monkeypatch.setattr(asyncpg.Connection, name, noting(getattr(asyncpg.Connection, name)))
        store = await open_store()
        outcomes: list[int] = []
        for stages in ((), STAGES):
            owner = await claimed(store, f"evt_{len(stages)}")
            said.clear()
            assert await settle(store, owner, "complete", stages=stages)
            outcomes.append(len(said))
            assert any(re.search(r"\bparent\b", sql) for sql in said) is bool(stages)
    finally:
        apsw.connection_hooks.remove(hook)
    assert outcomes[0] == (1 if isinstance(store, PostgresStore) else 4)
    assert outcomes[1] > outcomes[0]


# ── operators find them ──


async def test_references_to_stages(store: Store) -> None:
    await store.know_sources([SOURCE])
    ident = await staged(store)
    finance = stage_id(ident, "finance")
    for reference in ("evt_1/finance", f"{ident}/finance", str(finance), f"{str(ident)[:23]}/finance"):
        assert await store.find(reference) == [finance], reference
    for reference in ("evt_1", str(ident), str(ident)[:13]):  # the ids of stages begin like that of their event
        assert await store.find(reference) == [ident], reference
    for reference in ("evt_1/nothing", "evt_2/finance", "/finance", "evt_1/", "evt_1/finance/x", "evt_1/\0"):
        assert await store.find(reference) == [], reference


async def test_a_key_with_a_slash_is_found_first(store: Store) -> None:
    await store.know_sources([SOURCE])
    owner = await claimed(store, "repo/finance")
    await settle(store, owner, "complete", stages=("finance",))
    assert await store.find("repo/finance") == [owner.id]
    assert await store.find("repo/finance/finance") == [stage_id(owner.id, "finance")]


async def test_a_search_by_key_finds_the_stages(store: Store) -> None:
    await store.know_sources([SOURCE])
    await staged(store)
    await staged(store, "evt_2")

    async def found(**where: Any) -> list[str]:
        return sorted(row.source for row in await store.search.events(Filter(**where)))

    assert await found(key="evt_1") == ["stripe", "stripe/finance", "stripe/provision"]
    assert await found(key="evt_1", source="stripe/finance") == ["stripe/finance"]
    assert await found(source="stripe") == ["stripe", "stripe"]
    assert await found(object_id="none") == []
    assert await store.search.count(Filter(key="evt_1")) == 3


async def test_an_event_accepted_from_quarantine_has_stages(store: Store) -> None:
    """Its stages name the same delivery, which no operator can accept again."""
    await record(store, delivered("evt_1", b"one"))
    await settle(store, await claim(store), "complete")
    conflict = delivered("evt_1", b"two")
    await record(store, conflict)
    accepted = await store.quarantine.accept(conflict.id, 0, item("evt_1", b"two"), "ada", "ours")
    await settle(store, await claim(store), "complete", stages=STAGES)
    assert len(await stages_of(store, accepted)) == 2
    with pytest.raises(WrongState):
        await store.quarantine.accept(conflict.id, 0, item("evt_1", b"two"), "ada", "again")
    assert len(await store.quarantine.quarantined(limit=10)) == 1
    assert await store.find("evt_1~2") == [accepted]
    await check(store)


async def test_a_stage_in_review_is_continued_when_its_call_is_known(store: Store) -> None:
    """Effects are those of the source, and the event that waits for one may be a stage."""
    await staged(store, stages=("finance",))
    owner = await claim(store, of("finance"))
    started = await start(store, owner, "k")
    await finish(store, started.identity, 1, CallOutcome.UNKNOWN)
    effect = await store.ledger.get(started.identity)
    assert effect is not None
    words = f"effect {effect.name} {effect.key!r} may have happened"
    await settle(store, owner, "review", reason=words)
    await store.ledger.resolve(effect, "happened", None, "ada", "we asked")
    assert (await event(store, owner.id)).state is State.PENDING


# ── a stage that was added later ──


async def test_a_stage_is_added_once_and_audited(store: Store) -> None:
    ident = await staged(store, stages=("finance",))
    row = await event(store, ident)
    added = await store.stages.add(ident, row.claim, "mail", "ada", "new")
    assert added == stage_id(ident, "mail")
    with pytest.raises(WrongState, match="has stage 'mail'"):
        await store.stages.add(ident, row.claim, "mail", "ada", "new")
    with pytest.raises(WrongState, match="is a stage itself"):
        await store.stages.add(added, 0, "more", "ada", "new")
    with pytest.raises(WrongState, match="there is no event"):
        await store.stages.add(new_id(), 0, "mail", "ada", "new")
    assert [(a.name, a.subject) for a in (await history(store, ident)).actions] == [("add-stage", "stage mail")]
    assert await settle(store, await claim(store, of("mail")), "complete")
    await check(store)


async def test_bulk_replay_adds_the_stage_to_events_that_lack_it(store: Store) -> None:
    await staged(store, "evt_1", stages=("mail",))
    lacking = [await staged(store, f"evt_{n}", stages=("finance",)) for n in (2, 3, 4)]
    where = Filter(source=SOURCE, lacks_stage="mail")
    assert {row.id for row in await store.search.events(where)} == set(lacking)
    assert await store.search.count(where) == 3
    job = NewJob(id=new_id(), name="replay", where=where, actor="ada", reason="new stage", per_second=0)
    await store.jobs.plan(job, 3)
    changed = await event(store, lacking[0])
    await store.replay(changed.id, changed.state, "ada", "meanwhile")
    taken = await store.jobs.take(WORKER, LEASE)
    assert taken is not None
    assert taken.job.where == where
    items = await store.jobs.open_items(taken, 10)
    after = await store.jobs.step(taken, items, {}, LEASE)
    assert after is not None
    assert (after.done, after.not_allowed) == (2, 1)
    for ident in lacking[1:]:
        assert await stages_of(store, ident) == {"finance": State.PENDING, "mail": State.PENDING}
        assert (await event(store, ident)).run == 1
    assert await stages_of(store, lacking[0]) == {"finance": State.PENDING}
    await settle(store, await claim(store), "complete")
    await check(store)


# ── the end ──


async def prune(store: Store, clock: Clock, limit: float = 5.0, **limits: float) -> int:
    clock.offset += limit + 1
    settings = RetentionSettings(batch=2, batch_delay=Seconds(0))
    rules = Limits(**(limits or {"events": limit}))
    done = await Pruner(store, settings, {}, rules, clock, WORKER).round(from_start=True)
    return done.total


async def rows(store: Store) -> list[EventRow]:
    return await store.search.events()


async def end(store: Store, owner: Claimed, state: State) -> None:
    assert await settle(store, owner, "complete" if state is State.PROCESSED else "fail")


async def test_an_event_is_pruned_with_its_stages(store: Store, clock: Clock, raw: Raw) -> None:
    """Not before: an event whose stage is gone would seem to lack it."""
    for key in ("evt_1", "evt_2", "evt_3"):
        await staged(store, key)
    finance, provision = [await store.claim(WORKER, [of(stage)], 3, LEASE) for stage in STAGES]
    for owner in provision:
        await end(store, owner, State.PROCESSED)
    assert await prune(store, clock) == 0  # finance is processing
    await settle(store, finance[0], "complete")
    await settle(store, finance[1], "fail")
    await settle(store, finance[2], "complete")
    assert await prune(store, clock) == 6  # what failed is not to be pruned
    assert {row.key for row in await rows(store)} == {finance[1].key}
    books = await store.consistency.report()
    assert (books.imbalances, books.kept, books.pruned, sum(books.stages.values())) == ((), 1, 2, 2)
    await prune(store, clock, events=5.0, failed=5.0)
    assert await rows(store) == []
    assert (await raw.count("requests"), await raw.count("attempts")) == (0, 0)
    await check(store)


async def test_the_bytes_stay_until_every_stage_is_over(store: Store, clock: Clock) -> None:
    ident = await staged(store)
    finance, provision = [await claim(store, of(stage)) for stage in STAGES]
    await end(store, provision, State.PROCESSED)
    assert await prune(store, clock, payloads=5.0) == 0
    assert await settle(store, finance, "complete")
    assert await prune(store, clock, payloads=5.0) == 3
    found = await history(store, ident)
    assert not found.kept
    assert all(row.emptied_at for row in (found.event, *found.stages))
    with pytest.raises(WrongState, match="pruned or erased"):
        await store.replay(finance.id, State.PROCESSED, "ada", "again")
    with pytest.raises(WrongState, match="pruned or erased"):
        await store.stages.add(ident, found.event.claim, "mail", "ada", "new")
    await check(store)


async def test_what_the_stages_of_a_pruned_event_did_is_erased_with_it(store: Store, clock: Clock) -> None:
    """Effects outlive their events: those of its stages are part of it, those of another event's are not."""
    await record(store, delivered("evt_1"), delivered("evt_2"))  # ids of one millisecond, as a rule
    owners = await store.claim(WORKER, [KIND], 2, LEASE)
    assert await store.settle([way_out(owner, "complete", stages=("finance",)) for owner in owners])
    called: dict[UUID, bytes] = {}
    for owner in await store.claim(WORKER, [of("finance")], 2, LEASE):
        started = await start(store, owner, owner.key)
        await finish(store, started.identity, 1, CallOutcome.DONE, result=b'"Ada"')
        assert await settle(store, owner, "complete")
        called[owner.id] = started.identity
    assert await prune(store, clock) == 4
    one, other = [called[stage_id(owner.id, "finance")] for owner in owners]
    assert await store.erasure.erase_effects(owners[0].id, "ada", "asked", key_too=True) == 1
    erased, kept = await store.ledger.get(one), await store.ledger.get(other)
    assert erased is not None
    assert kept is not None
    assert (erased.result, erased.key.startswith("sha256:")) == (None, True)
    assert (kept.result, kept.key) == (b'"Ada"', owners[1].key)
    await check(store)


async def test_a_stage_that_is_added_during_an_erasure_does_not_outlive_it(postgres_url: str) -> None:
    """Only PostgreSQL has the moment: an operator adds a stage while the erasure waits for the event."""
    async with AsyncExitStack() as stack:
        stores = [connect(postgres_url, clock=Clock()) for _ in range(2)]
        for opened in stores:
            await opened.open(handlers=1)
            stack.push_async_callback(opened.close)
        watch = await asyncpg.connect(postgres_url)
        stack.push_async_callback(watch.close)
        store, desk = stores
        ident = await staged(store, stages=(), object_id="cus_1")
        row = await event(store, ident)
        locked, waits = asyncio.Event(), asyncio.Event()

        async def add(db: Session) -> dict[UUID, str]:
            await db("lock_events", events=[ident])
            locked.set()
            await waits.wait()
            return await add_stages(db, [(ident, row.claim)], "mail", Audit("bob", "new"))

        adding = asyncio.create_task(desk.stages._database.write(add))
        await locked.wait()
        erasing = asyncio.create_task(store.erasure.erase(ident, row.state, row.claim, "ada", "asked"))
        while not await watch.fetchval(WAITING):
            await asyncio.sleep(0.01)
        waits.set()
        assert await adding == {}
        with pytest.raises(WrongState, match="got a stage"):
            await erasing
        assert ((await event(store, ident)).object_id, await stages_of(store, ident)) == (
            "cus_1",
            {"mail": State.PENDING},
        )
        assert await settle(store, await claim(store, of("mail")), "complete")
        await store.erasure.erase(ident, row.state, row.claim, "ada", "asked")
        found = await history(store, ident)
        assert [one.object_id for one in (found.event, *found.stages)] == [None, None]
        await check(store)


async def test_an_event_is_erased_with_its_stages(store: Store) -> None:
    ident = await staged(store, object_id="cus_1")
    finance, provision = [await claim(store, of(stage)) for stage in STAGES]
    await settle(store, provision, "complete", result="for Ada")
    row = await event(store, ident)
    with pytest.raises(WrongState, match="its stage 'finance' is processing"):
        await store.erasure.erase(ident, row.state, row.claim, "ada", "asked")
    await settle(store, finance, "fail", reason="Ada's card", error="Ada's card")
    stage = await event(store, finance.id)
    with pytest.raises(WrongState, match="erase that event"):
        await store.erasure.erase(stage.id, stage.state, stage.claim, "ada", "asked")
    erased = await store.erasure.erase(ident, row.state, row.claim, "ada", "asked", key_too=True)
    assert set(erased.events) == {ident, finance.id, provision.id}
    for row in ((found := await history(store, ident)).event, *found.stages):
        assert (row.object_id, row.result, row.error) == (None, None, None)
        assert row.reason in (None, "erased")
        assert row.key.startswith("sha256:")
    await check(store)
