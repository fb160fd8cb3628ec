"""Retention takes away what it may and nothing else; what is gone is known to be gone, and a loss is still a loss."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import NEVER, Clock, Seconds
from hookledger.errors import Unavailable, WrongState
from hookledger.model import Kind
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.context import Context
from hookledger.operate.errors import NotFound
from hookledger.operate.replay import replay
from hookledger.operate.replay.preview import Verdict
from hookledger.operate.retention.prune import Pruner
from hookledger.operate.retention.settings import Limits, RetentionSettings, limits
from hookledger.receive.settings import SourceRetention
from hookledger.states import DeliveryOutcome, EffectKind, EffectState, State
from hookledger.store.ops import pruning
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.pruning import OVER, Pruned, Round
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.session import Session
from tests.builders import (
    SOURCE,
    WORKER,
    Raw,
    arrival,
    claim,
    claimed,
    delivered,
    event,
    history,
    item,
    reach,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.contract.test_consistency import commit, found, story
from tests.guards import ask
from tests.ledger import LATER, finish, intent, start

DAY = 86400.0
LAST_ID = UUID(int=(1 << 128) - 1)
FAST = RetentionSettings(batch=7, batch_delay=Seconds(0))


def pruner(store: Store, clock: Clock, /, holder: str = WORKER, **given: Any) -> Pruner:
    return Pruner(store, FAST, {}, Limits(**given), clock, holder)


async def prune(store: Store, clock: Clock, **given: Any) -> Pruned:
    """A day later, everything that the limits say."""
    clock.offset += DAY + 1
    return await pruner(store, clock, **given).round(from_start=True)


# ── the books ────────────────────────────────────────────────────────────────


LOSSES = {
    "an event": "DELETE FROM events WHERE id = {lost}",
    "an event with all that names it": (
        "DELETE FROM attempts WHERE event_id = {lost}; DELETE FROM deliveries WHERE event_id = {lost}; "
        "DELETE FROM requests WHERE id IN (SELECT request_id FROM events WHERE id = {lost}); "
        "DELETE FROM events WHERE id = {lost}"
    ),
    "what is left of a pruned one": "DELETE FROM pruned WHERE event_id = {pruned}",
    "a pruned one's row, with its identity kept by an effect": (
        "DELETE FROM identities WHERE event_id = {pruned}; DELETE FROM pruned WHERE event_id = {pruned}"
    ),
    "the key of a pruned one": "DELETE FROM identities WHERE event_id = {pruned}",
    "a delivery": "DELETE FROM deliveries WHERE event_id = {lost}",
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
async def test_after_pruning_a_single_loss_is_still_found(store: Store, raw: Raw, clock: Clock, loss: str) -> None:
    told = await story(store, clock)
    done = await prune(store, clock, events=DAY)
    assert done.events >= 4
    books = await store.consistency.report()
    assert (books.imbalances, books.pruned) == ((), done.events)
    lost = await recorded(store, "a later one")
    names = {"lost": raw.ident(lost), "pruned": raw.ident(told["processed"])}
    for statement in loss.format(**names).split("; "):
        await raw.run(statement)
    assert await found(store) != {}


# proves R49
async def test_a_pruned_event_stays_a_duplicate(store: Store, raw: Raw, clock: Clock) -> None:
    owner = await claimed(store, "paid")
    await commit(store, owner)
    assert (await prune(store, clock, events=DAY)).events == 1
    for table in ("events", "requests", "deliveries", "attempts"):
        assert await raw.count(table) == 0
    [again] = await record(store, delivered("paid"))
    assert (again.outcome, again.event_id, again.state) == (DeliveryOutcome.DUPLICATE, owner.id, None)
    [other] = await record(store, delivered("paid", b"other"))
    assert other.outcome is DeliveryOutcome.CONFLICT
    assert await store.waiting() == []
    assert await found(store) == {}


# proves R49
async def test_effects_of_a_pruned_event_are_not_done_again(store: Store, clock: Clock) -> None:
    """The next event that asks for the same credit must find it, with its result."""
    owner = await claimed(store, "paid")
    called = await start(store, owner, "charge", arguments=b'{"who":"eve"}')
    await finish(store, called.identity, 1, "done", result=b'"ch_1"', error="trace")
    await commit(store, owner)
    assert (await prune(store, clock, events=DAY)).events == 1
    later = await claimed(store, "paid again")
    transaction = store.transaction()
    credit = intent(later, "k", name="credit", kind=EffectKind.ONCE, repeat=None)
    assert not await transaction.once(credit)
    await transaction.rollback()
    known = await store.ledger.get(called.identity)
    assert known is not None
    assert (known.state, known.result, known.arguments) == (EffectState.DONE, b'"ch_1"', b"")
    assert await found(store) == {}


async def test_only_what_is_over_goes(store: Store, clock: Clock) -> None:
    kept = set()
    for n, state in enumerate(State):
        row = await reach(store, state, Kind(SOURCE, f"t{n}"))
        if state not in (State.PROCESSED, State.SKIPPED, State.DISCARDED):
            kept.add(row.id)
    owner = await claimed(store, "open")
    transaction = store.transaction()
    await transaction.plan(intent(owner, "k", name="mail", kind=LATER))
    await transaction.commit([way_out(owner, "complete")])
    kept.add(owner.id)
    bounced = await claimed(store, "delivered again")
    assert await settle(store, bounced, "complete")
    clock.offset += DAY + 1
    await record(store, delivered("delivered again"))
    kept.add(bounced.id)
    fresh = await claimed(store, "fresh")
    assert await settle(store, fresh, "complete")
    kept.add(fresh.id)
    assert (await pruner(store, clock, events=DAY).round()).events == 3
    assert {row.id for row in await store.search.events(limit=50)} == kept
    assert (await prune(store, clock, failed=DAY)).events == 1
    assert await found(store) == {}


async def test_nothing_goes_unless_it_is_named(store: Store, clock: Clock) -> None:
    await story(store, clock)
    clock.offset += 10_000 * DAY
    settings = RetentionSettings()
    assert limits(settings) == Limits() == Limits(NEVER, NEVER, NEVER, NEVER)
    assert limits(settings, SourceRetention()) == Limits()
    assert await Pruner(store, settings, {}, limits(settings), clock, WORKER).round() == Pruned()


async def test_each_source_has_its_limits(store: Store, clock: Clock) -> None:
    for source in ("short", "long", "others"):
        owner = await claimed(store, source=source)
        assert await settle(store, owner, "complete")
    clock.offset += 2 * DAY
    by_source = {"short": Limits(events=DAY), "long": Limits(events=NEVER)}
    both = Pruner(store, FAST, by_source, Limits(events=3 * DAY), clock, WORKER)
    assert (await both.round()).events == 1
    assert {row.source for row in await store.search.events()} == {"long", "others"}
    clock.offset += 2 * DAY
    assert (await both.round()).events == 1
    assert {row.source for row in await store.search.events()} == {"long"}


async def test_an_admitted_event_outlives_the_one_it_met(store: Store, clock: Clock) -> None:
    met = await claimed(store, "k")
    assert await settle(store, met, "complete")
    odd = delivered("k", b"other")
    await record(store, odd)
    admitted = await store.quarantine.accept(odd.id, 0, item("k", b"other"), "ada", "ours")
    clock.offset += DAY
    assert (await prune(store, clock, events=DAY)).events == 1
    assert await found(store) == {}
    owner = await claim(store)
    assert (owner.id, owner.body) == (admitted, b"other")
    assert await settle(store, owner, "complete")
    assert (await prune(store, clock, events=DAY)).events == 1
    assert await found(store) == {}
    assert (await store.delivery_counts(), await store.counts()) == ({}, {})


async def test_quarantined_deliveries_of_a_pruned_event_are_pruned(store: Store, raw: Raw, clock: Clock) -> None:
    owner = await claimed(store, "k")
    assert await settle(store, owner, "complete")
    await prune(store, clock, events=DAY)
    await record(store, delivered("k", b"other"), delivered("k"))
    assert (await prune(store, clock, events=DAY, history=DAY)).deliveries == 2
    assert (await raw.count("deliveries"), await raw.count("requests"), await found(store)) == (0, 0, {})


async def test_a_request_goes_with_the_last_of_its_events(store: Store, raw: Raw, clock: Clock) -> None:
    await record(store, arrival(item("a", type="one"), item("b", type="two")))
    assert await settle(store, await claim(store, Kind(SOURCE, "one")), "complete")
    assert (await prune(store, clock, payloads=DAY)).payloads == 0
    assert (await prune(store, clock, events=DAY)).events == 1
    assert (await raw.count("requests"), await found(store)) == (1, {})
    owner = await claim(store, Kind(SOURCE, "two"))
    assert await settle(store, owner, "complete")
    assert (await prune(store, clock, payloads=DAY)).payloads == 1
    assert (await prune(store, clock, events=DAY)).events == 1
    assert (await raw.count("requests"), await found(store)) == (0, {})


# ── bytes and history ────────────────────────────────────────────────────────


async def test_an_event_without_its_bytes_is_not_retried(store: Store, raw: Raw, clock: Clock) -> None:
    sent = arrival(item(), body=b"secret", query=b"q=secret", headers=((b"x", b"secret"),), remote="10.0.0.1")
    [verdict] = await record(store, sent)
    assert await settle(store, await claim(store), "complete")
    assert (await prune(store, clock, payloads=DAY)).payloads == 1
    assert (await prune(store, clock, payloads=DAY)).payloads == 0
    known = await history(store, verdict.event_id)
    assert known.request is not None
    assert (known.request.body, known.request.headers, known.request.query) == (b"", b"", b"")
    assert (known.request.remote, known.request.scheme) == (None, "hmac-sha256")
    assert known.event.emptied_at is not None and known.request.emptied_at is not None
    assert not known.deliveries[0].kept
    preview = replay.preview(Context(store), known)
    assert preview.verdict is Verdict.NEEDS_A_DECISION
    with pytest.raises(WrongState, match="nothing to process"):
        await replay.replay(Context(store), by("ada", "again"), known.event)
    with pytest.raises(WrongState, match="nothing to process"):
        await store.replay(verdict.event_id, State.PROCESSED, "ada", "again")
    [again] = await record(store, delivered())
    assert again.outcome is DeliveryOutcome.DUPLICATE
    assert await found(store) == {}


async def test_history_goes_and_the_evidence_stays(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    called = await start(store, owner, "charge")
    await finish(store, called.identity, 1, "refused", error="trace")
    assert await settle(store, owner, "reschedule", error="trace")
    owner = await claim(store)
    effect = await store.ledger.get(called.identity)
    assert effect is not None
    again = await store.ledger.restart(effect, WORKER, 60.0)
    assert again is not None
    await finish(store, called.identity, 2, "done")
    assert await settle(store, owner, "complete")
    await record(store, delivered())
    assert len((await history(store, owner.id)).deliveries) == 2
    done = await prune(store, clock, history=DAY)
    assert (done.history, done.deliveries) == (1, 1)
    known = await history(store, owner.id)
    assert [(a.outcome, a.error) for a in known.attempts] == [("retrying", None), ("processed", None)]
    assert [call.error for call in known.effects[0].calls] == [None, None]
    assert len(known.deliveries) == 1
    assert await found(store) == {}


@pytest.mark.parametrize("dry", [True, False])
async def test_tracebacks_of_calls_alone_are_history_too(store: Store, raw: Raw, clock: Clock, dry: bool) -> None:
    """An effect that its handler handed over fails without an attempt of the event's that failed."""
    owner = await claimed(store)
    called = await start(store, owner, "charge")
    await finish(store, called.identity, 1, "refused", error="card 4242 of ada")
    effect = await store.ledger.get(called.identity)
    assert effect is not None
    assert await store.ledger.restart(effect, WORKER, 60.0)
    await finish(store, called.identity, 2, "done")
    assert await settle(store, owner, "complete")
    clock.offset += DAY + 1
    pruning = pruner(store, clock, history=DAY)
    assert (await pruning.round(Audit("ada", "the law"), dry=dry, from_start=True)).history == 1
    kept = (await history(store, owner.id)).effects[0].calls[0].error
    said = [tuple(row) for row in await raw.run("SELECT actor, reason, subject FROM actions WHERE name = 'prune'")]
    if dry:
        assert (kept, said) == ("card 4242 of ada", [])
    else:
        assert kept is None
        assert said == [("ada", "the law", "1 events' tracebacks")]
        assert (await pruning.round(Audit("ada", "the law"), from_start=True)).history == 0


