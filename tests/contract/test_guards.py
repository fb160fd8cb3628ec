"""Guards: the newest version that was applied, decided by the database in the handler's transaction."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, ChangedVersion, ClaimLost, HandlerCommitted
from hookledger.ledger import FIRST, LAST, MIDDLE, GuardAnswer
from hookledger.model import Claimed, Outcome
from hookledger.operate.doctor.trouble import tie_findings
from hookledger.states import State
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import KIND, LEASE, Raw, claim, claimed, event, history, settle, way_out
from tests.contract.conftest import OpenStore
from tests.contract.test_transaction_effects import several
from tests.guards import KEY, NAME, ask, guard, request, ties

AT = datetime(2027, 1, 31, 9, tzinfo=UTC)


async def answers(raw: Raw) -> list[tuple[Any, ...]]:
    return await raw.run(
        "SELECT version, applied, tie, other_version FROM guard_answers ORDER BY event_id, claim, name"
    )


async def replayed(store: Store, owner: Claimed) -> Claimed:
    """The same event, claimed for another run."""
    await store.replay(owner.id, State.PROCESSED, "ada", "again")
    return await claim(store, KIND)


# ── newer or stale ───────────────────────────────────────────────────────────


async def test_an_older_event_is_stale(store: Store, raw: Raw) -> None:
    newer, older, newest = await several(store, 3)
    first = await ask(store, newer, 1731)
    assert first.words == "applied to subscription sub_1: version 1731"
    late = await ask(store, older, 1720)
    assert (late.applied, late.tie, late.other_event_id) == (False, None, newer.id)
    assert late.words == "stale for subscription sub_1: version 1731 by evt_0 was applied, this is 1720"
    last = await ask(store, newest, 1732.5)
    assert last.words == f"applied to subscription sub_1: version 1732.5, after 1731 by event {newer.id}"
    known = await guard(store)
    assert known is not None
    assert (known.version, known.event_id, known.event_key, known.claim) == (
        "1732.5",
        newest.id,
        "evt_2",
        newest.claim,
    )
    assert (known.replaced_version, known.replaced_event_id, known.ties, known.tie) == ("1731", newer.id, 0, None)
    assert await answers(raw) == [
        ("1731", True, None, None),
        ("1720", False, None, "1731"),
        ("1732.5", True, None, "1731"),
    ]


@pytest.mark.parametrize(
    ("applied", "asked", "newer"),
    [
        (9, 10, True),
        (10, 9, False),
        (Decimal("1.10"), Decimal("1.9"), True),
        (-5, -6, False),
        (2**70, 2**70 + 1, True),
        ("2027-01-31T09:00:00Z", "2027-01-31T10:00:00+02:00", False),
        ("2027-01-31T09:00:00.1234567Z", "2027-01-31T09:00:00.1234568Z", True),
        (AT, AT.isoformat(), None),
        ((1, AT), (1, AT + timedelta(microseconds=1)), True),
        ((2, 1), (1, 9), False),
        ((1, 10), (1, 9), False),
    ],
    ids=str,
)
async def test_versions_are_compared_by_value(store: Store, applied: Any, asked: Any, newer: bool | None) -> None:
    first, second = await several(store, 2)
    await ask(store, first, applied)
    answer = await ask(store, second, asked)
    if newer is None:
        assert (answer.applied, answer.tie) == (True, "id"), "both were recorded in one batch"
    else:
        assert (answer.applied, answer.tie) == (newer, None)


async def test_guards_differ_by_source_name_and_key(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    await ask(store, owner, 9)
    other = await claimed(store, "evt_2")
    tx = store.transaction()
    for name, key in ((NAME, "sub_2"), ("invoice", KEY), (NAME + KEY, "x"), (NAME, KEY + "x")):
        assert (await tx.newer(request(other, 1, key, name=name))).applied
    assert not (await tx.newer(request(other, 1))).applied
    await tx.commit([way_out(other, "complete")])
    elsewhere = await claimed(store, "evt_3", source="paypal")
    assert (await ask(store, elsewhere, 1)).applied
    assert await raw.count("guards") == 6


async def test_the_event_that_set_it_is_never_stale(store: Store, raw: Raw) -> None:
    """Neither in a replay, nor when its handler now reads an older version."""
    owner, late = await several(store, 2)
    await ask(store, owner, 1731)
    await ask(store, late, 1720)
    for version in (1731, 1735, 1700):
        owner = await replayed(store, owner)
        answer = await ask(store, owner, version)
        assert (answer.applied, answer.tie, answer.other_version) == (True, None, None)
    known = await guard(store)
    assert known is not None
    assert (known.version, known.claim, known.ties) == ("1700", owner.claim, 0)
    again = await replayed(store, late)
    assert (await ask(store, again, 1690)).words.endswith("version 1700 by evt_0 was applied, this is 1690")
    assert [bool(row[1]) for row in await answers(raw)] == [True] * 4 + [False] * 2


async def test_a_replay_keeps_what_its_event_replaced(store: Store) -> None:
    first, second = await several(store, 2)
    await ask(store, first, 7, rank=FIRST)
    await ask(store, second, 7, rank=LAST)
    await ask(store, await replayed(store, second), 7, rank=LAST)
    known = await guard(store)
    assert known is not None
    assert (known.replaced_event_id, known.tie, known.ties) == (first.id, "rank", 1)


async def test_an_attempt_that_asks_again_gets_its_last_answer(store: Store, raw: Raw) -> None:
    newer, older = await several(store, 2)
    await ask(store, newer, 10)
    tx = store.transaction()
    assert not (await tx.newer(request(older, 9))).applied
    assert (await tx.newer(request(older, 11))).applied
    assert (await tx.newer(request(older, 8))).applied, "it is of this event by now"
    await tx.commit([way_out(older, "complete")])
    assert await answers(raw) == [("10", True, None, None), ("8", True, None, "10")]
    assert (await store.consistency.report()).imbalances == ()


# ── ties ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "tie"),
    [
        ({"rank": FIRST, "received_at": AT + timedelta(days=1)}, {"rank": MIDDLE, "received_at": AT}, "rank"),
        ({"rank": MIDDLE, "received_at": AT + timedelta(days=1)}, {"rank": LAST, "received_at": AT}, "rank"),
        ({"received_at": AT}, {"received_at": AT + timedelta(microseconds=1)}, "arrival"),
        ({"received_at": AT}, {"received_at": AT}, "id"),
    ],
    ids=["created", "deleted", "arrival", "id"],
)
async def test_a_tie_does_not_depend_on_who_is_first(
    store: Store, raw: Raw, first: dict[str, Any], second: dict[str, Any], tie: str, swapped: bool
) -> None:
    owners = await several(store, 2)
    lower, higher = (owners[0], first), (owners[1], second)
    asked = [higher, lower] if swapped else [lower, higher]
    given = [await ask(store, owner, 7, **facts) for owner, facts in asked]
    assert [answer.applied for answer in given] == [True, not swapped]
    assert [answer.tie for answer in given] == [None, tie]
    assert "; a tie: it" in given[1].words
    known = await guard(store)
    assert known is not None
    assert (known.event_id, known.ties) == (owners[1].id, 1)
    assert known.tie == (None if swapped else tie)


async def test_every_tie_is_counted_and_the_doctor_mentions_it(store: Store, raw: Raw) -> None:
    [nothing] = tie_findings(await store.guards.ties(5))
    assert (nothing.level, nothing.says) == ("ok", "no two events had the same version")
    owners = await several(store, 4)
    for owner in owners:
        await ask(store, owner, 7)
    await ask(store, await replayed(store, owners[3]), 7)
    assert await ties(raw) == 3, "and not with itself"
    [found] = tie_findings(await store.guards.ties(5))
    assert (found.level, found.about) == ("ok", "guards")
    assert found.says.startswith("at 1 guard events had the same version")
    assert "subscription:sub_1 (3)" in found.says
    assert "fetch" in found.do


# ── another kind of version ──────────────────────────────────────────────────


@pytest.mark.parametrize("same_event", [False, True])
async def test_a_changed_kind_of_version_is_reviewed(store: Store, raw: Raw, same_event: bool) -> None:
    first, second = await several(store, 2)
    await ask(store, first, 1731)
    before = await raw.all("guards"), await raw.all("guard_answers")
    asking = await replayed(store, first) if same_event else second
    tx = store.transaction()
    with pytest.raises(ChangedVersion) as raised:
        await tx.newer(request(asking, AT))
    await tx.commit([way_out(asking, "complete")])
    words = f"the version of subscription sub_1 changed its kind: 1731 by event {first.id} is a number, this is "
    assert str(raised.value).startswith(words)
    assert AT.isoformat() in str(raised.value)
    assert (await raw.all("guards"), await raw.all("guard_answers")) == before


async def test_an_approved_run_replaces_a_version_of_another_kind(store: Store) -> None:
    first, second, third = await several(store, 3)
    await ask(store, first, 1731)
    answer = await ask(store, second, "2027-01-31", approved=True)
    assert (answer.applied, answer.tie, answer.other_version) == (True, None, "1731")
    known = await guard(store)
    assert known is not None
    assert (known.kind, known.version, known.ties) == ("time", "2027-01-31", 0)
    assert not (await ask(store, third, "2027-01-30", approved=True)).applied, "an approval makes nothing newer"


# ── with the outcome or not at all ───────────────────────────────────────────


async def test_a_rollback_leaves_neither_guard_nor_answer(store: Store, raw: Raw) -> None:
    first, second = await several(store, 2)
    tx = store.transaction()
    assert (await tx.newer(request(first, 7))).applied
    await tx.rollback()
    assert await raw.count("guards") == await raw.count("guard_answers") == 0
    await ask(store, first, 7)
    before = await raw.all("guards"), await raw.all("guard_answers")
    for version in (7, 8):  # a tie, and a newer one
        tx = store.transaction()
        await tx.newer(request(second, version, rank=FIRST))
        await tx.rollback()
        assert (await raw.all("guards"), await raw.all("guard_answers")) == before
    assert await settle(store, second, "reschedule")


async def test_a_lost_claim_keeps_none(store: Store, raw: Raw, clock: Clock) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.newer(request(owner, 7))
    with pytest.raises(ClaimLost):
        await tx.commit([Outcome(owner.id, owner.claim + 1, "complete")])
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "died")]) == 1
    assert await raw.count("guards") == await raw.count("guard_answers") == 0


@pytest.mark.parametrize("stale", [False, True])
async def test_after_the_handlers_own_commit(store: Store, raw: Raw, stale: bool) -> None:
    """A guard would be set without the handler's writes, and keep older events from making them."""
    newer, older = await several(store, 2)
    if stale:
        await ask(store, newer, 9)
    before = await raw.all("guards"), await raw.all("guard_answers")
    tx = store.transaction()
    await tx.tx.execute("SELECT 1")
    await tx.tx.execute("COMMIT")
    with pytest.raises(HandlerCommitted):
        await tx.newer(request(older, 7))
    await tx.rollback()
    assert (await raw.all("guards"), await raw.all("guard_answers")) == before


