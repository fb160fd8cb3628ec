"""Deciding many unknown effects: a frozen set, each decided once, and never about a later call of the same effect."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import ConfigError, WrongState
from hookledger.ledger import Completion, Effect, Started
from hookledger.operate import decide
from hookledger.operate.audit import by
from hookledger.operate.bulk import jobs as bulk_jobs
from hookledger.operate.bulk import plan as bulk
from hookledger.operate.bulk.runner import JobRunner
from hookledger.operate.context import Context
from hookledger.operate.effects import resolve
from hookledger.operate.timeline import timeline
from hookledger.states import CallOutcome, EffectState, State
from hookledger.store.ops.filters import EVERYTHING, Filter
from hookledger.store.ops.job import Cause, Decided, ItemOutcome, Job, JobState, Resolving
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import (
    KIND,
    LEASE,
    WORKER,
    Raw,
    claimed,
    delivered,
    event,
    history,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.contract.test_jobs import look, taken
from tests.ledger import CALL, LATER, NAME, finish, get, intent, reach, take

UNKNOWN, DONE, PLANNED = EffectState.UNKNOWN, EffectState.DONE, EffectState.PLANNED
WHY = "their support says so"


async def doubtful(store: Store, count: int, each: int = 1) -> list[UUID]:
    """So many events that wait for a person, each with so many unknown calls; in the order of their ids."""
    await record(store, *(delivered(f"evt_{n:05}") for n in range(count)))
    idents: list[UUID] = []
    while owners := await store.claim(WORKER, [KIND], 200, LEASE):
        intents = [intent(owner, f"{owner.key}:{n}") for owner in owners for n in range(each)]
        started = await store.ledger.start(intents, WORKER)
        assert all(isinstance(one, Started) for one in started)
        ends = [Completion(i.identity, 1, CallOutcome.UNKNOWN, error="time-out") for i in intents]
        assert {end.state for end in await store.ledger.finish(ends)} == {UNKNOWN}
        reasons = {o.id: f"effect {NAME} '{o.key}:0' may have happened: time-out" for o in owners}
        outcomes = [way_out(owner, "review", reason=reasons[owner.id]) for owner in owners]
        assert await store.settle(outcomes) == reasons.keys()
        idents += reasons
    return sorted(idents)


async def plan(
    store: Store, decision: Decided = "did_not_happen", where: Filter = EVERYTHING, name: str = NAME, **other: Any
) -> Job:
    resolving = Resolving(name, decision)
    how: dict[str, Any] = {"per_second": 0.0, "resolving": resolving} | other
    return await bulk.plan(Context(store), by("ada", WHY), "resolve", where, **how)


def runner(store: Store, name: str = "runner") -> JobRunner:
    return JobRunner(Context(store, lease=LEASE), worker=name)


async def effects_of(store: Store, ident: UUID) -> list[Effect]:
    return [known.effect for known in (await history(store, ident)).effects]


async def item_of(store: Store, job: Job, ident: UUID) -> tuple[ItemOutcome | None, Cause | None, str]:
    [item] = [item for item in await store.jobs.items(job.id, limit=1000) if item.event_id == ident]
    return item.outcome, item.cause, item.words or ""


async def decisions(store: Store, ident: UUID) -> list[str]:
    """Who decided something about an effect of this event."""
    return [action.actor for action in (await history(store, ident)).actions if action.name == "resolve"]


# ── the set ──────────────────────────────────────────────────────────────────


async def test_the_set_is_what_is_unknown_of_that_name(store: Store, clock: Clock, raw: Raw) -> None:
    idents = await doubtful(store, 3)
    for number, (state, name) in enumerate([(DONE, NAME), (PLANNED, NAME), (UNKNOWN, "mail"), (UNKNOWN, NAME)]):
        owner = await claimed(store, f"other_{number}", type=f"t{number}")
        await reach(store, clock, owner, state, CALL, f"k{number}", name=name)
    await recorded(store, "none", type="none")
    preview = await bulk.look(Context(store), "resolve", Filter(type=KIND.type), Resolving(NAME, "happened"))
    assert (preview.count, preview.effects, preview.agreed, preview.allowed) == (3, 3, 3, 3)
    assert [(p.type, p.state, p.count) for p in preview.groups] == [(KIND.type, State.NEEDS_REVIEW, 3)]
    assert "not called again" in (preview.consequence or "")
    preview = await bulk.look(Context(store), "resolve", EVERYTHING, Resolving(NAME, "did_not_happen"))
    assert (preview.count, preview.effects) == (4, 4)
    assert "same idempotency key" in (preview.consequence or "")
    job = await plan(store, where=Filter(type=KIND.type), count=3)
    assert (job.total, job.effects, job.resolving) == (3, 3, Resolving(NAME, "did_not_happen"))
    assert [item.event_id for item in await store.jobs.items(job.id)] == idents
    frozen = await raw.run("SELECT fence FROM job_effects")
    assert frozen == [(2,)] * 3
    [action] = await raw.run("SELECT name, actor, reason, from_state, to_state FROM actions WHERE event_id IS NULL")
    assert action == ("bulk resolve", "ada", WHY, "absent", "planned")


async def test_more_than_one_batch_and_several_effects_of_each(store: Store, raw: Raw) -> None:
    """On SQLite an event's effects may be in two batches."""
    idents = await doubtful(store, 400, each=3)
    job = await plan(store, count=1200)
    assert (job.total, job.effects, job.frozen_at is not None) == (400, 1200, True)
    items = await store.jobs.items(job.id, limit=1000)
    assert [item.event_id for item in items] == idents
    assert await raw.count("job_effects") == 1200