# ── walks and turns ──────────────────────────────────────────────────────────


async def finished(store: Store, number: int) -> list[UUID]:
    await record(store, *(delivered(f"evt_{n}") for n in range(number)))
    owners = await store.claim(WORKER, [Kind(SOURCE, "invoice.paid")], number, 60.0)
    owners = owners or await store.claim(WORKER, [waiting.kind for waiting in await store.waiting()], number, 60.0)
    for owner in owners:
        assert await settle(store, owner, "complete")
    return [owner.id for owner in owners]


async def test_a_walk_resumes_where_it_ended_and_restarts_in_time(store: Store, clock: Clock) -> None:
    idents = await finished(store, 20)
    walker = pruner(store, clock, events=DAY)
    clock.offset += DAY + 1
    await store.replay(idents[3], State.PROCESSED, "ada", "again")
    assert (await walker.round()).events == 19
    assert await settle(store, await claim(store), "complete")
    clock.offset += DAY - 3600
    assert (await walker.round()).looked_at == 0
    clock.offset += 3600 + 1
    assert (await walker.round()).events == 1


async def test_a_dry_run_takes_nothing_away(store: Store, raw: Raw, clock: Clock) -> None:
    await story(store, clock)
    clock.offset += DAY + 1
    tables = (
        "events",
        "requests",
        "deliveries",
        "attempts",
        "effects",
        "effect_calls",
        "pruned",
        "prune_positions",
        "actions",
    )
    before = [await raw.all(table) for table in tables]
    everything = pruner(store, clock, events=DAY, payloads=DAY, history=DAY, failed=DAY)
    previewed = await everything.round(dry=True)
    assert [await raw.all(table) for table in tables] == before
    done = await everything.round(from_start=True)
    assert previewed.events == done.events > 4
    assert (previewed.payloads, previewed.history) == (done.payloads, done.history)
    assert await found(store) == {}


