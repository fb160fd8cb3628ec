"""Alerts to people in the store: what a look finds, one message for a topic and window, and who sends it."""

from __future__ import annotations

import asyncio

import pytest

from hookledger.clock import Clock
from hookledger.model import Outcome
from hookledger.states import CallOutcome, EffectState, State
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Message, MessageState, Sight, Watch
from hookledger.store.protocol import Store
from tests import ledger
from tests.builders import (
    KIND,
    SOURCE,
    TYPE,
    WORKER,
    Raw,
    claim,
    claimed,
    delivered,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore

EVERY = frozenset(kind.value for kind in AlertKind)
WATCH = Watch("ops", EVERY, window=600.0, topics=10, unproved=("signature_mismatch",), signature_failures=5)


async def look(store: Store, watch: Watch = WATCH) -> list[Message]:
    """Look as a sender does; every message there is, the oldest first."""
    if await store.alert_looks.anything(watch):
        await store.alert_looks.look(watch)
    return (await store.alert_messages.page(limit=500))[::-1]


async def fail(store: Store, number: int, *, reason: str = "TypeError: no plan", prefix: str = "evt") -> None:
    await record(store, *(delivered(f"{prefix}_{n}", b"%d" % n) for n in range(number)))
    while owners := await store.claim(WORKER, [KIND], 1000, 60.0):
        await store.settle([way_out(owner, "fail", reason=reason) for owner in owners])


async def send(store: Store, watch: Watch = WATCH) -> list[Message]:
    """Take everything that is due, and say that it was sent."""
    taken = await store.alert_messages.take(watch.target, WORKER, 60.0, 100)
    for message in taken:
        assert await store.alert_messages.sent(message)
    return taken


# ── each kind ──


async def _new_cause(store: Store, clock: Clock) -> None:
    await settle(store, await claimed(store), "reschedule", reason="TypeError: no plan", due_in=3600.0)


async def _dead_letter(store: Store, clock: Clock) -> None:
    await settle(store, await claimed(store), "fail")


async def _needs_review(store: Store, clock: Clock) -> None:
    await settle(store, await claimed(store), "review")


async def _unknown_effect(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await ledger.reach(store, clock, owner, EffectState.UNKNOWN, ledger.CALL)
    await settle(store, owner, "complete")


async def _failed_effect(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await ledger.reach(store, clock, owner, EffectState.FAILED, ledger.LATER)
    await settle(store, owner, "complete")


async def _contradiction(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    effect = await ledger.reach(store, clock, owner, EffectState.UNKNOWN, ledger.CALL)
    await settle(store, owner, "complete")
    await store.ledger.resolve(effect, "did_not_happen", None, "ada", "their support says so")
    await ledger.finish(store, effect.identity, 1, CallOutcome.DONE)


async def _conflict(store: Store, clock: Clock) -> None:
    await recorded(store, "evt_1", b"one")
    await record(store, delivered("evt_1", b"another"))


async def _redelivery(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    assert await store.alerts.alert(owner.id, "delivered 4 times, and its handler still fails")
    await store.settle([Outcome(owner.id, owner.claim, "release")])


async def _circuit_open(store: Store, clock: Clock) -> None:
    for _ in range(3):
        await store.circuits.fail("bank", 3, 60.0, "ConnectError")


async def _no_worker(store: Store, clock: Clock) -> None:
    await recorded(store)
    clock.offset += 61


async def _signature_failures(store: Store, clock: Clock) -> None:
    await store.rejections.add([], {(SOURCE, "signature_mismatch"): 5}, most=1, most_bytes=1)


async def _consistency(store: Store, clock: Clock) -> None:
    await store.alert_looks.raise_(AlertKind.CONSISTENCY, "events", "3 rows do not add up")


PROVOKED = {
    AlertKind.NEW_CAUSE: _new_cause,
    AlertKind.DEAD_LETTER: _dead_letter,
    AlertKind.NEEDS_REVIEW: _needs_review,
    AlertKind.UNKNOWN_EFFECT: _unknown_effect,
    AlertKind.FAILED_EFFECT: _failed_effect,
    AlertKind.CONTRADICTION: _contradiction,
    AlertKind.CONFLICT: _conflict,
    AlertKind.REDELIVERY: _redelivery,
    AlertKind.CIRCUIT_OPEN: _circuit_open,
    AlertKind.NO_WORKER: _no_worker,
    AlertKind.SIGNATURE_FAILURES: _signature_failures,
    AlertKind.CONSISTENCY: _consistency,
}


def test_every_kind_is_provoked() -> None:
    """But that which the settings tell: a path test provokes it."""
    assert {*PROVOKED, AlertKind.SECRET_EXPIRY} == {*AlertKind}


@pytest.mark.parametrize("kind", PROVOKED, ids=str)
async def test_each_kind_is_told_once(store: Store, open_store: OpenStore, clock: Clock, kind: AlertKind) -> None:
    other = await open_store()
    watch = Watch("ops", frozenset({kind}), unproved=("signature_mismatch",), signature_failures=5)
    assert await look(store, watch) == []
    await PROVOKED[kind](store, clock)
    await asyncio.gather(*(one.alert_looks.look(watch) for one in (store, other, store, other)))
    [message] = await look(other, watch)
    assert (message.kind, message.state, message.target) == (kind, "waiting", "ops")
    assert message.count == (5 if kind is AlertKind.SIGNATURE_FAILURES else 1)
    assert not await store.alert_looks.anything(watch), "what was told is not told again, and nothing is written"


async def test_a_kind_that_a_target_does_not_want_is_not_looked_for(store: Store) -> None:
    await fail(store, 1)
    assert await look(store, Watch("ops", frozenset({AlertKind.NO_WORKER}))) == []


async def test_a_dead_letter_of_a_new_cause_is_one_message(store: Store) -> None:
    await look(store)
    await fail(store, 1)
    [message] = await look(store)
    assert message.kind == AlertKind.DEAD_LETTER


async def test_a_handler_that_waits_is_no_failure(store: Store) -> None:
    await look(store)
    await settle(store, await claimed(store), "wait", reason="the invoice is not here yet", due_in=60.0)
    assert await look(store) == []


async def test_no_payload_is_in_a_message(store: Store) -> None:
    await look(store)
    await fail(store, 1, reason="ValueError: ada@example.test owes a lot in pay at shop.py:7")
    [message] = await look(store)
    assert "ada" not in repr(message)
    assert "owes" not in repr(message)
    assert "ValueError" in message.subject


# ── one message for a window ──


async def test_500_failures_are_one_message(store: Store, clock: Clock) -> None:
    await look(store)
    await fail(store, 500)
    [message] = await look(store)
    assert (message.count, message.kind, message.follows) == (500, "dead_letter", False)
    assert len(await send(store)) == 1
    await fail(store, 3, prefix="more")
    assert [one.count for one in await look(store)] == [500, 3]
    await fail(store, 2, prefix="even_more")
    assert [(one.count, one.follows) for one in await look(store)] == [(500, False), (5, True)]
    assert await send(store) == [], "the next window has not begun"
    clock.offset += 601
    [later] = await send(store)
    assert (later.count, later.follows) == (5, True)
    clock.offset += 1300
    await fail(store, 1, prefix="later")
    assert [(one.count, one.follows) for one in await look(store)][2:] == [(1, False)]


async def test_failures_before_it_is_sent_are_counted_in_it(store: Store) -> None:
    await look(store)
    await fail(store, 2)
    await look(store)
    await fail(store, 3, prefix="more")
    [message] = await look(store)
    assert message.count == 5


async def test_a_message_that_is_being_sent_is_not_changed(store: Store) -> None:
    await look(store)
    await fail(store, 2)
    await look(store)
    [taken] = await store.alert_messages.take("ops", WORKER, 60.0, 1)
    await fail(store, 3, prefix="more")
    first, second = await look(store)
    assert (first.id, first.count, second.count, second.follows) == (taken.id, 2, 3, True)


async def test_a_flood_of_causes_is_limited(store: Store) -> None:
    await look(store)
    for number in range(47):
        await fail(store, 1, reason=f"Error{'abcdefghij'[number // 10]}{'abcdefghij'[number % 10]}Error: x",
                   prefix=f"c{number}")  # fmt: skip
    messages = await look(store)
    assert len(messages) == 11
    [rest] = [one for one in messages if not one.topic]
    assert (rest.more_topics, rest.count) == (37, 37)
    assert sum(one.count for one in messages) == 47


async def test_signature_failures_below_the_threshold_are_silent(store: Store, clock: Clock) -> None:
    watch = Watch("ops", frozenset({AlertKind.SIGNATURE_FAILURES}), unproved=("signature_mismatch",),
                  signature_failures=5)  # fmt: skip
    await store.rejections.add([], {(SOURCE, "signature_mismatch"): 100}, most=1, most_bytes=1)
    assert await look(store, watch) == [], "what was before the first look is not news"
    for _ in range(4):  # four in each window
        await store.rejections.add([], {(SOURCE, "signature_mismatch"): 4}, most=1, most_bytes=1)
        assert await look(store, watch) == []
        clock.offset += 601
    for n in (3, 2):
        await store.rejections.add([], {(SOURCE, "signature_mismatch"): n, ("", "unknown_source"): 99},
                                   most=1, most_bytes=1)  # fmt: skip
        messages = await look(store, watch)
    assert [(one.count, one.subject) for one in messages] == [(5, SOURCE)]


async def test_a_live_worker_or_a_pause_is_no_alert(store: Store, clock: Clock) -> None:
    watch = Watch("ops", frozenset({AlertKind.NO_WORKER}))
    await recorded(store)
    clock.offset += 61
    await store.register("w", [(SOURCE, TYPE)])
    assert await look(store, watch) == []
    clock.offset += 61
    await store.pauses.pause(SOURCE, "*", "ada", "an incident")
    assert await look(store, watch) == []
    await store.pauses.resume(SOURCE, "*", "ada", "over")
    assert len(await look(store, watch)) == 1
    await send(store)
    await store.register("w", [(SOURCE, TYPE)])
    await look(store, watch)
    clock.offset += 700
    assert len(await look(store, watch)) == 2, "it ended, and began again"


async def test_a_tripped_circuit_is_no_alert(store: Store) -> None:
    await store.circuits.trip("bank", "ada", "maintenance")
    assert await look(store) == []


async def test_an_effect_that_a_retry_settles_is_no_alert(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await ledger.reach(store, clock, owner, EffectState.UNKNOWN, ledger.CALL)
    await settle(store, owner, "reschedule", due_in=60.0)
    messages = await look(store, Watch("ops", frozenset({AlertKind.UNKNOWN_EFFECT})))
    assert messages == []


# ── nothing is lost ──


async def test_what_commits_late_is_found(store: Store, raw: Raw) -> None:
    """A transaction that began before the last look, and commits after it."""
    await look(store)
    await fail(store, 1)
    await look(store)
    await fail(store, 1, prefix="late")
    earlier = "finished_at - 60000000" if "sqlite" in type(store).__module__ else "finished_at - interval '1 minute'"
    await raw.run(f"UPDATE events SET finished_at = {earlier} WHERE key = 'late_0'")
    assert sum(one.count for one in await look(store)) == 2


async def test_the_first_look_covers_the_last_day(store: Store, clock: Clock) -> None:
    await fail(store, 2)
    clock.offset += 90_000
    await fail(store, 3, prefix="today")
    [message] = await look(store)
    assert message.count == 3


async def test_a_second_failure_of_a_retried_event_is_told(store: Store) -> None:
    await look(store)
    await fail(store, 1)
    await look(store)
    await send(store)
    [failed] = await store.search.events()
    await store.retry(failed.id, State.FAILED, "ada", "fixed")
    await settle(store, await claim(store), "fail", reason="TypeError: no plan")
    assert [one.count for one in await look(store)] == [1, 1]


async def test_each_target_has_its_own_looks(store: Store) -> None:
    other = Watch("other", EVERY)
    await look(store)
    await look(store, other)
    await fail(store, 1)
    await look(store)
    await send(store)
    await look(store, other)
    assert [one.target for one in await store.alert_messages.page()] == ["other", "ops"]


# ── sending ──


async def one_message(store: Store) -> Message:
    await look(store)
    await fail(store, 1)
    [message] = await look(store)
    return message


async def test_one_process_takes_a_message(store: Store, open_store: OpenStore) -> None:
    await one_message(store)
    stores = [store, *[await open_store() for _ in range(3)]]
    taken = await asyncio.gather(*(one.alert_messages.take("ops", WORKER, 60.0, 10) for one in stores))
    assert sum(map(len, taken)) == 1


async def test_a_dead_sender_s_message_is_taken_again(store: Store, clock: Clock) -> None:
    await one_message(store)
    [first] = await store.alert_messages.take("ops", "dead", 60.0, 1)
    assert not await store.alert_messages.any_due("ops")
    clock.offset += 61
    [second] = await store.alert_messages.take("ops", "alive", 60.0, 1)
    assert (second.id, second.attempts) == (first.id, 2)
    assert not await store.alert_messages.sent(first), "it is not the dead sender's any longer"
    assert not await store.alert_messages.not_sent(first, "no", 1.0)
    assert await store.alert_messages.sent(second)
    assert await store.alert_messages.totals() == {"waiting": 0, "sent": 1, "failed": 0}


async def test_a_failed_attempt_waits_and_the_last_one_fails_it(store: Store, clock: Clock) -> None:
    await one_message(store)
    [first] = await store.alert_messages.take("ops", WORKER, 60.0, 1)
    assert await store.alert_messages.not_sent(first, "127.0.0.1 answered 503", 5.0)
    assert not await store.alert_messages.any_due("ops")
    clock.offset += 6
    [second] = await store.alert_messages.take("ops", WORKER, 60.0, 1)
    assert await store.alert_messages.not_sent(second, "x" * 1000, None)
    [message] = await store.alert_messages.page(state=MessageState.FAILED)
    assert (message.attempts, message.error, message.due_at) == (2, "x" * 500, None)
    assert await store.alert_messages.page(state=MessageState.SENT) == []
    assert await store.alert_messages.page(target="other") == []


async def test_old_messages_are_deleted(store: Store, clock: Clock) -> None:
    await one_message(store)
    await send(store)
    await store.alert_looks.raise_(AlertKind.CONSISTENCY, "events", "words")
    now = clock.time()
    assert await store.alert_messages.old(now - 60, 10) == []
    [ident] = await store.alert_messages.old(now + 60, 10)
    await store.alert_messages.prune([ident])
    assert await store.alert_messages.page() == []
    clock.offset += 100
    await store.alert_looks.prune(60.0)
    assert await look(store, Watch("new", frozenset({AlertKind.CONSISTENCY}))) == []


async def test_messages_that_no_process_sends_are_found(store: Store, clock: Clock) -> None:
    await one_message(store)
    assert await store.alert_messages.late(300.0) == []
    clock.offset += 301
    [late] = await store.alert_messages.late(300.0)
    assert (late.target, late.count) == ("ops", 1)


async def test_given_facts_are_told_once_by_processes_that_know_them(store: Store, clock: Clock) -> None:
    given = Sight(AlertKind.SECRET_EXPIRY, "stripe", b"12345678", clock.now(), "stripe", None, "it expires")
    knows, not_ = Watch("ops", EVERY, given=(given,), unproved=("x",)), Watch("ops", EVERY, unproved=("x",))
    for watch in (knows, not_, knows, not_, knows):
        messages = await look(store, watch)
    assert [one.words for one in messages] == ["it expires"]
