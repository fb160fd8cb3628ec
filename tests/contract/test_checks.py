"""The check in pieces finds what the check in one snapshot finds, once, whoever is killed or changes rows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock, Seconds
from hookledger.errors import Unavailable, WrongState
from hookledger.operate.consistency import check as checking
from hookledger.operate.consistency.check import Checker
from hookledger.operate.consistency.settings import ConsistencySettings
from hookledger.states import State
from hookledger.store.ops import checks, rules
from hookledger.store.ops.checks import Check, Kind, Position
from hookledger.store.ops.consistency import ENTRIES, TOTAL, Violation
from hookledger.store.ops.rules import WALKS, Walk
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from hookledger.store.text import shared
from tests.builders import Raw, claimed, delivered, record, recorded, settle
from tests.contract.conftest import OpenStore
from tests.contract.test_consistency import DEEDS, story
from tests.life import Life

DAY = 86400.0


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces in every table, even of a short story."""
    monkeypatch.setattr(checking, "SIZES", (3, 3))
    monkeypatch.setattr(checks, "WIDE", 4)


def checker(store: Store, clock: Clock, name: str = "one", **settings: Any) -> Checker:
    return Checker(store, ConsistencySettings(**settings), clock, name, pause=False)


async def found(store: Store, clock: Clock, kind: Kind = "full") -> dict[str, int]:
    ended = await checker(store, clock).check(kind)
    assert ended is not None and ended.whole
    return {one.kind: one.count for one in ended.violations}


async def damage(raw: Raw, ids: dict[str, UUID], sql: str) -> None:
    literals = {name: raw.ident(ident) for name, ident in ids.items()}
    literals |= {"now": raw.now, "never": raw.never, "nobody": raw.ident(UUID(int=1))}
    for statement in sql.split("; "):
        await raw.run(statement.format(**literals))


async def rows_of(raw: Raw) -> int:
    return sum([await raw.count(walk.table) for walk in WALKS.values() if not walk.wide])


# ── what it finds ──


def test_every_rule_is_in_one_walk() -> None:
    assert sorted(rule for walk in WALKS.values() for rule in walk.rules) == sorted(ENTRIES)


@pytest.mark.parametrize("deed", list(DEEDS))
async def test_the_full_check_finds_every_kind_of_damage(store: Store, clock: Clock, raw: Raw, deed: str) -> None:
    """In old rows: they arrived long before the last incremental check. The rows say all that the sums say."""
    ids = await story(store, clock)
    clock.offset += 3 * DAY
    assert await found(store, clock) == await found(store, clock, "incremental") == {}
    sql, expected = DEEDS[deed]
    await damage(raw, ids, sql)
    assert await found(store, clock) == {rule: n for rule, n in expected.items() if rule != TOTAL}


async def test_damage_in_old_and_new_rows_is_counted_once(store: Store, clock: Clock, raw: Raw) -> None:
    await story(store, clock)
    clock.offset += DAY
    await record(store, *(delivered(f"new_{n}") for n in range(25)))
    await raw.run("DELETE FROM identities WHERE kind = 'key'")
    await raw.run("DELETE FROM requests")
    [events] = await raw.run("SELECT count(*) FROM events WHERE key_origin <> 'quarantine'")
    [deliveries] = await raw.run("SELECT count(*) FROM deliveries WHERE outcome <> 'duplicate'")
    ended = await checker(store, clock).check("full")
    assert ended is not None
    assert {one.kind: one.count for one in ended.violations} == {
        "events_without_identity": events[0],
        "requests_missing": deliveries[0],
    }
    assert all(len(one.sample) == len(set(one.sample)) == checks.SAMPLE for one in ended.violations)
    assert ended.row_count == await rows_of(raw)


async def test_two_deliveries_that_made_one_event_are_found(store: Store, clock: Clock, raw: Raw) -> None:
    """The sums show it; the check in pieces has none, so a rule must."""
    one, other = await recorded(store, "evt_1"), await recorded(store, "evt_2")
    await raw.run(f"UPDATE deliveries SET event_id = {raw.ident(one)} WHERE event_id = {raw.ident(other)}")
    assert (await found(store, clock))["deliveries_without_event"] == 1


async def test_samples_hold_no_keys_of_effects(store: Store, clock: Clock, raw: Raw) -> None:
    """An erasure would not find them there."""
    ids = await story(store, clock)
    await damage(raw, ids, DEEDS["a done call is called refused"][0])
    await checker(store, clock).check("full")
    [(_, _, _, sample)] = await raw.all("consistency_violations")
    assert str(ids["called"]) in sample and "paid" not in sample


# ── what the incremental one finds ──