@pytest.mark.parametrize("rule", ["events", "payloads", "history", "failed"])
async def test_a_dry_run_says_what_will_go(store: Store, clock: Clock, rule: str) -> None:
    await story(store, clock)
    tried = await claimed(store, "tried", type="tried")
    assert await settle(store, tried, "reschedule", error="trace")
    assert await settle(store, await claim(store, Kind(SOURCE, "tried")), "complete")
    clock.offset += DAY + 1
    limits_: dict[str, Any] = {rule: DAY}
    walker = pruner(store, clock, **limits_)
    previewed, done = await walker.round(dry=True), await walker.round(from_start=True)
    assert getattr(previewed, "events" if rule == "failed" else rule) > 0
    previewed.looked_at = done.looked_at
    assert previewed == done


async def test_limits_that_look_alike_are_two_walks(store: Store, clock: Clock) -> None:
    """What the first has passed by is still due by the second."""
    owners = [await claimed(store, name, source=name) for name in ("a", "b")]
    for owner in owners:
        assert await settle(store, owner, "complete")
    clock.offset += 2_000_002
    by_source = {"a": Limits(events=2_000_000), "b": Limits(events=2_000_001)}
    done = await Pruner(store, FAST, by_source, Limits(), clock, WORKER).round()
    assert done.events == 2