async def test_after_the_end(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    await tx.rollback()
    with pytest.raises(ClaimLost):
        await tx.newer(request(owner, 7))
    assert await raw.count("guards") == 0


async def test_a_stale_answer_that_was_rolled_back_is_recorded_with_the_outcome(store: Store, raw: Raw) -> None:
    newer, older = await several(store, 2)
    await ask(store, newer, 7, rank=LAST)
    tx = store.transaction()
    answer = await tx.newer(request(older, 7))
    await tx.rollback()
    assert await ties(raw) == 0
    tx = store.transaction()
    await tx.note_stale(answer)
    await tx.commit([way_out(older, "skip", reason=answer.words)])
    assert await answers(raw) == [("7", True, None, None), ("7", False, "rank", "7")]
    assert await ties(raw) == 1
    [noted] = (await history(store, older.id)).guards
    assert noted.answer.words == answer.words
    assert (await store.consistency.report()).imbalances == ()


# ── races ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first_commits", [True, False])
@pytest.mark.parametrize("versions", [(9, 7), (7, 9)])
async def test_two_transactions_ask_the_same(
    store: Store, open_store: OpenStore, raw: Raw, first_commits: bool, versions: tuple[int, int]
) -> None:
    """The second waits for the first, and sees what that applied; or nothing, if it rolled back."""
    other = await open_store()
    owners = await several(store, 2)
    first, second = store.transaction(), other.transaction()
    assert (await first.newer(request(owners[0], versions[0]))).applied
    waiting = asyncio.create_task(second.newer(request(owners[1], versions[1])))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    if first_commits:
        await first.commit([way_out(owners[0], "complete")])
    else:
        await first.rollback()
    answer = await waiting
    await second.commit([way_out(owners[1], "complete")])
    newer = versions[1] > versions[0]
    assert answer.applied == (newer or not first_commits)
    assert answer.other_version == (str(versions[0]) if first_commits else None)
    known = await guard(store)
    assert known is not None
    assert known.version == str(max(versions) if first_commits else versions[1])


async def test_a_second_transaction_waits_for_one_that_is_stale_too(store: Store, open_store: OpenStore) -> None:
    """A stale answer locks the guard as well: nothing can be applied between it and what the handler does then."""
    other = await open_store()
    owners = await several(store, 3)
    await ask(store, owners[0], 9)
    first, second = store.transaction(), other.transaction()
    assert not (await first.newer(request(owners[1], 8))).applied
    waiting = asyncio.create_task(second.newer(request(owners[2], 10)))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await first.commit([way_out(owners[1], "complete")])
    assert (await waiting).applied
    await second.commit([way_out(owners[2], "complete")])


async def test_many_race(store: Store, open_store: OpenStore, raw: Raw) -> None:
    """Whoever is first: what was applied last is the newest, and every loser saw a newer one."""
    stores = [store, await open_store()]
    owners = await several(store, 16)
    order: list[int] = []

    async def handle(n: int, owner: Claimed) -> GuardAnswer:
        version = n * 7 % 16
        tx = stores[n % 2].transaction()
        answer = await tx.newer(request(owner, version))
        await asyncio.sleep(0.002 * (n * 5 % 3))
        if answer.applied:
            order.append(version)  # the guard is locked until the commit
        await tx.commit([way_out(owner, "complete")])
        return answer

    given = await asyncio.gather(*(handle(n, owner) for n, owner in enumerate(owners)))
    assert order == sorted(order)
    assert order[-1] == 15
    for answer in given:
        assert answer.applied or int(answer.other_version or 0) > int(answer.version)
    assert await raw.count("guard_answers") == 16
    assert (await store.consistency.report()).imbalances == ()


# ── what no column can hold ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    "bad", [{"key": "lone \ud800"}, {"key": ""}, {"key": "x" * 256}, {"name": ""}, {"name": "x\udfff"}], ids=ascii
)
async def test_bad_data(store: Store, raw: Raw, bad: dict[str, str]) -> None:
    owner = await claimed(store)
    tx = store.transaction()
    good = request(owner, 7)
    with pytest.raises(BadData):
        await tx.newer(msgspec.structs.replace(good, **bad))
    await tx.rollback()
    assert await raw.count("guards") == 0
    assert (await ask(store, owner, 7)).applied


async def test_the_history_has_answers_and_guards(store: Store) -> None:
    newer, older = await several(store, 2)
    tx = store.transaction()
    await tx.newer(request(newer, 9))
    await tx.newer(request(newer, 4, "sub_2"))
    await tx.commit([way_out(newer, "complete")])
    await ask(store, older, 7)
    told = await history(store, newer.id)
    assert [(one.answer.key, one.answer.applied, one.answer.claim) for one in told.guards] == [
        (KEY, True, newer.claim),
        ("sub_2", True, newer.claim),
    ]
    assert all(one.answer.at and one.guard and one.guard.event_id == newer.id for one in told.guards)
    [late] = (await history(store, older.id)).guards
    assert late.answer.words == "stale for subscription sub_1: version 9 by evt_0 was applied, this is 7"
    assert late.guard == told.guards[0].guard
    assert (await event(store, older.id)).state is State.PROCESSED
