"""Answers: recorded and claimed in one commit, kept with the outcome, found again by each delivery after it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec.structs import replace

from hookledger.clock import Clock, Seconds
from hookledger.errors import ClaimLost, Unavailable
from hookledger.model import Arrival, Claimed, StoredAnswer
from hookledger.operate.retention.prune import Pruner
from hookledger.operate.retention.settings import Limits, RetentionSettings
from hookledger.receive.claiming import Claiming
from hookledger.states import DeliveryOutcome, State
from hookledger.store.ops.answers import AnswerState, Claim
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import (
    KIND,
    LEASE,
    SOURCE,
    TYPE,
    WORKER,
    Raw,
    arrival,
    claim,
    delivered,
    event,
    history,
    item,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore

ANSWER = StoredAnswer(200, b"content-type: text/plain", b"on it \x00\xff")


async def take(store: Store, key: str = "evt_1", body: bytes = b"{}", *, worker: str = WORKER) -> Claim:
    [found] = await claim_first(store, delivered(key, body), worker=worker)
    return found


def claiming(store: Store, worker: str = WORKER) -> Claiming:
    return Claiming(store, worker, LEASE, begun=lambda _: False, settle=lambda way: store.settle([way]))


async def claim_first(store: Store, *arrivals: Arrival, worker: str = WORKER) -> list[Claim]:
    """As a process that answers does."""
    found = await claiming(store, worker)(arrivals)
    return [one for one in found if isinstance(one, Claim)]


async def mine(store: Store, key: str = "evt_1") -> Claimed:
    claimed = (await take(store, key)).claimed
    assert claimed is not None
    return claimed


async def state_of(store: Store, owner: Claimed) -> AnswerState:
    return (await store.answers.find([owner.id]))[owner.id]


async def check(store: Store) -> None:
    assert (await store.consistency.report()).imbalances == ()


def kept(known: AnswerState | None) -> tuple[int, bytes, bytes] | None:
    answer = None if known is None else known.answer
    return None if answer is None else (answer.status, answer.headers, answer.body)


AS_KEPT = (ANSWER.status, ANSWER.headers, ANSWER.body)


# ── recorded and claimed ──


async def test_a_new_event_is_recorded_and_claimed_in_one_commit(store: Store) -> None:
    found = await take(store)
    assert found.recorded.outcome is DeliveryOutcome.ACCEPTED
    assert found.known is None
    assert found.claimed is not None
    row = await event(store, found.recorded.event_id)
    assert (row.state, row.claim, row.attempts, row.worker) == (State.PROCESSING, 1, 1, WORKER)
    assert (found.claimed.claim, found.claimed.body, found.claimed.run) == (1, b"{}", 1)
    assert await store.claim("another", [KIND], 1, LEASE) == []
    await check(store)


@pytest.mark.parametrize("unsigned", [False, True], ids=["the short way", "the long way"])
async def test_the_claim_shows_what_a_worker_would_see(store: Store, unsigned: bool) -> None:
    given: dict[str, Any] = {
        "provider_id": "evt_1",
        "object_id": "in_1",
        "occurred_at": 1_700_000_000.123457,
        "entity": "cus_1",
        "version": "2026-01",
    }
    body = b'{"n": 1}\xff'
    sent = arrival(
        item("evt_1", body, unsigned=unsigned, **given), body=body, query=b"a=1", headers=((b"x-a", b"1"),)
    )
    [found] = await claim_first(store, sent)
    assert found.claimed is not None
    assert await settle(store, found.claimed, "release")
    [again] = await store.claim(WORKER, [found.claimed.kind], 1, LEASE)
    assert again.claim == 3
    assert again.run_age >= 0.0
    assert replace(again, claim=1, run_age=0.0) == replace(found.claimed, run_age=0.0)
    row = await event(store, again.id)
    assert (row.claimed_at, row.worker) != (None, None)
    await check(store)


async def test_new_events_keep_their_claims_if_the_others_fail(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_: object) -> Any:
        raise Unavailable("no database")

    await take(store, "evt_known")
    monkeypatch.setattr(store, "record_claimed", down)
    asked = claiming(store)
    new, known = await asked([delivered("evt_new"), delivered("evt_known")])
    await asked.close()
    assert isinstance(known, Unavailable)
    rows = {row.key: row.state for row in await store.search.events()}
    if isinstance(new, Claim):
        assert new.claimed is not None
        assert rows == {"evt_new": State.PROCESSING, "evt_known": State.PROCESSING}
    else:  # recorded together, or not at all
        assert isinstance(new, Unavailable)
        assert rows == {"evt_known": State.PROCESSING}


async def test_deliveries_of_one_batch_give_the_claim_to_the_first(store: Store) -> None:
    batch = [delivered("evt_1"), delivered("evt_1"), delivered("evt_2"), delivered("evt_1", b"other")]
    first, second, third, other = await claim_first(store, *batch)
    assert first.claimed is not None
    assert third.claimed is not None
    assert (second.claimed, other.claimed) == (None, None)
    assert second.known is not None
    assert (second.known.id, second.known.state) == (first.claimed.id, State.PROCESSING)
    assert [one.recorded.outcome for one in (second, other)] == [DeliveryOutcome.DUPLICATE, DeliveryOutcome.CONFLICT]
    await check(store)


async def test_one_of_many_concurrent_deliveries_gets_the_claim(open_store: OpenStore) -> None:
    stores = [await open_store(), await open_store()]
    found = await asyncio.gather(*(take(stores[n % 2], worker=f"w{n % 2}") for n in range(20)))
    owners = [one.claimed for one in found if one.claimed is not None]
    assert len(owners) == 1
    assert {one.recorded.event_id for one in found} == {owners[0].id}
    assert all(one.known is not None and one.known.state is State.PROCESSING for one in found if one.claimed is None)
    await check(stores[0])


async def test_what_is_paused_is_recorded_and_left_to_workers(store: Store) -> None:
    await store.pauses.pause(SOURCE, TYPE, "ada", "incident")
    found = await take(store)
    assert found.recorded.outcome is DeliveryOutcome.ACCEPTED
    assert found.claimed is None
    assert found.known is not None
    assert (found.known.state, found.known.claim) == (State.PENDING, 0)
    assert await store.claim_seen(found.recorded.event_id, 0, WORKER, LEASE) is None
    await store.pauses.resume(SOURCE, TYPE, "ada", "over")
    assert await store.claim_seen(found.recorded.event_id, 0, WORKER, LEASE) is not None


async def test_what_is_ordered_is_recorded_and_left_to_workers(store: Store) -> None:
    [found] = await claim_first(store, arrival(item(ordered=True, entity="cus_1")))
    assert (found.recorded.outcome, found.claimed) == (DeliveryOutcome.ACCEPTED, None)
    assert found.known is not None
    assert (found.known.state, found.known.claim, found.known.attempts) == (State.PENDING, 0, 0)


@pytest.mark.parametrize(("fact", "state"), [("invalid", State.FAILED), ("skip", State.SKIPPED)])
async def test_what_is_not_pending_is_not_claimed(store: Store, fact: str, state: State) -> None:
    given: dict[str, Any] = {fact: "no"}
    [found] = await claim_first(store, arrival(item(**given)))
    assert found.claimed is None
    assert found.known is not None
    assert found.known.state is state


# ── claiming one event ──


async def test_one_chosen_event_is_claimed_before_it_is_due(store: Store) -> None:
    owner = await mine(store)
    assert await settle(store, owner, "reschedule", due_in=3600)
    seen = await state_of(store, owner)
    assert (seen.state, seen.claim) == (State.RETRYING, 2)
    again = await store.claim_seen(owner.id, seen.claim, "other", LEASE)
    assert again is not None
    assert (again.claim, again.attempts, again.run) == (3, 2, 1)
    assert (await event(store, owner.id)).worker == "other"


async def test_a_claim_number_that_was_seen_before_another_claim_wins_nothing(store: Store) -> None:
    ident = await recorded(store)
    seen = (await store.answers.find([ident]))[ident].claim
    by_worker = await claim(store)
    assert await store.claim_seen(ident, seen, "other", LEASE) is None
    assert await settle(store, by_worker, "reschedule")
    assert await store.claim_seen(ident, seen, "other", LEASE) is None
    assert await store.claim_seen(ident, by_worker.claim, "other", LEASE) is None


async def test_of_concurrent_claims_of_one_event_one_wins(open_store: OpenStore) -> None:
    stores = [await open_store(), await open_store()]
    ident = await recorded(stores[0])

    async def by_worker(store: Store) -> list[Claimed]:
        return await store.claim("worker", [KIND], 1, LEASE)

    async def by_delivery(store: Store) -> list[Claimed]:
        found = await store.claim_seen(ident, 0, "receiver", LEASE)
        return [] if found is None else [found]

    tries = [by_worker(stores[n % 2]) if n % 3 else by_delivery(stores[n % 2]) for n in range(12)]
    assert sum(map(len, await asyncio.gather(*tries))) == 1


async def test_an_event_that_crashed_twice_is_left_to_workers(store: Store, clock: Clock) -> None:
    owner = await mine(store)
    for crashes in (1, 2):
        clock.offset += LEASE + 1
        seen = await state_of(store, owner)
        assert (seen.expired, seen.crashes) == (True, crashes - 1)
        assert await store.reclaim([Reclaim(owner.id, seen.claim, 0.0, "it died")]) == 1
        again = await store.claim_seen(owner.id, seen.claim + 1, WORKER, LEASE)
        assert (again is None) == (crashes == 2)


async def test_a_lease_that_ended_is_seen(store: Store, clock: Clock) -> None:
    owner = await mine(store)
    seen = await state_of(store, owner)
    assert seen.lease_left is not None
    assert (0 < seen.lease_left <= LEASE, seen.expired, seen.worker) == (True, False, WORKER)
    clock.offset += LEASE + 1
    assert (await state_of(store, owner)).expired


# ── the answer ──


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_the_answer_commits_with_the_outcome(store: Store, in_transaction: bool) -> None:
    owner = await mine(store)
    way = way_out(owner, "complete", answer=ANSWER)
    if in_transaction:
        transaction = store.transaction()
        await transaction.tx.execute("SELECT 1")
        await transaction.commit([way])
    else:
        assert await store.settle([way]) == {owner.id}
    again = await take(store)
    assert again.recorded.outcome is DeliveryOutcome.DUPLICATE
    assert again.claimed is None
    assert again.known is not None
    assert again.known.state is State.PROCESSED
    assert kept(again.known) == AS_KEPT
    assert kept(await state_of(store, owner)) == AS_KEPT
    await check(store)


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_an_owner_that_lost_its_claim_leaves_no_answer(
    store: Store, clock: Clock, raw: Raw, in_transaction: bool
) -> None:
    owner = await mine(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "it died")]) == 1
    late = way_out(owner, "complete", answer=ANSWER)
    if in_transaction:
        transaction = store.transaction()
        await transaction.tx.execute("SELECT 1")
        with pytest.raises(ClaimLost):
            await transaction.commit([late])
    else:
        assert await store.settle([late]) == set()
    assert await raw.count("answers") == 0


@pytest.mark.parametrize("in_transaction", [True, False])
@pytest.mark.parametrize("lost", [False, True])
async def test_answer_and_stages_commit_together(
    store: Store, clock: Clock, raw: Raw, in_transaction: bool, lost: bool
) -> None:
    """Both, or neither of them."""
    owner = await mine(store)
    if lost:
        clock.offset += LEASE + 1
        assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "it died")]) == 1
    way = way_out(owner, "complete", answer=ANSWER, stages=("finance", "provision"))
    if in_transaction:
        transaction = store.transaction()
        await transaction.tx.execute("SELECT 1")
        with pytest.raises(ClaimLost) if lost else nullcontext():
            await transaction.commit([way])
    else:
        assert await store.settle([way]) == (set() if lost else {owner.id})
    stages = {row.stage: row.state for row in (await history(store, owner.id)).stages}
    assert stages == ({} if lost else dict.fromkeys(("finance", "provision"), State.PENDING))
    assert await raw.count("answers") == (0 if lost else 1)
    await check(store)


@pytest.mark.parametrize("unsigned", [False, True], ids=["the short way", "the long way"])
async def test_an_ordered_event_is_recorded_and_waits_for_its_turn(store: Store, unsigned: bool) -> None:
    """However it came to a handler that answers: nothing but its turn may start it."""
    facts: dict[str, Any] = {"entity": "sub_1", "ordered": True, "unsigned": unsigned}
    first, second = [
        (await claim_first(store, delivered(key, key.encode(), **facts, order_at=at)))[0]
        for key, at in (("evt_2", 2.0), ("evt_1", 1.0))
    ]
    assert (first.claimed, second.claimed) == (None, None)
    assert await store.claim_seen(first.recorded.event_id, 0, WORKER, LEASE) is None
    await store.entities.place_all()
    assert await store.claim_seen(first.recorded.event_id, 0, WORKER, LEASE) is None, "the other is earlier"
    assert await store.claim_seen(second.recorded.event_id, 0, WORKER, LEASE) is not None
    await check(store)


async def test_answers_of_many_events_commit_together(store: Store) -> None:
    owners = [await mine(store, f"evt_{n}") for n in range(5)]
    answers = [StoredAnswer(200 + n, b"", f"answer {n}".encode()) for n in range(5)]
    lost = way_out(owners[0], "complete", answer=ANSWER)
    ways = [way_out(owner, "complete", answer=answer) for owner, answer in zip(owners, answers, strict=True)]
    assert await store.settle(ways) == {owner.id for owner in owners}
    assert await store.settle([lost]) == set()
    for owner, answer in zip(owners, answers, strict=True):
        assert kept(await state_of(store, owner)) == (answer.status, answer.headers, answer.body)


async def test_the_answer_of_a_replay_does_not_replace_the_one_that_was_sent(store: Store, clock: Clock) -> None:
    owner = await mine(store)
    assert await settle(store, owner, "complete", answer=ANSWER)
    await store.replay(owner.id, State.PROCESSED, "ada", "again")
    assert kept(await state_of(store, owner)) == AS_KEPT
    second = await claim(store)
    other = StoredAnswer(201, b"", b"second")
    assert await settle(store, second, "complete", answer=other)
    assert kept(await state_of(store, owner)) == AS_KEPT
    clock.offset += ANSWER.keep + 1
    await store.replay(owner.id, State.PROCESSED, "ada", "again")
    assert await settle(store, await claim(store), "complete", answer=other)
    assert kept(await state_of(store, owner)) == (201, b"", b"second")


async def test_an_answer_expires_and_is_pruned_in_batches(store: Store, clock: Clock, raw: Raw) -> None:
    owners = [await mine(store, f"evt_{n}") for n in range(3)]
    for owner in owners:
        assert await settle(store, owner, "complete", answer=ANSWER)
    assert await store.answers.prune() == 0
    clock.offset += ANSWER.keep + 1
    seen = await state_of(store, owners[0])
    assert (seen.state, seen.answer) == (State.PROCESSED, None)
    shown = await store.answers.of_event(owners[0].id)
    assert shown is not None
    assert (shown.body, shown.expired, shown.run) == (ANSWER.body, True, 1)
    assert [await store.answers.prune(2), await store.answers.prune(2)] == [2, 1]
    assert await raw.count("answers") == 0


async def test_an_event_is_not_pruned_before_its_answer_expires(store: Store, clock: Clock, raw: Raw) -> None:
    """Retention may be shorter than a provider retries."""
    owners = {keep: await mine(store, f"evt_{keep}") for keep in (3, 5)}
    for keep, owner in owners.items():
        answer = StoredAnswer(200, b"", b"", keep=keep * 86400.0)
        assert await settle(store, owner, "complete", answer=answer)
    settings, kept_for = RetentionSettings(batch_delay=Seconds(0)), Limits(events=86400.0)
    left = []
    for _ in range(3):
        clock.offset += 86400 * 2
        await Pruner(store, settings, {}, kept_for, clock, WORKER).round(from_start=True)
        left.append((await raw.count("events"), await raw.count("answers")))
    assert left == [(2, 2), (1, 1), (0, 0)]


async def test_an_erased_event_has_no_answer(store: Store) -> None:
    owner, other = await mine(store), await mine(store, "evt_2")
    for one in (owner, other):
        assert await settle(store, one, "complete", answer=ANSWER)
    seen = await state_of(store, owner)
    await store.erasure.erase(owner.id, seen.state, seen.claim, "ada", "they asked")
    assert (await state_of(store, owner)).answer is None
    assert kept(await state_of(store, other)) == AS_KEPT


async def test_the_database_says_what_time_it_is(store: Store, clock: Clock) -> None:
    before = await store.answers.present()
    clock.offset += 3600
    assert 3599 < (await store.answers.present() - before).total_seconds() < 3660


async def test_an_event_that_is_gone_has_no_state(store: Store) -> None:
    owner = await mine(store)
    assert set(await store.answers.find([owner.id, delivered().id])) == {owner.id}


async def test_plain_recording_knows_the_event_too(store: Store) -> None:
    owner = await mine(store)
    [plain] = await record(store, delivered())
    assert (plain.outcome, plain.event_id, plain.state) == (DeliveryOutcome.DUPLICATE, owner.id, State.PROCESSING)