async def test_one_at_a_time(store: Store, clock: Clock) -> None:
    first = Round("a", "ada", "why", 60.0)
    assert (await store.pruning.turn(first)).ours
    asking = asyncio.create_task(pruner(store, clock, "b", events=DAY).round())
    while not asking.done():  # who renews its turn is alive
        await asyncio.sleep(0.05)
        assert (await store.pruning.turn(first)).ours
    with pytest.raises(WrongState, match="a is pruning"):
        await asking
    await store.pruning.end_turn(first, OVER)
    await pruner(store, clock, "b", events=DAY).round()


async def test_the_turn_of_a_dead_one_is_taken_over(store: Store, raw: Raw, clock: Clock) -> None:
    """Nobody is refused because of it, and the audit says how far it came."""
    await finished(store, 3)
    clock.offset += DAY + 1
    dead = Round("a", "ada", "why", 1.0)
    assert (await store.pruning.turn(dead)).ours
    two = (await store.pruning.events(UUID(int=0), LAST_ID, 10))[:2]
    assert await store.pruning.prune(two, DAY, dead) == 2
    assert await entries(raw) == [("ada", "why", "2 events", "pruning")]
    assert (await pruner(store, clock, "b", events=DAY).round()).events == 1
    assert await entries(raw) == [
        ("ada", "why", "2 events", "interrupted"),
        ("hookledger", "retention", "1 events", "pruned"),
    ]