@pytest.mark.parametrize("agreed", [5, 7, 3])
async def test_what_is_agreed_to_is_how_many_effects(store: Store, raw: Raw, agreed: int) -> None:
    await doubtful(store, 3, each=2)
    with pytest.raises(WrongState, match=f"6 effects {NAME} are unknown now, and not the {agreed}"):
        await plan(store, count=agreed)
    assert [await raw.count(table) for table in ("jobs", "job_items", "job_effects")] == [0, 0, 0]


async def test_nothing_to_decide(store: Store, raw: Raw) -> None:
    await doubtful(store, 1)
    for where, name in ((EVERYTHING, "mail"), (Filter(type="other"), NAME)):
        with pytest.raises(WrongState, match=f"no event that matches has an effect {name} that is unknown"):
            await plan(store, where=where, name=name)
    assert await raw.count("jobs") == 0


async def test_a_resolve_names_its_effect_and_nothing_else_does(store: Store, raw: Raw) -> None:
    context = Context(store)
    for act in (bulk.plan(context, by("ada", WHY), "resolve", EVERYTHING), bulk.look(context, "resolve", EVERYTHING)):
        with pytest.raises(ConfigError, match="the name of the effect"):
            await act
    about = Resolving(NAME, "happened")
    planned = bulk.plan(context, by("ada", WHY), "retry", EVERYTHING, resolving=about)
    for again in (planned, bulk.look(context, "retry", EVERYTHING, about)):
        with pytest.raises(ConfigError, match="only resolve"):
            await again
    for name in ("", "a\0b", "a\ud800", "x" * 1001):
        with pytest.raises(ConfigError, match="the effect's name"):
            Resolving(name, "happened")
    assert await raw.count("jobs") == 0


# ── deciding ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("decision", "state"), [("happened", DONE), ("did_not_happen", PLANNED)])
async def test_each_effect_once(store: Store, decision: Decided, state: EffectState) -> None:
    idents = await doubtful(store, 30)
    job = await plan(store, decision)
    assert await runner(store).run_one(job.id)
    job = await look(store, job)
    assert (job.state, job.done, job.not_allowed, job.lease_left) == (JobState.DONE, 30, 0, 0)
    for ident in idents:
        found = await history(store, ident)
        [effect] = [known.effect for known in found.effects]
        assert (effect.state, effect.fence, effect.decided, effect.generation) == (state, 3, decision, 1)
        assert (found.event.state, found.event.attention, found.event.reason) == (State.PENDING, False, None)
        part = f"job {job.id}"
        assert [(a.name, a.actor, a.reason, a.subject, a.from_state, a.to_state) for a in found.actions] == [
            ("resolve", "ada", WHY, f"{NAME}:{effect.key}, {part}", "unknown", state),
            ("retry", "ada", WHY, part, "needs_review", "pending"),
        ]
        labels = [entry.effect for entry in timeline(found) if entry.what == "resolve"]
        assert labels == [f"{NAME}:{effect.key}"], "as that of its calls"
    assert not (await store.consistency.report()).imbalances
    assert not await runner(store).run_one(job.id), "what is done is not done again"
    [owner] = await store.claim(WORKER, [KIND], 1, LEASE)
    [known] = await effects_of(store, owner.id)
    again = await store.ledger.restart(known, WORKER, LEASE)
    assert (again is None) == (state is DONE)
    assert again is None or (again.number, again.generation) == (2, 1), "the same idempotency key"


