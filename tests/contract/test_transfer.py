"""From one inbox to another: nothing is lost, nothing is done twice, and the books hold on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.filters import Filter
from hookledger.operate import transfer
from hookledger.operate.transfer import Unreadable
from hookledger.states import DeliveryOutcome, EffectKind, EffectState, State
from hookledger.store.connect import connect
from hookledger.store.protocol import Store
from hookledger.store.transfer import TABLES as TRANSFERRED
from hookledger.store.transfer import Taken
from tests.builders import SOURCE, Raw, claim, claimed, delivered, event, item, record, recorded, settle, way_out
from tests.contract.conftest import OpenStore
from tests.contract.test_accounting import commit, found, story
from tests.ledger import LATER, intent, reach
from tests.life import Life

TABLES = ("events", "requests", "deliveries", "attempts", "effects", "effect_calls", "identities")


@pytest.fixture
async def elsewhere(tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    """Another inbox, on SQLite."""
    store = connect(f"sqlite:///{tmp_path}/elsewhere.db", clock=clock)
    await store.open(handlers=2)
    await store.migrate()
    yield store
    await store.close()


async def exported(store: Store, where: Filter | None = None) -> list[bytes]:
    return [line async for line in transfer.export(store, where or Filter())]


async def moved(source: Store, target: Store, *, take_over: bool = False) -> Taken:
    lines = await exported(source)
    return await transfer.take_in(target, lambda: iter(lines), "ada", "moving", take_over=take_over)


@pytest.mark.parametrize("seed", range(3))
async def test_a_whole_life_moves_and_the_books_hold(
    store: Store, elsewhere: Store, clock: Clock, seed: int
) -> None:
    """There and, by another way, back: from either database to the other."""
    life = Life(store if seed else elsewhere, clock, seed)
    source, target = (store, elsewhere) if seed else (elsewhere, store)
    await life.live(150)
    number = sum((await source.counts()).values())
    done = await moved(source, target, take_over=seed == 2)
    orphans = len(done.waiting)  # made of deliveries that imported keys met
    assert (done.new, done.known, done.taken) == (number - orphans, 0, [])
    assert await found(target) == {}
    again = await moved(source, target)
    assert (again.new, again.known) == (0, number - orphans)
    alive = await Raw(source).run("SELECT identity FROM identities WHERE event_id IN (SELECT id FROM events)")
    taken = {bytes(row[0]) for row in await Raw(target).run("SELECT identity FROM identities")}
    assert {bytes(row[0]) for row in alive} - taken == set() or orphans


async def test_what_is_finished_arrives_as_it_was(store: Store, elsewhere: Store, clock: Clock) -> None:
    told = await story(store, clock)
    await moved(store, elsewhere)
    for name in ("processed", "failed", "discarded", "observed", "replayed"):
        assert await event(elsewhere, told[name]) == await event(store, told[name])
    assert await found(elsewhere) == {}


async def test_a_duplicate_there_is_a_duplicate_and_an_effect_is_skipped(store: Store, elsewhere: Store) -> None:
    owner = await claimed(store, "paid")
    await commit(store, owner)
    await moved(store, elsewhere)
    [verdict] = await record(elsewhere, delivered("paid"))
    assert (verdict.outcome, verdict.event_id) == (DeliveryOutcome.DUPLICATE, owner.id)
    other = await claimed(elsewhere, "another")
    transaction = elsewhere.transaction()
    assert not await transaction.once(intent(other, "k", name="credit", kind=EffectKind.ONCE, repeat=None))
    await transaction.rollback()


async def test_what_is_not_finished_runs_nowhere_by_itself(store: Store, elsewhere: Store) -> None:
    """Nor does its outbox; a person decides."""
    owner = await claimed(store, "in work")
    transaction = store.transaction()
    await transaction.plan(intent(owner, "k", name="mail", kind=LATER))
    await transaction.commit([way_out(owner, "complete")])
    await recorded(store, "waiting")
    await claim(store)
    pending = await recorded(store, "pending")
    done = await moved(store, elsewhere)
    assert (done.new, done.held) == (3, 2)
    assert await elsewhere.waiting() == []
    assert await elsewhere.ledger.claim("w", [("mail", 5, 60.0)]) == []
    row = await event(elsewhere, pending)
    assert row.state is State.NEEDS_REVIEW and "imported while it was pending" in (row.reason or "")
    assert (await event(elsewhere, owner.id)).attention
    assert await found(elsewhere) == {}
    await elsewhere.retry(pending, State.NEEDS_REVIEW, "ada", "stopped there")
    assert await settle(elsewhere, await claim(elsewhere), "complete")
    assert await found(elsewhere) == {}


async def test_what_is_taken_over_goes_on(store: Store, elsewhere: Store) -> None:
    await recorded(store, "pending")
    done = await moved(store, elsewhere, take_over=True)
    assert (done.new, done.held) == (1, 1)
    owner = await claim(elsewhere)
    assert (owner.key, owner.body) == ("pending", b"{}")


@pytest.mark.parametrize("take_over", [True, False])
async def test_an_unknown_effect_marks_its_event(
    store: Store, elsewhere: Store, clock: Clock, take_over: bool
) -> None:
    await recorded(store, "evt_1")
    await reach(store, clock, await claim(store), EffectState.UNKNOWN, LATER, "k")
    await moved(store, elsewhere, take_over=take_over)
    assert [row.attention for row in await elsewhere.search.events(Filter(), limit=10)] == [True]


async def test_a_key_that_is_known_there_stays_there(store: Store, elsewhere: Store) -> None:
    there = await recorded(elsewhere, "same")
    here = await recorded(store, "same")
    done = await moved(store, elsewhere)
    assert (done.new, done.taken) == (0, [here])
    assert [row.id for row in await elsewhere.events()] == [there]
    assert await found(elsewhere) == {}


async def test_an_admitted_event_needs_the_one_it_met(store: Store, elsewhere: Store) -> None:
    owner = await claimed(store, "k")
    assert await settle(store, owner, "complete")
    odd = delivered("k", b"other")
    await record(store, odd)
    admitted = await store.cases.admit(odd.id, 0, item("k", b"other"), "ada", "ours")
    alone = await exported(store, Filter(key="k~2"))
    done = await transfer.take_in(elsewhere, lambda: iter(alone), "ada", "moving")
    assert (done.new, done.waiting) == (0, [admitted])
    assert (await moved(store, elsewhere)).new == 2
    assert await found(elsewhere) == {}


BAD = {
    "no JSON": (1, b"{", "line 2"),
    "another format": (0, b'{"format": "x"}', "line 1"),
    "another version": (0, b'{"format": "hookledger events", "version": 99}', "version 99"),
    "no event": (1, b"{}", "line 2: events is missing"),
    "a list": (1, b"[]", "line 2"),
    "too deep": (1, b"[" * 100_000, "line 2"),
}


@pytest.mark.parametrize(("place", "text", "words"), BAD.values(), ids=BAD)
async def test_a_bad_line_is_named(store: Store, raw: Raw, place: int, text: bytes, words: str) -> None:
    lines = [b'{"format": "hookledger events", "version": 1}', b"", b'{"end": 1}']
    lines[place] = text
    with pytest.raises(Unreadable, match=words):
        await transfer.take_in(store, lambda: iter(lines), "ada", "moving")
    assert await raw.count("events") == 0


async def test_an_impossible_row_takes_its_batch_along(store: Store, elsewhere: Store) -> None:
    await recorded(store, "one")
    await recorded(store, "two")
    lines = await exported(store)
    lines[2] = lines[2].replace(b'"state":"pending"', b'"state":"processed"')
    with pytest.raises(Unreadable, match="lines 2 to 3"):
        await transfer.take_in(elsewhere, lambda: iter(lines), "ada", "moving")
    assert await elsewhere.counts() == {}
    with pytest.raises(Unreadable, match="cut off"):
        await transfer.take_in(elsewhere, lambda: iter(lines[:2]), "ada", "moving")
    assert await elsewhere.counts() == {State.NEEDS_REVIEW: 1}
    assert SOURCE in (await elsewhere.events())[0].source


@pytest.mark.parametrize("value", [5, -1, 2**70, True, 1.5, "x", "\0", [], {}, {"text": 5}, {"base64": 5}], ids=repr)
async def test_a_wrong_value_in_any_place_is_refused_in_words(
    store: Store, elsewhere: Store, clock: Clock, value: object
) -> None:
    """Taken or refused: nothing else, and nothing half."""
    await story(store, clock)
    [line] = [line for line in (await exported(store))[1:-1] if b'"called"' in line]
    head, end = b'{"format": "hookledger events", "version": 1}', b'{"end": 1}'

    async def rows() -> dict[str, int]:
        return {table: await Raw(elsewhere).count(table) for table in TABLES}

    for table, columns in TRANSFERRED.items():
        for column in columns:
            shown = msgspec.json.decode(line)
            for row in shown[table]:
                row[column] = value
            lines = [head, msgspec.json.encode(shown), end]
            before = await rows()
            try:
                await transfer.take_in(elsewhere, lambda: iter(lines), "ada", "moving")  # noqa: B023
            except Unreadable:
                assert await rows() == before


async def test_a_line_that_is_missing_is_missed(store: Store, elsewhere: Store) -> None:
    for key in ("one", "two", "three"):
        await recorded(store, key)
    lines = await exported(store)
    with pytest.raises(Unreadable, match="tells of 3 events, and there are 2"):
        await transfer.take_in(elsewhere, lambda: iter([*lines[:2], *lines[3:]]), "ada", "moving")
    assert (await moved(store, elsewhere)).new == 1


@pytest.mark.parametrize("lost", ["deliveries", "requests"])
async def test_an_event_without_what_brought_it_is_refused(store: Store, elsewhere: Store, lost: str) -> None:
    await recorded(store, "one")
    lines = await exported(store)
    lines[1] = msgspec.json.encode({**msgspec.json.decode(lines[1]), lost: []})
    with pytest.raises(Unreadable, match="line 2"):
        await transfer.take_in(elsewhere, lambda: iter(lines), "ada", "moving")
    assert await elsewhere.counts() == {}


async def test_a_line_is_of_one_moment(store: Store, open_store: OpenStore) -> None:
    """An event that is settled while it is told is told as it was before, or as it is after."""
    worker, lines = await open_store(), list[bytes]()

    async def works() -> None:
        for n in range(80):
            assert await settle(worker, await claimed(worker, f"evt_{n}"), "complete")

    working = asyncio.create_task(works())
    while not working.done():
        lines += (await exported(store))[1:-1]
    await working
    for line in map(msgspec.json.decode, lines):
        [told] = line["events"]
        assert (told["first_processed_at"] is None) == (line["attempts"] == [])
