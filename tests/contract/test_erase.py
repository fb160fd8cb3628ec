"""After an erasure nothing that an event said is in the database, and everything that it did is still known."""

from __future__ import annotations

import pytest

from hookledger.clock import Clock
from hookledger.errors import WrongState
from hookledger.ids import new_id
from hookledger.model import Claimed, Kind, StoredAnswer
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.bulk import plan as bulk
from hookledger.operate.context import Context
from hookledger.operate.effects import resolve
from hookledger.operate.reconcile.repair import repair_arrival
from hookledger.operate.retention.erase import erase
from hookledger.states import DeliveryOutcome, EffectKind, EffectState, State
from hookledger.store.ops.filters import EVERYTHING
from hookledger.store.ops.job import Cause, Objection
from hookledger.store.ops.rejections import RejectedRequest
from hookledger.store.protocol import Store
from tests.builders import (
    SOURCE,
    Raw,
    arrival,
    claim,
    claimed,
    delivered,
    event,
    history,
    item,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.test_consistency import commit, found
from tests.contract.test_prune import DAY, prune
from tests.guards import ask, request
from tests.ledger import CALL, LATER, finish, get, intent, reach, start, take

MARK = "Eve-Marker-4711"
RAW = MARK.encode()
TABLES = (
    "events",
    "requests",
    "deliveries",
    "attempts",
    "effects",
    "effect_calls",
    "identities",
    "actions",
    "rejections",
    "pruned",
    "effect_lanes",
    "guards",
    "guard_answers",
    "answers",
)


async def traces(raw: Raw) -> list[str]:
    """The tables that have the marker anywhere."""
    found = []
    for table in TABLES:
        text = repr(await raw.all(table))
        if MARK in text:
            found.append(table)
    return found


async def planted(store: Store) -> Context:
    """A finished event with the marker in every place that can hold one."""
    sent = arrival(
        item("evt_1", RAW, provider_id=MARK, object_id=MARK, delivery_id=MARK),
        body=RAW,
        query=b"q=" + RAW,
        headers=((b"x-name", RAW),),
        remote=MARK,
    )
    await record(store, sent)
    refused = RejectedRequest(new_id(), SOURCE, "signature_mismatch", "POST", "/", b"", b"", RAW, None)
    await store.rejections.add([refused], {(SOURCE, "signature_mismatch"): 1}, most=10, most_bytes=10_000)
    owner = await claim(store)
    called = await start(store, owner, MARK, arguments=b'"%b"' % RAW)
    await finish(store, called.identity, 1, "refused", error=MARK)
    assert await settle(store, owner, "reschedule", error=MARK, reason=MARK)
    owner = await claim(store)
    transaction = store.transaction()
    await transaction.once(intent(owner, MARK, "credit", EffectKind.ONCE, repeat=None, arguments=b'"%b"' % RAW))
    await transaction.plan(intent(owner, MARK, "mail", LATER, arguments=b'"%b"' % RAW, lane=MARK))
    assert (await transaction.newer(request(owner, 1731, MARK))).applied
    answer = StoredAnswer(200, b"x-name: " + RAW, RAW)
    await transaction.commit([way_out(owner, "complete", result=MARK, answer=answer)])
    [mail] = await take(store, "mail")
    await finish(store, mail.identity, 1, "done", result=b'"%b"' % RAW, error=MARK)
    await record(store, arrival(item("evt_1", b"other " + RAW, delivery_id=MARK), body=b"other " + RAW))
    await record(store, arrival(item("evt_1", RAW, delivery_id=MARK), body=RAW))
    return Context(store)


async def test_nothing_of_it_is_left(store: Store, raw: Raw) -> None:
    context = await planted(store)
    assert set(await traces(raw)) == set(TABLES) - {"identities", "actions", "pruned"}
    known = (await search.find(Context(store), (await store.search.events())[0].id.hex)).event
    erased = await erase(context, by("ada", "she asked"), known, key_too=True)
    assert await traces(raw) == []
    assert (len(erased.events), erased.requests, erased.effects) == (1, 2, 3)
    told = await history(store, known.id)
    assert [(a.name, a.actor, a.reason) for a in told.actions] == [("erase", "ada", "she asked")]
    assert MARK not in repr(told)
    assert await found(store) == {}


@pytest.mark.parametrize("name", ["approve", "reject", "settle"])
async def test_a_review_that_was_answered_is_forgotten(store: Store, raw: Raw, name: str) -> None:
    """Its reason may quote the payload; that it was answered, by whom and why, stays."""
    owner = await claimed(store)
    assert await settle(store, owner, "review", reason=MARK, error=MARK)
    await getattr(store.reviews, name)(owner.id, State.NEEDS_REVIEW, "ada", "she paid", seen=owner.claim + 1)
    if name == "approve":
        assert await settle(store, await claim(store), "complete")
    assert await replaced(raw) == [RAW]
    await erase(Context(store), by("ada", "she asked"), await event(store, owner.id))
    assert (await traces(raw), await replaced(raw)) == ([], [])
    told = await history(store, owner.id)
    place = "run 2, review at claim 1" if name == "approve" else "review at claim 1"
    assert [(a.name, a.reason, a.subject) for a in told.actions][:1] == [(name, "she paid", place)]
    assert await found(store) == {}


async def replaced(raw: Raw) -> list[bytes]:
    return [bytes(value) for (value,) in await raw.run("SELECT replaced FROM actions WHERE replaced IS NOT NULL")]


async def test_a_result_that_was_replaced_is_forgotten(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    unknown = await reach(store, clock, owner, EffectState.UNKNOWN, CALL)
    await store.ledger.resolve(unknown, "happened", b'"%b"' % RAW, "ada", "looked")
    await store.ledger.resolve(await get(store, unknown.identity), "happened", b"2", "ada", "mistyped")
    assert await settle(store, owner, "complete")
    assert MARK in repr(await history(store, owner.id))
    await erase(Context(store), by("ada", "she asked"), await event(store, owner.id))
    told = await history(store, owner.id)
    assert [(action.name, action.replaced) for action in told.actions] == [
        ("resolve", None),
        ("resolve", None),
        ("erase", None),
    ]
    assert MARK not in repr(told)


async def test_a_lane_that_something_waits_in_keeps_its_order(store: Store, raw: Raw) -> None:
    context = await planted(store)
    known = (await store.search.events())[0]
    owner = await claimed(store, "another")
    transaction = store.transaction()
    await transaction.plan(intent(owner, "waits", "mail", LATER, lane=MARK))
    await transaction.commit([way_out(owner, "complete")])
    before = await raw.all("effect_lanes")
    await erase(context, by("ada", "she asked"), known)
    assert await raw.all("effect_lanes") == before
    [mail] = await take(store, "mail")
    await finish(store, mail.identity, 1, "done")
    await erase(context, by("ada", "she asked"), await event(store, owner.id))
    assert await raw.all("effect_lanes") == []


async def test_a_repaired_object_is_forgotten(store: Store, raw: Raw) -> None:
    sent = repair_arrival(SOURCE, MARK, by("ada", "wrong"), None)
    await store.reconciling.repair(sent, None, "ada", "wrong")
    owner = await claim(store, Kind(SOURCE, sent.items[0].type))
    assert await settle(store, owner, "complete")
    assert await raw.count("repairs") == 1
    await erase(Context(store), by("ada", "she asked"), await event(store, owner.id), key_too=True)
    assert await raw.count("repairs") == 0
    assert await traces(raw) == ["actions"]  # what operators wrote stays
    await store.reconciling.repair(repair_arrival(SOURCE, MARK, by("ada", "again"), None), None, "ada", "again")
    assert await found(store) == {}


async def test_what_it_did_is_still_known(store: Store) -> None:
    context = await planted(store)
    known = (await store.search.events())[0]
    await erase(context, by("ada", "she asked"), known, key_too=True)
    [again] = await record(store, delivered("evt_1", RAW))
    assert (again.outcome, again.event_id) == (DeliveryOutcome.DUPLICATE, known.id)
    owner = await claimed(store, "another")
    transaction = store.transaction()
    assert not await transaction.once(intent(owner, MARK, "credit", EffectKind.ONCE, repeat=None))
    mail = await transaction.plan(intent(owner, MARK, "mail", LATER))
    assert mail is not None and mail.state is EffectState.DONE
    await transaction.rollback()
    with pytest.raises(WrongState, match="nothing to process"):
        await store.replay(known.id, State.PROCESSED, "ada", "again")
    [entry] = [e.effect for e in (await history(store, known.id)).effects if e.effect.name == "mail"]
    with pytest.raises(WrongState, match="were erased"):
        await resolve(context, by("ada", "look"), entry, "did_not_happen")
    assert await found(store) == {}


async def test_an_event_that_is_not_over_is_refused(store: Store, raw: Raw) -> None:
    context = Context(store)
    await recorded(store)
    pending = (await store.search.events())[0]
    with pytest.raises(WrongState, match="only discarded, failed, processed, skipped"):
        await erase(context, by("ada", "why"), pending)
    owner = await claim(store)
    with pytest.raises(WrongState, match="has changed"):
        await erase(context, by("ada", "why"), pending)
    transaction = store.transaction()
    await transaction.plan(intent(owner, "k", "mail", LATER))
    await transaction.commit([way_out(owner, "complete")])
    before = [await raw.all(table) for table in TABLES]
    with pytest.raises(WrongState, match=r"mail:k .* is planned: hookledger resolve first"):
        await erase(context, by("ada", "why"), await event(store, owner.id))
    assert [await raw.all(table) for table in TABLES] == before


async def test_a_request_with_several_events_goes_as_a_whole(store: Store) -> None:
    first, second = await record(store, arrival(item("a"), item("b"), body=RAW))
    for _ in range(2):
        assert await settle(store, await claim(store), "complete")
    context = Context(store)
    with pytest.raises(WrongState, match=str(second.event_id)):
        await erase(context, by("ada", "why"), await event(store, first.event_id))
    dry = await erase(context, by("ada", "why"), await event(store, first.event_id), whole_request=True, dry=True)
    assert (await event(store, second.event_id)).emptied_at is None
    erased = await erase(context, by("ada", "why"), await event(store, first.event_id), whole_request=True)
    assert set(erased.events) == set(dry.events) == {first.event_id, second.event_id}
    assert (await event(store, second.event_id)).emptied_at is not None
    assert await found(store) == {}


async def test_each_final_state_can_be_erased_consistently(store: Store) -> None:
    context = Context(store)
    for way in ("skip", "fail"):
        owner = await claimed(store, way)
        assert await settle(store, owner, way, reason=MARK, error=MARK)
        await erase(context, by("ada", "why"), await event(store, owner.id))
        assert (await event(store, owner.id)).reason == "erased"
    with pytest.raises(WrongState, match="nothing to process"):
        await store.retry(owner.id, State.FAILED, "ada", "again")
    await store.discard(owner.id, State.FAILED, "ada", "closed")
    assert await found(store) == {}


async def test_what_the_ledger_has_of_a_pruned_event_can_be_erased(store: Store, raw: Raw, clock: Clock) -> None:
    owner = await claimed(store)
    called = await start(store, owner, MARK)
    await finish(store, called.identity, 1, "done", result=b'"%b"' % RAW)
    await commit(store, owner)
    await prune(store, clock, events=DAY)
    assert await traces(raw) == ["effects"]
    [tombstone] = await search.pruned(Context(store), str(owner.id))
    assert await store.erasure.erase_effects(tombstone.event_id, "ada", "she asked", key_too=True) == 3
    assert await traces(raw) == []
    assert await found(store) == {}


# ── guards ───────────────────────────────────────────────────────────────────


async def stale_for(store: Store, key: str, version: int) -> Claimed:
    """An event that was sent to review because a guard is of another."""
    owner = await claimed(store, key)
    tx = store.transaction()
    answer = await tx.newer(request(owner, version, "sub_1"))
    assert not answer.applied
    await tx.rollback()
    tx = store.transaction()
    await tx.note_stale(answer)
    said = {"reason": answer.words, "error": f"Traceback\nStaleReviewed: {answer.words}"}
    await tx.commit([way_out(owner, "review", **said)])
    return owner


async def test_a_guard_still_protects_after_an_erasure(store: Store, raw: Raw) -> None:
    """And its keys are shown again only if a later event brings them."""
    owner = await claimed(store, MARK)
    await ask(store, owner, 1731, MARK)
    await erase(Context(store), by("ada", "she asked"), await event(store, owner.id), key_too=True)
    assert await traces(raw) == []
    late = await claimed(store, "late")
    answer = await ask(store, late, 1720, MARK)
    assert (answer.applied, answer.other_version) == (False, "1731")
    assert (answer.other_key or "").startswith("sha256:")
    assert await traces(raw) == ["guard_answers"], "what the late event said itself"
    await erase(Context(store), by("ada", "that too"), await event(store, late.id), key_too=True)
    assert (await traces(raw), await found(store)) == ([], {})


@pytest.mark.parametrize("is_pruned", [False, True])
async def test_other_events_do_not_name_the_key_of_an_erased_one(
    store: Store, raw: Raw, clock: Clock, is_pruned: bool
) -> None:
    owner = await claimed(store, MARK)
    await ask(store, owner, 1731, "sub_1")
    late = await stale_for(store, "late", 1720)
    other = await claimed(store, "newer")
    await ask(store, other, 1740, "sub_1")
    later = await stale_for(store, "later", 1735)
    assert "by newer was applied" in str((await event(store, later.id)).reason)
    if is_pruned:
        await prune(store, clock, events=DAY)
        await store.erasure.erase_effects(owner.id, "ada", "she asked", key_too=True)
    else:
        known = await event(store, owner.id)
        assert set(await traces(raw)) == {"events", "attempts"}
        await erase(Context(store), by("ada", "she asked"), known, key_too=True)
    assert (await traces(raw), await found(store)) == ([], {})
    kept = await event(store, late.id)
    assert kept.reason == "stale for subscription sub_1: version 1731 by … was applied, this is 1720"
    assert "by newer was applied" in str((await event(store, later.id)).reason), "another's key stays"


async def test_keys_of_guards_stay_unless_they_are_to_go(store: Store, raw: Raw) -> None:
    owner = await claimed(store)
    await ask(store, owner, 1731, MARK)
    before = await raw.all("guards"), await raw.all("guard_answers")
    await erase(Context(store), by("ada", "she asked"), await event(store, owner.id))
    assert (await raw.all("guards"), await raw.all("guard_answers")) == before


async def test_the_words_of_a_job_go_with_it(store: Store, clock: Clock) -> None:
    """They name the effect that a replay had to be decided about, by its key."""
    idents = {}
    for name in ("erased", "pruned", "kept"):
        idents[name] = await recorded(store, name)
        assert await settle(store, await claim(store), "complete")
    job = await bulk.plan(Context(store), by("ada", "why"), "discard", EVERYTHING)
    taken = await store.jobs.take("runner", 60.0, job.id)
    assert taken is not None
    items = await store.jobs.open_items(taken, 10)
    secret = {item.event_id: Objection(Cause.DECISION, "charge:eve@example.com may have happened") for item in items}
    assert await store.jobs.step(taken, items, secret, 60.0) is not None
    await erase(Context(store), by("ada", "she asked for it"), await event(store, idents["erased"]), key_too=True)
    words = {item.event_id: item.words for item in await store.jobs.items(job.id)}
    assert words[idents["erased"]] == "erased"
    assert words[idents["kept"]] == words[idents["pruned"]] == "charge:eve@example.com may have happened"
    assert (await prune(store, clock, events=DAY)).events == 3
    [tombstone] = await store.pruning.pruned(idents["pruned"], idents["pruned"])
    await store.erasure.erase_effects(tombstone.event_id, "ada", "she too", key_too=True)
    words = {item.event_id: item.words for item in await store.jobs.items(job.id)}
    assert [words[idents[name]] == "erased" for name in ("erased", "pruned", "kept")] == [True, True, False]
    assert await found(store) == {}