@pytest.mark.parametrize(("decision", "state"), [("happened", DONE), ("did_not_happen", PLANNED)])
async def test_entries_of_the_outbox(store: Store, clock: Clock, decision: Decided, state: EffectState) -> None:
    """Their event is done: it stays so, and wants nobody's attention any more."""
    owner = await claimed(store)
    known = await reach(store, clock, owner, UNKNOWN, LATER)
    assert await settle(store, owner, "complete")
    assert (await event(store, owner.id)).attention
    job = await plan(store, decision)
    await runner(store).run_one(job.id)
    assert (await get(store, known.identity)).state is state
    found = await history(store, owner.id)
    assert (found.event.state, found.event.attention) == (State.PROCESSED, False)
    assert [action.name for action in found.actions] == ["resolve"]
    assert [effect.number for effect in await take(store)] == ([2] if state is PLANNED else [])


async def test_all_of_an_event_or_nothing(store: Store) -> None:
    """It would only go round to stop at the next one. One that cannot be decided keeps the others as they are."""
    whole, torn = await doubtful(store, 2, each=3)
    job = await plan(store, count=6)
    late = (await effects_of(store, torn))[1]
    await finish(store, late.identity, 1, "done")
    await runner(store).run_one(job.id)
    assert {effect.state for effect in await effects_of(store, whole)} == {PLANNED}
    assert [a.name for a in (await history(store, whole)).actions] == ["resolve"] * 3 + ["retry"]
    assert Counter(effect.state for effect in await effects_of(store, torn)) == {UNKNOWN: 2, DONE: 1}
    assert await decisions(store, torn) == []
    outcome, cause, words = await item_of(store, job, torn)
    assert (outcome, cause) == (ItemOutcome.NOT_ALLOWED, Cause.CHANGED)
    assert f"effect {NAME}:{late.key} is done now" in words
    assert (await look(store, job)).done == 1
    again = await plan(store, count=2)
    await runner(store).run_one(again.id)
    assert Counter(effect.state for effect in await effects_of(store, torn)) == {PLANNED: 2, DONE: 1}


async def test_others_that_waited_for_it_continue(store: Store, clock: Clock) -> None:
    owner = await claimed(store)
    await reach(store, clock, owner, UNKNOWN, CALL)
    other = await claimed(store, "other", type="other")
    assert await settle(store, other, "review", reason=f"effect {NAME} 'k' may have happened: 503")
    job = await plan(store, "happened")
    await runner(store).run_one(job.id)
    found = await history(store, other.id)
    assert found.event.state is State.PENDING
    assert [(a.name, a.actor, a.subject) for a in found.actions] == [("retry", "ada", f"job {job.id}")]


# ── what changed meanwhile ───────────────────────────────────────────────────


async def called_again(store: Store, known: Effect) -> None:
    """Decided by somebody else, called again, and nobody knows again."""
    await store.ledger.resolve(known, "did_not_happen", None, "bob", "I asked them")
    assert await store.ledger.restart(await get(store, known.identity), WORKER, LEASE) is not None
    await finish(store, known.identity, 2, "unknown")


@pytest.mark.parametrize("decision", ["happened", "did_not_happen"])
async def test_a_later_call_of_the_same_effect_is_not_decided(store: Store, raw: Raw, decision: Decided) -> None:
    """The set was frozen after the first call. The person who agreed to it knows nothing of the second."""
    first, other = await doubtful(store, 2)
    job = await plan(store, decision)
    [known] = await effects_of(store, first)
    await called_again(store, known)
    before = await raw.all("effect_calls")
    [seen] = await effects_of(store, first)
    assert (seen.state, seen.number) == (UNKNOWN, 2)
    await runner(store).run_one(job.id)
    [after] = await effects_of(store, first)
    assert (after.state, after.fence, after.decided) == (UNKNOWN, seen.fence, "did_not_happen")
    assert await raw.all("effect_calls") == before
    assert await decisions(store, first) == ["bob"]
    outcome, cause, words = await item_of(store, job, first)
    assert (outcome, cause) == (ItemOutcome.NOT_ALLOWED, Cause.CHANGED)
    assert f"effect {NAME}:{known.key} is unknown again" in words
    assert "by bob at" in words
    assert await decisions(store, other) == ["ada"]