@pytest.mark.parametrize(
    "deed",
    [
        "an attempt is lost",
        "a request is lost",
        "a delivery is lost",
        "a failed event is called processed",
        "a call is lost",
        "a guard is set by hand",
        "a guard is lost",
        "an attempt is written by someone without a claim",
    ],
)
async def test_the_incremental_check_finds_damage_in_what_arrived(
    store: Store, clock: Clock, raw: Raw, deed: str
) -> None:
    assert await found(store, clock) == {}
    ids = await story(store, clock)
    sql, expected = DEEDS[deed]
    await damage(raw, ids, sql)
    assert await found(store, clock, "incremental") == {rule: n for rule, n in expected.items() if rule != TOTAL}


async def test_the_incremental_check_looks_at_what_operators_did(
    store: Store, clock: Clock, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To events of any age."""
    monkeypatch.setattr(checks, "OVERLAP", timedelta(0))
    old = await claimed(store)
    assert await settle(store, old, "fail")
    assert await found(store, clock) == {}
    await store.discard(old.id, State.FAILED, "ada", "enough")
    await raw.run(f"DELETE FROM attempts WHERE event_id = {raw.ident(old.id)}")
    await raw.run(f"UPDATE events SET state = 'failed' WHERE id = {raw.ident(old.id)}")
    clock.offset += 1  # what has an id of the millisecond in which a check begins is left to the next one
    assert await found(store, clock, "incremental") == {"events_without_attempt": 1}


async def test_what_the_incremental_check_cannot_see(
    store: Store, clock: Clock, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/explanation/consistency.md says: old events that workers or others changed, and lost keys, even new."""
    monkeypatch.setattr(checks, "OVERLAP", timedelta(0))
    old = await claimed(store, "old")
    assert await found(store, clock) == {}
    assert await settle(store, old, "complete")
    await raw.run("DELETE FROM attempts")
    new = await recorded(store, "new")
    await raw.run(f"DELETE FROM identities WHERE event_id = {raw.ident(new)}")
    assert await found(store, clock, "incremental") == {}
    assert await found(store, clock) == {
        "events_without_attempt": 1,
        "events_unlike_attempts": 1,
        "events_without_identity": 1,
    }


async def test_incremental_checks_leave_no_gap(
    store: Store, clock: Clock, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has too much to look at ends earlier, and the next goes on there."""
    monkeypatch.setattr(checks, "OVERLAP", timedelta(0))
    monkeypatch.setattr(checks, "MOST", 4)
    for number in range(10):
        await recorded(store, f"evt_{number}")
        await asyncio.sleep(0.002)  # ids of a millisecond of their own
    await raw.run("DELETE FROM requests")
    lost, windows = set(), []
    for _ in range(12):
        ended = await checker(store, clock).check("incremental")
        assert ended is not None
        lost |= {ident for one in ended.violations for ident in one.sample}
        windows.append((ended.since, ended.until))
    assert len(lost) == 10
    assert all(after[0] == before[1] for before, after in pairwise(windows))


# ── while everything changes ──


@pytest.mark.parametrize("kind", ["full", "incremental"])
async def test_changes_during_a_check_are_no_violations(open_store: OpenStore, clock: Clock, kind: Kind) -> None:
    """Deliveries, work, effects, decisions and pruning, from another process's store."""
    life = Life(await open_store(), clock, 11)
    store = await open_store()
    living = asyncio.create_task(life.live(240))
    done = 0
    while not living.done():
        assert await found(store, clock, kind) == {}
        done += 1
    await living
    assert done > 2
    assert await found(store, clock) == {}


async def test_a_violation_that_is_gone_at_the_second_look_is_not_stored(
    store: Store, clock: Clock, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await claimed(store)
    assert await settle(store, owner, "complete")
    await raw.run("UPDATE attempts SET claim = 99")
    confirm = store.checks.confirm
    looks: list[set[str]] = []

    async def mended(suspects: Any) -> Any:
        looks.append({one.rule for one in suspects})
        await raw.run("UPDATE attempts SET claim = 1")
        return await confirm(suspects)

    monkeypatch.setattr(store.checks, "confirm", mended)
    assert await found(store, clock) == {}
    assert looks and looks[0] >= {"events_without_attempt"}
    assert await raw.all("consistency_violations") == []


async def test_arrivals_do_not_keep_it_from_its_end(store: Store, clock: Clock, raw: Raw) -> None:
    """Each table is walked to the row that was its last when the walk began."""
    await record(store, *(delivered(f"evt_{n}") for n in range(10)))
    look, number = store.checks.look, 0

    async def more(check: Check, position: Position, size: int) -> Any:
        nonlocal number
        number += 1
        assert number < 200, "it never ends"
        if position.walk in ("deliveries", "events"):  # more than it looks at
            await record(store, *(delivered(f"more_{number}_{n}") for n in range(4)))
        return await look(check, position, size)

    store.checks.look = more  # type: ignore[method-assign]
    assert await found(store, clock) == {}


async def test_sqlite_is_written_while_a_piece_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order shows it: the delivery is recorded while the piece has not ended."""
    if not isinstance(store, SqliteStore):
        return  # PostgreSQL's readers block no writer
    await recorded(store)
    endless = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
    monkeypatch.setitem(shared("sqlite"), "endless", endless)
    monkeypatch.setitem(WALKS, "requests", Walk("requests", "r", {"id": "uuid"}, ("endless",)))
    monkeypatch.setitem(rules.WALK_OF, "endless", "requests")
    monkeypatch.setattr(checks, "LIMIT", 3.0)
    check = await store.checks.begin("full", "one", lease=60.0)
    assert check is not None
    piece = asyncio.create_task(store.checks.look(check, Position("requests"), 10))
    await asyncio.sleep(0.3)
    await recorded(store, "evt_2")
    assert not piece.done()
    with pytest.raises(Unavailable, match="longer than 3 s"):
        await piece


# ── one at a time, to its end ──


async def interrupted(store: Store, clock: Clock, after: int, error: BaseException) -> None:
    """A check that ends in this error before its piece of this number."""
    look, number = store.checks.look, 0

    async def looked(check: Check, position: Position, size: int) -> Any:
        nonlocal number
        number += 1
        if number > after:
            raise error
        return await look(check, position, size)

    store.checks.look = looked  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        await checker(store, clock).check("full")
    store.checks.look = look  # type: ignore[method-assign]


async def test_another_process_resumes_where_it_was_interrupted(
    open_store: OpenStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is missed and nothing is counted twice, wherever that is."""
    monkeypatch.setattr(checking, "SAVE", 0.0)
    store, other = await open_store(), await open_store()
    raw = Raw(store)
    await story(store, clock)
    await raw.run("DELETE FROM identities WHERE kind = 'key'")
    await raw.run("DELETE FROM requests")
    expected = await found(store, clock)
    total, pieces = await rows_of(raw), 0
    for after in range(0, 200, 5):
        try:
            await interrupted(store, clock, after, Unavailable("the database is gone"))
        except BaseException:
            break  # it came to its end
        [check] = [one for one in await store.checks.last(1) if one.kind == "full"]
        assert (check.ended_at, check.problem) == (None, "the database is gone")
        ended = await checker(other, clock, "two").check("full")
        assert ended is not None and (ended.id, ended.holder, ended.fence) == (check.id, "two", 2)
        assert {one.kind: one.count for one in ended.violations} == expected
        assert (ended.row_count, ended.whole) == (total, True)
        pieces += 1
    assert pieces > 5


async def test_a_worker_that_stops_gives_the_check_up(store: Store, clock: Clock) -> None:
    await story(store, clock)
    await interrupted(store, clock, 3, asyncio.CancelledError())
    assert await store.checks.needed("full", datetime.now(UTC))
    ended = await checker(store, clock, "two").check("full")
    assert ended is not None and (ended.fence, ended.whole) == (2, True)


async def test_one_process_at_a_time(open_store: OpenStore, clock: Clock) -> None:
    one, two = await open_store(), await open_store()
    await recorded(one)
    begun = await asyncio.gather(*(s.checks.begin("full", "x", lease=60.0) for s in (one, two) for _ in range(4)))
    [check] = [found for found in begun if found is not None]
    assert await checker(two, clock).check("full") is None
    assert not await two.checks.needed("full", datetime.now(UTC))
    assert await checker(two, clock).check("incremental") is not None, "the other kind is another matter"
    clock.offset += 61
    assert await two.checks.needed("full", datetime.now(UTC))
    taken = await two.checks.begin("full", "y", lease=60.0)
    assert taken is not None and (taken.id, taken.fence) == (check.id, 2)
    assert not await one.checks.advance(check, Position("events"), 5, [], 60.0), (
        "a process that lost it stores nothing"
    )
    assert not await one.checks.renew(check, 60.0)
    assert await one.checks.end(check, 5, [Violation("requests_missing", 1, ())]) is None
    assert await Raw(one).count("consistency_violations") == 0
    [full] = [one for one in await two.checks.last() if one.kind == "full"]
    assert (full.id, full.row_count, full.ended_at) == (check.id, 0, None)


async def test_a_process_that_lost_the_check_says_so(open_store: OpenStore, clock: Clock) -> None:
    one, two = await open_store(), await open_store()
    await recorded(one)
    look = one.checks.look

    async def slowly(check: Check, position: Position, size: int) -> Any:
        clock.offset += 61
        await two.checks.begin("full", "two", lease=60.0)
        return await look(check, position, size)

    one.checks.look = slowly  # type: ignore[method-assign]
    with pytest.raises(WrongState, match="took over"):
        await checker(one, clock).check("full")


async def test_a_check_that_always_fails_is_given_up(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "TRIES", 3)
    await recorded(store)
    for _ in range(3):
        await interrupted(store, clock, 0, Unavailable("it took too long"))
    ended = await checker(store, clock).check("full")
    assert ended is not None and ended.fence == 1
    failed = next(one for one in await store.checks.last(5) if one.id != ended.id)
    assert (failed.problem, failed.whole, failed.fence) == ("it took too long", False, 3)


async def test_a_check_of_yesterday_is_not_resumed(store: Store, clock: Clock) -> None:
    await recorded(store)
    old = await store.checks.begin("full", "dead", lease=60.0)
    clock.offset += DAY + 1
    ended = await checker(store, clock).check("full")
    assert old is not None and ended is not None and ended.id != old.id
    assert [one.whole for one in await store.checks.last(5)] == [True, False]


# ── when ──


async def test_each_slot_once(open_store: OpenStore, clock: Clock) -> None:
    stores = [await open_store() for _ in range(3)]
    everyone = [checker(store, clock, f"w{n}", full_at="00:00") for n, store in enumerate(stores)]

    async def rounds() -> dict[str, int]:
        for _ in range(2):
            await asyncio.gather(*(one.round() for one in everyone))
        last = await stores[0].checks.last(50)
        assert all(one.whole for one in last)
        return {kind: sum(one.kind == kind for one in last) for kind in ("full", "incremental")}

    clock.offset += DAY / 2 + 1800 - clock.time() % DAY  # half past noon: no slot begins meanwhile
    assert await rounds() == {"full": 1, "incremental": 1}
    clock.offset += 3600
    assert (await rounds())["incremental"] == 2
    clock.offset += DAY
    assert await rounds() == {"full": 2, "incremental": 3}


async def test_results_are_kept_for_a_month(
    store: Store, clock: Clock, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "OVERLAP", timedelta(0))
    await recorded(store)
    await raw.run("DELETE FROM requests")
    assert await found(store, clock) == {"requests_missing": 1}
    clock.offset += checks.KEPT + 1
    assert await found(store, clock, "incremental") == {}
    assert await raw.count("consistency_checks") == 2, "only a full check lets the last full one go"
    await found(store, clock)
    clock.offset += 1
    await found(store, clock)
    assert (await raw.count("consistency_checks"), await raw.count("consistency_violations")) == (3, 2)


# ── what it says ──


async def test_what_was_found_stands_until_a_full_check_says_otherwise(
    store: Store, clock: Clock, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "OVERLAP", timedelta(0))
    state = await store.checks.standing()
    assert (state.checked_at, state.total) == (None, 0)
    await recorded(store)
    await raw.run("DELETE FROM requests")
    clock.offset += 1  # what has an id of the millisecond in which a check begins is left to the next one
    await checker(store, clock).check("incremental")
    state = await store.checks.standing()
    assert (state.checked_at, state.violations) == (None, {"requests_missing": 1})
    ended = await checker(store, clock).check("full")
    assert ended is not None and ended.ended_at is not None
    clock.offset += 3600
    assert await found(store, clock, "incremental") == {}
    state = await store.checks.standing()
    assert (state.checked_at, state.violations) == (ended.ended_at, {"requests_missing": 1})
    await raw.run("DELETE FROM deliveries")
    await raw.run("DELETE FROM events")
    await raw.run("DELETE FROM identities")
    assert await found(store, clock) == {}
    state = await store.checks.standing()
    assert (state.total, state.checked_at is not None and state.checked_at > ended.ended_at) == (0, True)


async def test_a_running_check_tells_what_it_found(store: Store, clock: Clock, raw: Raw) -> None:
    await recorded(store)
    await raw.run("DELETE FROM requests")
    await interrupted(store, clock, 2, Unavailable("gone"))
    assert (await store.checks.standing()).violations == {"requests_missing": 1}


async def test_the_runner_checks_when_it_is_due(store: Store, clock: Clock) -> None:
    await recorded(store)
    running = asyncio.create_task(checker(store, clock, interval=Seconds("20ms")).run())
    try:
        async with asyncio.timeout(60):
            while {one.kind for one in await store.checks.last() if one.whole} != {"full", "incremental"}:
                await asyncio.sleep(0.02)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_runner_can_be_turned_off(store: Store, clock: Clock) -> None:
    await checker(store, clock, enabled=False, interval=Seconds("1ms")).run()
    assert await store.checks.last() == []