async def test_who_lost_its_turn_takes_nothing_away(store: Store, raw: Raw, clock: Clock) -> None:
    await finished(store, 3)
    clock.offset += DAY + 1
    frozen, other = Round("a", "ada", "why", 1.0), Round("b", "bob", "why", 60.0)
    assert (await store.pruning.turn(frozen)).ours
    clock.offset += 2
    assert (await store.pruning.turn(other)).ours
    with pytest.raises(WrongState, match="another took the turn"):
        await store.pruning.prune(await store.pruning.events(UUID(int=0), LAST_ID, 10), DAY, frozen)
    assert (await raw.count("events"), await entries(raw)) == (3, [])


async def test_a_round_that_fails_says_how_far_it_came(
    store: Store, raw: Raw, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finished(store, 20)
    clock.offset += DAY + 1
    walker, taken = pruner(store, clock, events=DAY), store.pruning.prune

    async def fails(chosen: Any, quiet: float, round_: Any) -> int:
        if round_.done.events:
            raise Unavailable("gone")
        return await taken(chosen, quiet, round_)

    monkeypatch.setattr(store.pruning, "prune", fails)
    with pytest.raises(Unavailable):
        await walker.round(Audit("ada", "why"))
    assert await entries(raw) == [("ada", "why", "7 events", "interrupted")]


async def entries(raw: Raw) -> list[Any]:
    return await raw.run("SELECT actor, reason, subject, to_state FROM actions WHERE name = 'prune' ORDER BY id")


async def test_the_audit_log_says_what_was_pruned(store: Store, raw: Raw, clock: Clock) -> None:
    await finished(store, 3)
    await prune(store, clock, events=DAY)
    rows = await raw.run("SELECT actor, reason, subject FROM actions WHERE name = 'prune'")
    assert rows == [("hookledger", "retention", "3 events")]


async def test_a_pruned_event_says_so(store: Store, clock: Clock) -> None:
    await store.know_sources([SOURCE])
    [ident] = await finished(store, 1)
    row = await event(store, ident)
    await prune(store, clock, events=DAY)
    context = Context(store)
    for reference in (str(ident), str(ident)[:18], "evt_0"):
        with pytest.raises(NotFound, match=r"was processed and was pruned on .*retention\.events"):
            await search.find(context, reference)
    with pytest.raises(NotFound, match="unknown event 'nobody'"):
        await search.find(context, "nobody")
    with pytest.raises(WrongState, match="was pruned on"):
        await store.replay(ident, row.state, "ada", "again", seen=row.claim)
    with pytest.raises(WrongState, match="was pruned on"):
        await store.retry(ident, State.FAILED, "ada", "again")
    with pytest.raises(WrongState, match="was pruned on"):
        await store.discard(ident, State.FAILED, "ada", "again")


# ── races ────────────────────────────────────────────────────────────────────


async def test_a_conflict_that_arrives_during_pruning_stays(
    store: Store, open_store: OpenStore, raw: Raw, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was acked and may be an event of its own. On SQLite nothing comes meanwhile."""
    owner = await claimed(store, "paid")
    assert await settle(store, owner, "complete")
    other, odd = await open_store(), delivered("paid", b"other")
    clock.offset += DAY + 1
    if isinstance(store, PostgresStore):
        over = pruning._over

        async def meanwhile(db: Session, idents: list[UUID]) -> Any:
            await record(other, odd)
            return await over(db, idents)

        monkeypatch.setattr(pruning, "_over", meanwhile)
        assert (await pruner(store, clock, events=DAY).round()).events == 1
    else:
        assert (await pruner(store, clock, events=DAY).round()).events == 1
        await record(other, odd)
    assert [one.request_id for one in await store.quarantine.quarantined()] == [odd.id]
    assert (await raw.count("requests"), await found(store)) == (1, {})
    await store.quarantine.accept(odd.id, 0, item("paid", b"other"), "ada", "ours")
    assert await found(store) == {}


@pytest.mark.parametrize("rule", ["events", "payloads"])
async def test_pruning_races_with_everyone(store: Store, open_store: OpenStore, clock: Clock, rule: str) -> None:
    """Replays, claims and duplicates while everything is being pruned: each event is replayed or pruned, not both."""
    idents = await finished(store, 60)
    clock.offset += DAY + 1
    other, third = await open_store(), await open_store()

    replayed = set()

    async def replays() -> None:
        for ident in reversed(idents):
            try:
                await other.replay(ident, State.PROCESSED, "ada", "again")
                replayed.add(ident)
            except WrongState as refused:
                assert "pruned" in str(refused)

    async def works() -> None:
        for _ in range(30):
            for owner in await third.claim("w2", [w.kind for w in await third.waiting()], 5, 60.0):
                assert owner.body == b"{}"
                assert await settle(third, owner, "complete")

    async def duplicates() -> None:
        for n in range(60):
            [verdict] = await record(third, delivered(f"evt_{n}"))
            assert verdict.outcome is DeliveryOutcome.DUPLICATE

    limits_: dict[str, Any] = {rule: DAY}
    pruning = pruner(store, clock, **limits_).round()
    done, *_ = await asyncio.gather(pruning, replays(), works(), duplicates())
    rows = {row.id: row for row in await store.search.events(limit=100)}
    gone = set(idents) - set(rows) if rule == "events" else {i for i, row in rows.items() if row.emptied_at}
    assert replayed | gone >= set(idents)
    assert not replayed & gone
    assert len(gone) == getattr(done, rule)
    assert await found(store) == {}


# ── guards ───────────────────────────────────────────────────────────────────


async def test_guards_outlive_their_events_and_answers_do_not(store: Store, raw: Raw, clock: Clock) -> None:
    first = await claimed(store, "first")
    await ask(store, first, 1731)
    late = await claimed(store, "late")
    await ask(store, late, 1720)
    before = await raw.all("guards")
    assert (await prune(store, clock, events=DAY)).events == 2
    assert (await raw.all("guards"), await raw.count("guard_answers")) == (before, 0)
    assert await found(store) == {}
    later = await claimed(store, "later")
    answer = await ask(store, later, 1725)
    assert answer.words == "stale for subscription sub_1: version 1731 by first was applied, this is 1725"
    [told] = (await history(store, later.id)).guards
    assert told.answer.words == answer.words, "the guard knows the key of the pruned event"
    newest = await claimed(store, "newest")
    await ask(store, newest, 1740)
    [told] = (await history(store, later.id)).guards
    assert f"by event {first.id} was applied" in told.answer.words, "and then only its id is known"
    assert await found(store) == {}


async def test_an_answer_left_behind_is_found(store: Store, raw: Raw, clock: Clock) -> None:
    owner = await claimed(store)
    await ask(store, owner, 1731)
    before = await raw.run("SELECT * FROM guard_answers")
    await prune(store, clock, events=DAY)
    assert len(before) == 1
    await raw.run("INSERT INTO guard_answers (event_id, claim, identity, name, key, kind, version, position, rank, "
                  "applied, at) SELECT event_id, claim, identity, name, key, kind, version, position, rank, "
                  f"{'1' if raw.now.isdigit() else 'true'}, applied_at FROM guards")  # fmt: skip
    assert await found(store) == {"answers_astray": 1}