async def test_another_operator_was_faster(store: Store) -> None:
    """The job is told who did what, and goes on with the others."""
    idents = await doubtful(store, 3)
    job = await plan(store)
    [known] = await effects_of(store, idents[1])
    await resolve(Context(store), by("bob", "I saw it there"), known, "happened", None)
    await runner(store).run_one(job.id)
    outcome, cause, words = await item_of(store, job, idents[1])
    assert (outcome, cause) == (ItemOutcome.NOT_ALLOWED, Cause.CHANGED)
    assert f"effect {NAME}:{known.key} is done now" in words
    assert "by bob at" in words
    assert "(I saw it there)" in words
    assert [await decisions(store, ident) for ident in idents] == [["ada"], ["bob"], ["ada"]]
    found = await look(store, job)
    assert (found.state, found.done, found.not_allowed) == (JobState.DONE, 2, 1)
    [group] = await store.jobs.causes(job.id)
    assert (group.cause, group.count) == (Cause.CHANGED, 1)
    assert not (await store.consistency.report()).imbalances


@pytest.mark.parametrize(("end", "state"), [("done", DONE), ("refused", EffectState.FAILED)])
async def test_an_answer_that_came_late(store: Store, end: str, state: EffectState) -> None:
    """Evidence, between the freezing and its turn: it is not overwritten, and nobody is blamed for it."""
    [ident] = await doubtful(store, 1)
    job = await plan(store)
    [known] = await effects_of(store, ident)
    await finish(store, known.identity, 1, end)
    await runner(store).run_one(job.id)
    [after] = await effects_of(store, ident)
    assert (after.state, after.decided, after.alert) == (state, None, None)
    outcome, cause, words = await item_of(store, job, ident)
    assert (outcome, cause) == (ItemOutcome.NOT_ALLOWED, Cause.CHANGED)
    assert f"is {state} now" in words
    assert await decisions(store, ident) == []


async def test_what_was_erased_cannot_be_called_again(store: Store, clock: Clock, raw: Raw) -> None:
    owner = await claimed(store)
    await reach(store, clock, owner, UNKNOWN, LATER)
    assert await settle(store, owner, "complete")
    await raw.run(f"UPDATE effects SET arguments = {'x' if isinstance(store, SqliteStore) else ''}''")
    for decision, outcome, cause in (
        ("did_not_happen", ItemOutcome.NOT_ALLOWED, Cause.STATE),
        ("happened", ItemOutcome.DONE, None),
    ):
        job = await plan(store, decision)  # type: ignore[arg-type]
        await runner(store).run_one(job.id)
        found = await item_of(store, job, owner.id)
        assert found[:2] == (outcome, cause)
        assert ("were erased" in found[2]) == (cause is not None)


async def test_the_event_continued_in_between(store: Store, clock: Clock) -> None:
    """What a person found out about a call is true whatever became of its event."""
    discarded, retried = await doubtful(store, 2)
    job = await plan(store, "happened")
    await decide.discard(Context(store), by("bob", "a test"), await event(store, discarded))
    await decide.retry(Context(store), by("bob", "again"), await event(store, retried))
    await runner(store).run_one(job.id)
    assert (await look(store, job)).done == 2
    assert (await event(store, discarded)).state is State.DISCARDED
    assert (await event(store, retried)).state is State.PENDING
    assert {e.state for ident in (discarded, retried) for e in await effects_of(store, ident)} == {DONE}


# ── races and crashes ────────────────────────────────────────────────────────


async def test_racing_with_people_and_answers(store: Store, open_store: OpenStore) -> None:
    """Two runners, another operator and late answers at the same effects: one of them has each, and says so."""
    idents = await doubtful(store, 24)
    other = await open_store()
    job = await plan(store, "happened")
    known = {ident: (await effects_of(store, ident))[0] for ident in idents}

    async def decide_too() -> None:
        for ident in idents[::-2]:
            try:
                await resolve(Context(other), by("bob", "no"), known[ident], "did_not_happen")
            except WrongState as error:
                assert "has changed" in str(error)

    async def answer() -> None:
        for ident in idents[::-3]:
            await finish(other, known[ident].identity, 1, "done")

    await asyncio.gather(
        runner(store).run_one(job.id), runner(other, "second").run_one(job.id), decide_too(), answer()
    )
    found = await look(store, job)
    assert (found.state, found.done + found.not_allowed) == (JobState.DONE, 24)
    for ident in idents:
        [effect] = await effects_of(store, ident)
        who = await decisions(store, ident)
        outcome, cause, _ = await item_of(store, job, ident)
        assert (who == ["ada"]) == (outcome is ItemOutcome.DONE)
        assert (cause is Cause.CHANGED) == (outcome is ItemOutcome.NOT_ALLOWED)
        assert len(who) == 1 or (who == [] and effect.state is DONE), "decided once, or answered before"
    assert not (await store.consistency.report()).imbalances


