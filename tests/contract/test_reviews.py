"""Approve, reject, settle: each answers one review, once. An approval holds for the run that it began."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.ids import new_id
from hookledger.model import Claimed
from hookledger.states import State
from hookledger.store.ops.reviews import ANSWERS
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import KIND, LEASE, Raw, Way, claim, claimed, event, history, reach, recorded, settle
from tests.contract.conftest import OpenStore
from tests.contract.test_prune import DAY, prune

WHY = "account acct_1 is cancelled"
TABLES = ("events", "attempts", "actions", "effects")
Rows = list[tuple[Any, ...]]


async def whole(raw: Raw) -> list[Rows]:
    return [await raw.all(table) for table in TABLES]


async def reviewed(store: Store, key: str = "evt_1", why: str = WHY) -> Claimed:
    """An event whose first attempt asked for a review."""
    owner = await claimed(store, key)
    assert await settle(store, owner, "review", reason=why, error="Review: …")
    return owner


async def approved(store: Store, key: str = "evt_1") -> UUID:
    """One that an operator let pass, and that waits for a worker."""
    owner = await reviewed(store, key)
    await store.reviews.approve(owner.id, State.NEEDS_REVIEW, "ada", "she paid", seen=owner.claim + 1)
    return owner.id


async def answer(store: Store, name: str, event_id: UUID, actor: str = "ada", *, seen: int | None = None) -> None:
    row = await event(store, event_id)
    how = getattr(store.reviews, name)
    await how(event_id, State.NEEDS_REVIEW, actor, "because", seen=row.claim if seen is None else seen)


async def balanced(store: Store) -> None:
    assert (await store.consistency.report()).imbalances == ()


# ── what each does ───────────────────────────────────────────────────────────


# proves R70
async def test_approve_begins_a_run_that_has_the_approval(store: Store, raw: Raw, clock: Clock) -> None:
    owner = await reviewed(store)
    await raw.run(f"UPDATE events SET alert = 'look', crashes = 3, cause = 'c' WHERE id = {raw.ident(owner.id)}")
    clock.offset += 100
    before = await event(store, owner.id)
    assert await store.reviews.approve(owner.id, before.state, "ada", "she paid", seen=before.claim) == 2
    found = await history(store, owner.id)
    row = found.event
    assert (row.state, row.claim, row.run, row.attempts) == (State.PENDING, before.claim + 1, 2, 0)
    assert (row.reason, row.cause, row.alert, row.crashes) == (None, None, None, 2)
    [action] = found.actions
    assert (action.name, action.actor, action.reason) == ("approve", "ada", "she paid")
    assert (action.subject, action.replaced) == (f"run 2, review at claim {owner.claim}", WHY)
    assert (action.from_state, action.to_state) == (State.NEEDS_REVIEW, State.PENDING)
    [again] = await store.claim_alone("w", [KIND], LEASE)
    assert (again.run, again.attempts, again.approval_id, again.run_age < 60) == (2, 1, row.approval_id, True)
    assert row.approval_id is not None
    approval = await store.reviews.approval(row.approval_id)
    assert approval is not None
    assert (approval.by, approval.reason, approval.at) == ("ada", "she paid", action.at)
    await balanced(store)


async def test_reject_closes_it(store: Store, raw: Raw) -> None:
    owner = await reviewed(store)
    await raw.run(f"UPDATE events SET alert = 'look', attention = TRUE WHERE id = {raw.ident(owner.id)}")
    await store.reviews.reject(owner.id, State.NEEDS_REVIEW, "ada", "a test account", seen=owner.claim + 1)
    found = await history(store, owner.id)
    row = found.event
    assert (row.state, row.reason, row.alert, row.attention) == (State.DISCARDED, "a test account", None, True)
    assert (row.run, row.claim, row.finished_at is None, row.first_processed_at) == (1, owner.claim + 2, False, None)
    [action] = found.actions
    assert (action.name, action.subject, action.replaced) == ("reject", f"review at claim {owner.claim}", WHY)
    assert await store.claim("w", [KIND], 1, LEASE) == []
    await balanced(store)
    assert await store.replay(owner.id, State.DISCARDED, "ada", "after all") == 2, "and can be taken back"


async def test_settle_makes_it_processed_without_a_run(store: Store, raw: Raw) -> None:
    owner = await reviewed(store)
    await raw.run(f"UPDATE events SET alert = 'look', attention = TRUE WHERE id = {raw.ident(owner.id)}")
    await store.reviews.settle(owner.id, State.NEEDS_REVIEW, "ada", "refunded by hand", seen=owner.claim + 1)
    found = await history(store, owner.id)
    row = found.event
    assert (row.state, row.reason, row.alert) == (State.PROCESSED, "settled by hand: refunded by hand", None)
    assert (row.run, row.claim, row.result, row.error, row.cause) == (1, owner.claim + 2, None, None, None)
    assert (row.first_processed_at is None, row.finished_at is None) == (False, False)
    assert row.attention, "what is the matter with its effects still is"
    assert [attempt.outcome for attempt in found.attempts] == ["needs_review"], "no run"
    assert found.attempts[0].error == "Review: …", "the evidence stays"
    [action] = found.actions
    assert (action.name, action.subject, action.replaced) == ("settle", f"review at claim {owner.claim}", WHY)
    assert (action.from_state, action.to_state) == (State.NEEDS_REVIEW, State.PROCESSED)
    await balanced(store)
    await store.replay(owner.id, State.PROCESSED, "ada", "after all")
    assert await settle(store, await claim(store), "complete")
    await balanced(store)
    assert (await event(store, owner.id)).first_processed_at == row.first_processed_at


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_review_at_intake_can_be_answered(store: Store, name: str) -> None:
    ident = await recorded(store, review="older than the horizon")
    await answer(store, name, ident)
    found = await history(store, ident)
    [action] = found.actions
    run = "run 2, " if name == "approve" else ""
    assert (action.subject, action.replaced) == (f"{run}review at intake", "older than the horizon")
    await balanced(store)
    if name == "approve":
        assert (await claim(store)).approval_id == found.event.approval_id is not None


async def test_a_long_reason_is_kept_whole_in_the_audit_log(store: Store) -> None:
    for name in ANSWERS:
        owner = await reviewed(store, name)
        reason = "x" * 2000
        await getattr(store.reviews, name)(owner.id, State.NEEDS_REVIEW, "ada", reason, seen=owner.claim + 1)
        found = await history(store, owner.id)
        assert found.actions[0].reason == reason
        assert len(found.event.reason or "") == (0 if name == "approve" else 500)
        if name == "approve":
            assert await settle(store, await claim(store), "skip")


async def test_what_is_no_approval_is_none(store: Store, raw: Raw) -> None:
    owner = await reviewed(store)
    await store.reviews.reject(owner.id, State.NEEDS_REVIEW, "ada", "no", seen=owner.claim + 1)
    [(rejected,)] = await raw.run("SELECT id FROM actions")
    other = rejected if isinstance(rejected, UUID) else UUID(bytes=rejected)
    assert await store.reviews.approval(other) is None
    assert await store.reviews.approval(new_id()) is None


# ── how long an approval holds ───────────────────────────────────────────────


async def test_an_approval_holds_through_the_run(store: Store, clock: Clock) -> None:
    """Whatever brings the event back to a worker within the run: retries, waits, releases, crashes, "retry now"."""
    ident = await approved(store)
    approval = (await event(store, ident)).approval_id
    for way in ("reschedule", "wait", "release"):
        owner = await claim(store)
        assert owner.approval_id == approval is not None
        assert await settle(store, owner, way)
        assert (await event(store, ident)).approval_id == approval
    owner = await claim(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(ident, owner.claim, 0.0, "died")]) == 1
    assert (await event(store, ident)).approval_id == approval
    await store.retry(ident, State.RETRYING, "bob", "now")
    owner = await claim(store)
    assert (owner.approval_id, owner.run) == (approval, 2)
    await balanced(store)
    assert await settle(store, owner, "complete")
    assert (await event(store, ident)).approval_id is None
    await balanced(store)


ENDS: tuple[Way, ...] = ("complete", "skip", "fail", "review")


@pytest.mark.parametrize("way", ENDS)
async def test_no_run_inherits_an_approval(store: Store, way: Way) -> None:
    """Neither the retry of a run that is over, nor a replay."""
    ident = await approved(store)
    assert await settle(store, await claim(store), way)
    row = await event(store, ident)
    assert row.approval_id is None
    if way in ("fail", "review"):
        await store.retry(ident, row.state, "bob", "again")
        owner = await claim(store)
        assert (owner.run, owner.approval_id) == (2, None)
        assert await settle(store, owner, "complete")
        row = await event(store, ident)
    await store.replay(ident, row.state, "bob", "again")
    owner = await claim(store)
    assert (owner.run, owner.approval_id) == (3, None)
    await balanced(store)


async def test_other_ends_of_an_approval(store: Store, clock: Clock) -> None:
    dead = await approved(store, "dead")
    owner = await claim(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(dead, owner.claim, None, "died")]) == 1
    closed = await approved(store, "closed")
    await store.discard(closed, State.PENDING, "bob", "never mind")
    unhandled = await approved(store, "unhandled")
    clock.offset += 100
    assert await store.skip_unhandled(KIND, 1.0, 5) == 1
    for ident, state in ((dead, State.FAILED), (closed, State.DISCARDED), (unhandled, State.SKIPPED)):
        row = await event(store, ident)
        assert (row.state, row.approval_id) == (state, None)
    await balanced(store)


async def test_another_review_needs_another_approval(store: Store) -> None:
    ident = await approved(store)
    first = (await event(store, ident)).approval_id
    assert await settle(store, await claim(store), "review", reason="and the card is stolen")
    await answer(store, "approve", ident, "bob")
    owner = await claim(store)
    assert (owner.run, owner.approval_id not in (None, first)) == (3, True)
    assert owner.approval_id is not None
    approval = await store.reviews.approval(owner.approval_id)
    assert (approval and approval.by) == "bob"
    assert [a.replaced for a in (await history(store, ident)).actions] == [WHY, "and the card is stolen"]
    await balanced(store)


async def test_a_late_worker_of_an_approved_run_changes_nothing(store: Store, clock: Clock, raw: Raw) -> None:
    ident = await approved(store)
    frozen = await claim(store)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(ident, frozen.claim, 0.0, "died")]) == 1
    owner = await claim(store, worker="worker-2")
    assert owner.approval_id == frozen.approval_id is not None
    before = await whole(raw)
    for way in (*ENDS, "release"):
        assert not await settle(store, frozen, way)
    assert await whole(raw) == before
    assert await settle(store, owner, "complete")
    assert not await settle(store, frozen, "complete")
    assert [a.outcome for a in (await history(store, ident)).attempts] == ["needs_review", "crashed", "processed"]


async def test_what_was_answered_is_pruned(store: Store, clock: Clock) -> None:
    """An approved run that waits is not; what operators did stays in the audit log."""
    for name in ("reject", "settle"):
        await answer(store, name, (await reviewed(store, name)).id)
    open_run = await approved(store, "approve")
    clock.offset += 10 * DAY
    assert (await prune(store, clock, events=DAY)).events == 2
    assert [row.id for row in await store.search.events()] == [open_run]
    names = [action.name for action in (await store.audit.page()).actions]
    assert sorted(names) == ["approve", "prune", "reject", "settle"]
    await balanced(store)
    assert (await claim(store)).approval_id is not None


async def test_one_of_two_workers_gets_the_approved_run(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    await approved(store)
    taken = await asyncio.gather(*(stores[n % 2].claim(f"w{n}", [KIND], 5, LEASE) for n in range(8)))
    [owner] = [one for found in taken for one in found]
    assert owner.approval_id is not None


# ── who decides about which review ───────────────────────────────────────────


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_review_that_came_in_between_is_not_answered(store: Store, raw: Raw, name: str) -> None:
    """The operator saw one reason; the event has another one now, in the same state."""
    owner = await reviewed(store)
    seen = (await event(store, owner.id)).claim
    await store.retry(owner.id, State.NEEDS_REVIEW, "bob", "perhaps it works now")
    again = await claim(store)
    assert await settle(store, again, "review", reason="the card is stolen")
    before = await whole(raw)
    with pytest.raises(WrongState) as told:
        await answer(store, name, owner.id, seen=seen)
    for words in (
        "is needs_review again now",
        "retry by bob",
        f"review now, at claim {again.claim}: the card is stolen",
    ):
        assert words in str(told.value)
    assert await whole(raw) == before


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_given_once(store: Store, raw: Raw, name: str) -> None:
    owner = await reviewed(store)
    await answer(store, name, owner.id)
    before = await whole(raw)
    for other in ANSWERS:
        with pytest.raises(WrongState, match=rf"no longer needs_review.*{name} by ada .*\(because\)"):
            await answer(store, other, owner.id, "bob", seen=owner.claim + 1)
    assert await whole(raw) == before


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("state", sorted(set(State) - {State.NEEDS_REVIEW}))
async def test_only_what_is_in_review_can_be_answered(store: Store, raw: Raw, state: State, name: str) -> None:
    row = await reach(store, state, KIND)
    before = await whole(raw)
    with pytest.raises(WrongState, match=f"is {state}: only needs_review can be {name.rstrip('e')}e?d"):
        await getattr(store.reviews, name)(row.id, state, "ada", "because", seen=row.claim)
    with pytest.raises(WrongState, match=f"is {state} now"):
        await getattr(store.reviews, name)(row.id, State.NEEDS_REVIEW, "ada", "because", seen=row.claim)
    assert await whole(raw) == before


async def test_an_event_that_is_not_there(store: Store) -> None:
    with pytest.raises(WrongState, match="there is no event"):
        await store.reviews.approve(new_id(), State.NEEDS_REVIEW, "ada", "because", seen=2)


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_needs_an_actor_and_a_reason(store: Store, raw: Raw, name: str) -> None:
    owner = await reviewed(store)
    before = await whole(raw)
    for actor, reason in (("", "why"), ("ada", ""), ("ada", "\ud800")):
        with pytest.raises(BadData):
            how = getattr(store.reviews, name)
            await how(owner.id, State.NEEDS_REVIEW, actor, reason, seen=owner.claim + 1)
    assert await whole(raw) == before


async def test_of_racing_operators_one_decides(store: Store, open_store: OpenStore) -> None:
    """Approve, reject, settle, retry, replay and discard at the same moment: one transition, one audit log entry."""
    stores = [store, await open_store()]
    for number in range(4):
        owner = await reviewed(store, f"evt_{number}")
        seen = owner.claim + 1

        async def act(n: int, ident: UUID = owner.id, seen: int = seen) -> None:
            used, by = stores[n % 2], (State.NEEDS_REVIEW, f"op{n}", "now")
            if n < 6:
                await getattr(used.reviews, ANSWERS[n % 3])(ident, *by, seen=seen)
            else:
                await getattr(used, ("retry", "replay", "discard")[n % 3])(ident, *by, seen=seen)

        results = await asyncio.gather(*map(act, range(9)), return_exceptions=True)
        [action] = (await history(store, owner.id)).actions
        losers = [result for result in results if isinstance(result, WrongState)]
        assert len(losers) == 8, results
        assert all(f"{action.name} by {action.actor}" in str(loser) for loser in losers)
        row = await event(store, owner.id)
        assert (row.approval_id is not None) is (action.name == "approve")
        assert row.run == 1 + (action.name in ("approve", "replay"))
        for taken in await store.claim("w", [KIND], 1, LEASE):
            assert await settle(store, taken, "complete")
    await balanced(store)


async def test_an_operator_races_the_next_review(store: Store, open_store: OpenStore) -> None:
    """A retried event comes into review again while an operator approves the review before: never the new one."""
    other = await open_store()
    for number in range(10):
        owner = await reviewed(store, f"evt_{number}")
        seen = owner.claim + 1
        await store.retry(owner.id, State.NEEDS_REVIEW, "bob", "again")
        again = await claim(store)
        settled, approve = await asyncio.gather(
            settle(store, again, "review", reason="another"),
            other.reviews.approve(owner.id, State.NEEDS_REVIEW, "ada", "she paid", seen=seen),
            return_exceptions=True,
        )
        assert (settled, isinstance(approve, WrongState)) == (True, True)
        assert (await event(store, owner.id)).state is State.NEEDS_REVIEW
