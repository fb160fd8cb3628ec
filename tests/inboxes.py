"""An inbox with rows in every table: events in every state but processing, effects in every state but started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from hookledger.clock import Clock, Seconds
from hookledger.ids import new_id
from hookledger.ledger import Completion
from hookledger.model import Arrival, Claimed, Kind, Outcome, StoredAnswer
from hookledger.operate.bulk import plan as bulk
from hookledger.operate.context import Context
from hookledger.operate.reconcile.repair import repair_arrival
from hookledger.operate.retention.prune import Pruner
from hookledger.operate.retention.settings import Limits, RetentionSettings
from hookledger.states import CallOutcome, State
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Watch
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.filters import EVERYTHING, Filter
from hookledger.store.ops.job import Resolving
from hookledger.store.ops.pruning import Round
from hookledger.store.ops.published import PublishedKey
from hookledger.store.ops.rejections import RejectedRequest
from hookledger.store.ops.schema_fields import SchemaField
from hookledger.store.protocol import Store
from tests.builders import KIND, SOURCE, WORKER, Way, delivered, item, record, way_out
from tests.guards import request
from tests.ledger import CALL, LATER, get, intent, take

BATCH = 1000
PRUNED = "pruned_{}"
KEPT = "kept_{}"
WAYS: tuple[Way, ...] = (
    "complete",  # with a call that was made
    "complete",  # with a `once`
    "review",  # with a call whose outcome is unknown
    "complete",  # with an outbox entry that is planned
    "reschedule",  # with a call that was refused
    "fail",
    "skip",
    "fail",  # and then discarded, some of them
    "release",  # pending: recorded last
    "complete",  # with an outbox entry that is cancelled, some of them
)
FEW = 20
"""As many, of what is done one by one."""


def arrived(key: str) -> Arrival:
    return delivered(key, b'{"id": "%s"}' % key.encode(), unsigned=True, object_id=f"obj_{key}")


async def fill(store: Store, clock: Clock, events: int = 40, pruned: int = 4) -> None:
    """So many events that are kept, and so many that were pruned, all with their effects."""
    await store.know_sources([SOURCE])
    for batch in batched(range(pruned)):
        await record(store, *(arrived(PRUNED.format(n)) for n in batch))
        owners = await store.claim(WORKER, [KIND], BATCH, 60.0)
        await _call(store, owners, CallOutcome.DONE)
        transaction = store.transaction()
        for owner in owners:
            assert (await transaction.newer(request(owner, 1731, owner.key))).applied
        await transaction.commit([way_out(owner, "complete") for owner in owners])
    clock.offset += 86400 * 2
    settings = RetentionSettings(batch_delay=Seconds(0))
    await Pruner(store, settings, {}, Limits(events=86400.0), clock, WORKER).round(from_start=True)
    assert (await store.consistency.report()).pruned == pruned
    pending = [n for n in range(events) if WAYS[n % len(WAYS)] == "release"]
    worked_on = sorted({*range(events)} - {*pending})
    for batch in batched(worked_on):
        await record(store, *(arrived(KEPT.format(n)) for n in batch))
        owners = await store.claim(WORKER, [KIND], BATCH, 60.0)
        assert len(owners) == len(batch)
        await _work(store, owners)
    for batch in batched(pending):
        await record(store, *(arrived(KEPT.format(n)) for n in batch))
    await _close(store)
    await _rest(store)
    await store.rates.add(WORKER, 1, {(SOURCE, "delivery.accepted"): events})
    [one] = await store.search.events(limit=1)
    await store.schema_fields.note(SOURCE, one.id, [SchemaField(one.type, "/id", "string", one.received_at, one.id)])
    books = await store.consistency.report()
    assert books.imbalances == ()
    assert books.effects.keys() == {"planned", "done", "failed", "unknown", "cancelled"}
    assert books.events.keys() == {state.value for state in State} - {"processing"}


def batched(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[first : first + BATCH] for first in range(0, len(numbers), BATCH))


def _number(owner: Claimed) -> int:
    return int(owner.key.rpartition("_")[2]) % len(WAYS)


async def _work(store: Store, owners: Sequence[Claimed]) -> None:
    groups: dict[int, list[Claimed]] = {}
    for owner in owners:
        groups.setdefault(_number(owner), []).append(owner)
    for number, outcome in ((0, CallOutcome.DONE), (2, CallOutcome.UNKNOWN), (4, CallOutcome.REFUSED)):
        await _call(store, groups.pop(number, []), outcome, settle=WAYS[number])
    once, planned = groups.pop(1, []), groups.pop(3, []) + groups.pop(9, [])
    if once:
        transaction = store.transaction()
        for owner in once:
            assert await transaction.once(intent(owner, owner.key, "credit"))
            assert (await transaction.newer(request(owner, owner.received_at))).applied
        await transaction.commit([way_out(owner, "complete") for owner in once])
    if planned:
        transaction = store.transaction()
        for owner in planned:
            name = "mail" if _number(owner) == 3 else "closed"
            lane = owner.key if name == "mail" else None
            assert await transaction.plan(intent(owner, owner.key, name, LATER, lane=lane)) is None
        await transaction.commit([way_out(owner, "complete") for owner in planned])
    rest = [_outcome(owner) for group in groups.values() for owner in group]
    assert len(await store.settle(rest)) == len(rest)


def _outcome(owner: Claimed) -> Outcome:
    return way_out(owner, WAYS[_number(owner)])


async def _call(store: Store, owners: Sequence[Claimed], outcome: CallOutcome, settle: Way | None = None) -> None:
    """One call for each event, and how it ended."""
    if owners:
        intents = [intent(owner, owner.key, "charge", CALL) for owner in owners]
        await store.ledger.start(intents, WORKER)
        await store.ledger.finish([Completion(i.identity, 1, outcome, error=None, result=b"1") for i in intents])
    if settle is not None:
        later = {"due_in": 3600.0} if settle == "reschedule" else {}
        outcomes = [way_out(owner, settle, **later) for owner in owners]
        assert len(await store.settle(outcomes)) == len(outcomes)


async def _close(store: Store) -> None:
    """Cancel outbox entries and discard events, some of each."""
    for effect in await take(store, "closed", FEW):
        await store.ledger.finish([Completion(effect.identity, effect.number, CallOutcome.REFUSED)])
        await store.ledger.resolve(await get(store, effect.identity), "cancel", None, "ada", "not wanted")
    for event in await store.search.events(Filter(states=(State.FAILED,)), limit=FEW):
        if int(event.key.rpartition("_")[2]) % len(WAYS) == 7:
            await store.discard(event.id, State.FAILED, "ada", "closed")
    answers = (store.reviews.approve, store.reviews.reject, store.reviews.settle)
    in_review = await store.search.events(Filter(states=(State.NEEDS_REVIEW,)), limit=FEW)
    for event, answer in zip(in_review[1:], answers, strict=False):  # the first stays in review
        await answer(event.id, event.state, "ada", "she paid", seen=event.claim)
    approved = await store.history(in_review[1].id)
    assert approved is not None
    assert approved.event.approval_id is not None


async def _order(store: Store) -> None:
    """Two ordered events of an entity, the first of which may be claimed, and a third that has just arrived."""
    for number in range(3):
        await record(store, delivered(f"ordered_{number}", b"%d" % number, entity="entity", ordered=True))
        while number < 2 and await store.entities.place():
            pass


async def _stages(store: Store) -> None:
    """An event with a stage that has failed and one that waits."""
    await record(store, delivered("staged", b"staged", type="staged"))
    [owner] = await store.claim(WORKER, [Kind(SOURCE, "staged")], 1, 60.0)
    await store.settle([way_out(owner, "complete", stages=("a", "b"))])
    [stage] = await store.claim(WORKER, [Kind(f"{SOURCE}/a", "staged")], 1, 60.0)
    await store.settle([way_out(stage, "fail")])


async def _answers(store: Store) -> None:
    """An event whose handler answered."""
    [found] = await store.record_claimed([delivered("answered", b"answered")], WORKER, 60.0)
    assert found.claimed is not None
    await store.settle([way_out(found.claimed, "complete", answer=StoredAnswer(200, b"", b"\0 an answer"))])


async def _rest(store: Store) -> None:
    """What no event of the loop above leaves behind."""
    await _order(store)
    await _stages(store)
    await _answers(store)
    await record(store, delivered(KEPT.format(0), b"another body", unsigned=True))  # a conflict
    await record(store, arrived(KEPT.format(1)), arrived(PRUNED.format(0)))  # duplicates
    refused = RejectedRequest(new_id(), SOURCE, "no_signature", "POST", "/stripe", b"\0", b"h", b"\xff", "::1")
    await store.rejections.add([refused], {(SOURCE, "no_signature"): 3}, most=10, most_bytes=1000)
    await store.imported_keys.import_keys(SOURCE, [item("imported").identity], "ada", "from the old system")
    await store.circuits.trip("bank", "ada", "maintenance")
    await store.pauses.pause(SOURCE, "charge.*", "ada", "an incident")
    key = PublishedKey(b"\1" * 32, "paypal", "https://api.paypal.com/x", b"-----BEGIN", 86400.5, 0.0)
    await store.published.keep(key, most=4)
    await store.register("worker-2", [(SOURCE, "*")])
    await store.reconciling.repair(repair_arrival(SOURCE, "obj", Audit("ada", "wrong"), None), None, "ada", "wrong")
    now = Clock().now()
    await store.reconciling.begin(SOURCE, now - timedelta(days=1), now, "ada", "why", lease=60.0, slot=now)
    by, resolving = Audit("ada", "their support says so"), Resolving("charge", "happened")
    await bulk.plan(Context(store), by, "resolve", EVERYTHING, per_second=0.5, resolving=resolving)
    await store.pruning.position("payloads", 60.0)
    await store.pruning.turn(Round(WORKER, "ada", "why", 60.0))
    await store.alert_looks.raise_(AlertKind.CONSISTENCY, "events", "they do not add up")
    await store.alert_looks.look(Watch("ops", frozenset(AlertKind), unproved=("no_signature",)))
    [taken] = await store.alert_messages.take("ops", WORKER, 60.0, 1)
    assert await store.alert_messages.sent(taken)
    await store.restores.begin(now - timedelta(hours=1), "ada", "the disk died")