def _raise(error: Exception) -> None:
    raise error


async def test_a_step_is_all_or_nothing(store: Store, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies after the decisions, before the job knows: nothing of it is there, and the next runner does it."""
    idents = await doubtful(store, 4, each=2)
    job = await plan(store)
    owner = await taken(store, job)
    assert await runner(store).step(owner, 1)
    tables = ("jobs", "job_items", "effects", "events", "actions")
    before = [await raw.all(table) for table in tables]
    resolve_all: Any = store.ledger.resolve_all
    decided: list[Any] = []

    def dies(*args: Any) -> Any:
        decided.append(args)
        made = resolve_all(*args)

        async def die() -> None:
            await made
            raise RuntimeError("killed here")

        return die() if made is not None else _raise(RuntimeError("killed here"))

    with monkeypatch.context() as patch:
        patch.setattr(store.ledger, "resolve_all", dies)
        with pytest.raises(RuntimeError, match="killed here"):
            await runner(store).step(owner, 2)
    assert decided
    assert [await raw.all(table) for table in tables] == before
    await store.jobs.release(owner)
    assert await runner(store, "second").run_one(job.id)
    assert [await decisions(store, ident) for ident in idents] == [["ada", "ada"]] * 4
    assert (await look(store, job)).done == 4
    assert await store.jobs.step(owner, await store.jobs.items(job.id), {}, LEASE) is None, "the first has lost it"


async def test_several_events_in_one_step(store: Store) -> None:
    """The runner takes them one by one; the store may be asked for more."""
    idents = await doubtful(store, 6, each=2)
    job = await plan(store)
    owner = await taken(store, job)
    [known, *_] = await effects_of(store, idents[2])
    await finish(store, known.identity, 1, "done")
    items = await store.jobs.open_items(owner, 6)
    after = await store.jobs.step(owner, items, {}, LEASE)
    assert after is not None
    assert (after.done, after.not_allowed) == (5, 1)
    assert [len(await decisions(store, ident)) for ident in idents] == [2, 2, 0, 2, 2, 2]


async def test_cancel_in_the_middle(store: Store) -> None:
    idents = await doubtful(store, 5)
    job = await plan(store)
    owner = await taken(store, job)
    assert await runner(store).step(owner, 2)
    found = await bulk_jobs.cancel(Context(store), by("bob", "they were wrong"), job)
    assert (found.state, found.done, found.open) == (JobState.CANCELLED, 2, 3)
    assert not await runner(store).step(owner, 2)
    states = [(await effects_of(store, ident))[0].state for ident in idents]
    assert states == [PLANNED] * 2 + [UNKNOWN] * 3


async def test_one_event_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks through all that waits for a person, while every ack waits on SQLite."""
    await doubtful(store, 3)
    job = await plan(store)
    steps: list[int] = []
    step = type(store.jobs).step

    async def counted(self: Any, owner: Any, items: Any, *rest: Any) -> Any:
        steps.append(len(items))
        return await step(self, owner, items, *rest)

    monkeypatch.setattr(type(store.jobs), "step", counted)
    await runner(store).run_one(job.id)
    assert steps == [1, 1, 1]


async def test_a_step_and_a_batch_of_answers_at_the_same_moment(store: Store, open_store: OpenStore) -> None:
    """Both take several effects, then several events; in one order, so neither has to give way for ever."""
    idents = await doubtful(store, 12, each=2)
    other = await open_store()
    job = await plan(store, "happened")
    owner = await taken(store, job)
    effects = [effect for ident in idents[::-1] for effect in await effects_of(store, ident)]
    ends = [Completion(effect.identity, 1, CallOutcome.DONE) for effect in effects[::2]]
    items = await store.jobs.open_items(owner, 12)
    after, concluded = await asyncio.gather(store.jobs.step(owner, items, {}, LEASE), other.ledger.finish(ends))
    assert after is not None
    assert after.done + after.not_allowed == 12
    assert {end.state for end in concluded} == {DONE}
