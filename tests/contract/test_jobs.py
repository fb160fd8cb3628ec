"""Bulk work: a frozen set, acted on once, whoever runs it and however often."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from hookledger.clock import Clock
from hookledger.errors import ConfigError, HookledgerError, WrongState
from hookledger.ids import LAST_ID, new_id
from hookledger.operate import decide, pauses
from hookledger.operate.audit import by
from hookledger.operate.bulk import jobs as bulk_jobs
from hookledger.operate.bulk import plan as bulk
from hookledger.operate.bulk.runner import JobRunner
from hookledger.operate.context import Context
from hookledger.operate.errors import Ambiguous, NotFound
from hookledger.operate.replay import replay
from hookledger.operate.retention.erase import erase
from hookledger.states import EffectKind, Repeat, State
from hookledger.store.ops import decisions
from hookledger.store.ops.filters import EVERYTHING, Filter
from hookledger.store.ops.job import Cause, ItemOutcome, Job, JobState, Taken
from hookledger.store.ops.pruning import Round
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.jobs import SqliteJobs
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import (
    KIND,
    LEASE,
    WORKER,
    Raw,
    claim,
    delivered,
    event,
    history,
    record,
    recorded,
    settle,
    way_out,
)
from tests.contract.conftest import OpenStore
from tests.ledger import intent

FAILED = Filter(states=(State.FAILED,))


async def failed(store: Store, count: int, prefix: str = "evt") -> list[UUID]:
    """So many events in the dead letter, in the order of their ids."""
    await record(store, *(delivered(f"{prefix}_{n:05}") for n in range(count)))
    while owners := await store.claim(WORKER, [KIND], 200, LEASE):
        assert await store.settle([way_out(owner, "fail") for owner in owners]) == {owner.id for owner in owners}
    rows = await store.search.events(FAILED, limit=count)
    return [row.id for row in rows][::-1]


async def plan(store: Store, name: Any = "replay", where: Filter = FAILED, **other: Any) -> Job:
    return await bulk.plan(
        Context(store), by("ada", "the outage is over"), name, where, **{"per_second": 0.0} | other
    )


def runner(store: Store, name: str = "runner") -> JobRunner:
    return JobRunner(Context(store, lease=LEASE), worker=name)


async def taken(store: Store, job: Job, name: str = "runner") -> Taken:
    found = await store.jobs.take(name, LEASE, job.id)
    assert found is not None
    return found


async def look(store: Store, job: Job) -> Job:
    found = await store.jobs.job(job.id)
    assert found is not None
    return found


async def replays(store: Store, ident: UUID) -> list[tuple[str, str, str | None]]:
    return [(a.actor, a.reason, a.subject) for a in (await history(store, ident)).actions if a.name == "replay"]


# ── freezing ─────────────────────────────────────────────────────────────────


async def test_the_set_is_what_matched_at_that_moment(store: Store, raw: Raw) -> None:
    idents = await failed(store, 25)
    waiting = await recorded(store, "other")
    job = await plan(store, count=25)
    late = await failed(store, 3, "late")  # they match, and came too late, as `other` does
    assert late
    assert (job.state, job.total, job.done, job.not_allowed, job.name) == (JobState.PLANNED, 25, 0, 0, "replay")
    assert job.frozen_at is not None
    assert job.where == FAILED
    items = await store.jobs.items(job.id, limit=100)
    assert [item.event_id for item in items] == idents
    assert {(item.state, item.claim, item.outcome) for item in items} == {(State.FAILED, 2, None)}
    assert waiting not in idents
    [action] = await raw.run("SELECT name, actor, reason, from_state, to_state FROM actions WHERE event_id IS NULL")
    assert action == ("bulk replay", "ada", "the outage is over", "absent", "planned")


async def test_more_than_one_batch_is_frozen_whole(store: Store) -> None:
    await record(store, *(delivered(f"evt_{n}") for n in range(1203)))
    job = await plan(store, "discard", EVERYTHING)
    seen: list[UUID] = []
    while page := await store.jobs.items(job.id, after=seen[-1] if seen else None, limit=500):
        seen += [item.event_id for item in page]
    assert len(set(seen)) == len(seen) == job.total == 1203


async def test_what_its_events_are_now(store: Store) -> None:
    await failed(store, 4)
    job = await plan(store, "retry")
    assert await store.jobs.present(job.id) == {}, "none was acted on"
    await runner(store).run_one(job.id)
    assert await store.jobs.present(job.id) == {"pending": 4}
    await settle(store, await claim(store), "complete")
    assert await store.jobs.present(job.id) == {"pending": 3, "processed": 1}, "the most first"
    assert await store.jobs.present(new_id()) == {}


@pytest.mark.parametrize("agreed", [4, 6, 0])
async def test_a_count_that_changed_is_refused(store: Store, raw: Raw, agreed: int) -> None:
    await failed(store, 5)
    with pytest.raises(WrongState, match=f"5 events match now, and not the {agreed}"):
        await plan(store, count=agreed)
    assert [await raw.count(table) for table in ("jobs", "job_items")] == [0, 0]
    assert await raw.run("SELECT 1 FROM actions WHERE event_id IS NULL") == []


async def test_nothing_to_do_is_refused(store: Store, raw: Raw) -> None:
    with pytest.raises(WrongState, match="no event matches"):
        await plan(store)
    assert await raw.count("jobs") == 0


@pytest.mark.parametrize("pace", [-1.0, float("nan"), float("inf")])
async def test_an_invalid_rate_limit(store: Store, pace: float) -> None:
    with pytest.raises(ConfigError, match="per_second must be a finite number"):
        await plan(store, per_second=pace)


async def test_no_reason_no_job(store: Store) -> None:
    with pytest.raises(ConfigError, match="reason is required"):
        await bulk.plan(Context(store), by("ada", " "), "retry", FAILED)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a\0b", "NUL"), ("caf\udce9", "not text"), ("a\ud800", "not text"), ("x" * 2001, "longer than 2,000")],
)
async def test_words_that_cannot_be_kept(store: Store, raw: Raw, text: str, words: str) -> None:
    """A reason stands in the audit of each event: a long one would be written a hundred thousand times."""
    context = Context(store)
    with pytest.raises(ConfigError, match=f"reason .*{words}"):
        by("ada", text)
    with pytest.raises(ConfigError, match=f"actor .*{words}"):
        by(text, "why")
    for act in (
        pauses.pause(context, by("ada", "why"), text),
        pauses.pause(context, by("ada", "why"), "stripe", text),
    ):
        with pytest.raises(ConfigError, match=words):
            await act
    assert [await raw.count(table) for table in ("actions", "jobs", "pauses")] == [0, 0, 0]


async def test_one_snapshot_while_events_come_and_go(store: Store, open_store: OpenStore) -> None:
    """Others accept and process all the while: what is frozen was so at one moment."""
    await failed(store, 1500)
    other = await open_store()
    stop = asyncio.Event()

    async def meddle() -> int:
        """One event leaves the set for each that enters it, in this order: at no moment are there more than 1500."""
        changed = 0
        while not stop.is_set():
            [row] = await other.search.events(FAILED, limit=1)
            await other.retry(row.id, State.FAILED, "bob", "one leaves")
            assert await settle(other, await claim(other), "complete")
            await recorded(other, f"new_{changed}")
            assert await settle(other, await claim(other), "fail")
            changed += 1
        return changed

    meddling = asyncio.create_task(meddle())
    while not await other.search.count(Filter(states=(State.PROCESSED,))):
        await asyncio.sleep(0.001)
    jobs = [await plan(store) for _ in range(3)]
    stop.set()
    assert await meddling > 0
    for job in jobs:
        assert job.total in (1499, 1500), "a smeared set counts those that left and those that came"
        items = await store.jobs.items(job.id, limit=2000)
        assert len({item.event_id for item in items}) == job.total
        assert {item.state for item in items} == {State.FAILED}


async def test_a_crash_while_freezing(store: Store, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite the set is written in batches: what has no whole set is never run, shows it, and can be cancelled."""
    idents = await failed(store, 1100)
    if not isinstance(store, SqliteStore):  # one transaction there: nothing is left behind
        with pytest.raises(WrongState):
            await plan(store, count=1)
        assert [await raw.count(table) for table in ("jobs", "job_items")] == [0, 0]
        return

    freeze = SqliteJobs._freeze
    batches: list[Any] = []

    async def dies(self: SqliteJobs, new: Any, batch: Any) -> None:
        if batches:
            raise HookledgerError("killed here")
        batches.append(batch)
        await freeze(self, new, batch)

    monkeypatch.setattr(SqliteJobs, "_freeze", dies)
    with pytest.raises(HookledgerError, match="killed here"):
        await plan(store)
    [job] = await store.jobs.jobs()
    assert (job.state, job.frozen_at, job.total) == (JobState.PLANNED, None, 1100)
    assert await raw.count("job_items") == 500
    assert await store.jobs.take("runner", LEASE) is None
    assert not await runner(store).run_one(job.id)
    cancelled = await store.jobs.cancel(job.id, "ada", "it was never whole")
    assert cancelled.state is JobState.CANCELLED
    assert await replays(store, idents[0]) == []


async def test_giving_up_while_the_set_is_read(store: Store) -> None:
    """Ctrl-C, say. On SQLite a thread may be reading at that moment: it ends, and nothing of it stays open."""
    await record(store, *(delivered(f"evt_{n}") for n in range(1200)))
    for pause in range(12):
        planning = asyncio.create_task(plan(store, "discard", EVERYTHING))
        await asyncio.sleep(0.0005 * pause)
        planning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await planning
    assert (await plan(store, "discard", EVERYTHING, count=1200)).frozen_at is not None


# ── running ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "after", "run"),
    [("retry", State.PENDING, 1), ("replay", State.PENDING, 2), ("discard", State.DISCARDED, 1)],
)
async def test_each_event_once(store: Store, name: Any, after: State, run: int) -> None:
    idents = await failed(store, 230)
    job = await plan(store, name)
    assert await runner(store).run_one(job.id)
    job = await look(store, job)
    assert (job.state, job.done, job.not_allowed, job.lease_left) == (JobState.DONE, 230, 0, 0)
    assert job.started_at is not None
    assert job.finished_at is not None
    for ident in idents[::40]:
        found = await history(store, ident)
        assert (found.event.state, found.event.run, found.event.claim) == (after, run, 3)
        [action] = found.actions
        assert (action.name, action.actor, action.reason) == (name, "ada", "the outage is over")
        assert action.subject is not None
        assert action.subject.endswith(f"job {job.id}")
        assert action.subject.startswith("run 2, ") == (name == "replay")
    assert await store.counts() == {after: 230}
    assert not (await store.consistency.report()).imbalances
    assert not await runner(store).run_one(job.id), "what is done is not done again"


async def test_what_has_changed_is_refused_with_a_reason(store: Store) -> None:
    first, second, third, fourth = await failed(store, 4)
    job = await plan(store)
    await decide.discard(Context(store), by("bob", "a test event"), await event(store, first))
    await decide.retry(Context(store), by("bob", "I was faster"), await event(store, second))
    await decide.retry(Context(store), by("bob", "round it goes"), await event(store, third))
    for owner in await store.claim(WORKER, [KIND], 10, LEASE):
        assert await settle(store, owner, "complete" if owner.id == second else "fail")
    await runner(store).run_one(job.id)
    items = {item.event_id: item for item in await store.jobs.items(job.id)}
    words = {ident: item.words or "" for ident, item in items.items()}
    assert [items[i].outcome for i in (first, second, third)] == [ItemOutcome.NOT_ALLOWED] * 3
    assert {items[i].cause for i in (first, second, third)} == {Cause.CHANGED}
    assert "is discarded now" in words[first]
    assert "discard by bob" in words[first]
    assert "is processed now" in words[second]
    assert "is failed again now" in words[third]
    assert "retry by bob" in words[third]
    assert (items[fourth].outcome, items[fourth].words) == (ItemOutcome.DONE, None)
    now = [State.DISCARDED, State.PROCESSED, State.FAILED, State.PENDING]
    assert [items[ident].now for ident in (first, second, third, fourth)] == now, "each as it is by now"
    job = await look(store, job)
    assert (job.state, job.done, job.not_allowed) == (JobState.DONE, 1, 3)
    assert await replays(store, first) == await replays(store, third) == []
    [group] = await store.jobs.causes(job.id)
    assert (group.cause, group.count) == (Cause.CHANGED, 3)
    refused = await store.jobs.items(job.id, outcome=ItemOutcome.NOT_ALLOWED)
    assert [(item.event_id, item.now) for item in refused] == [*zip((first, second, third), now, strict=False)]
    assert [i.event_id for i in await store.jobs.items(job.id, outcome=ItemOutcome.NOT_ALLOWED, after=first)] == [
        second,
        third,
    ]
    assert [i.event_id for i in await store.jobs.items(job.id, outcome=ItemOutcome.DONE)] == [fourth]


async def test_what_retention_pruned_is_refused_with_a_reason(store: Store, clock: Clock) -> None:
    """A frozen set does not keep its events: whoever asked is told what became of each."""
    for name in ("pruned", "emptied", "erased", "kept"):
        await recorded(store, name)
        assert await settle(store, await claim(store), "complete")
    rows = {row.key: row for row in await store.search.events(EVERYTHING, limit=10)}
    job = await plan(store, "replay", EVERYTHING, count=4)
    clock.offset += 10
    found = {one.id: one for one in await store.pruning.events(UUID(int=0), LAST_ID, 10)}
    round_ = Round("test", "ada", "retention", 60.0)
    assert (await store.pruning.turn(round_)).ours
    assert await store.pruning.prune([found[rows["pruned"].id]], 1.0, round_) == 1
    assert await store.pruning.empty([found[rows["emptied"].id]], 1.0, round_) == 1
    await erase(Context(store), by("bob", "she asked for it"), rows["erased"])
    assert await runner(store).run_one(job.id)
    items = await store.jobs.items(job.id)
    words = {item.event_id: item.words or "" for item in items}
    assert {item.event_id for item in items if item.now is None} == {rows["pruned"].id}
    assert "was pruned on" in words[rows["pruned"].id]
    assert "the event's body is not kept" in words[rows["emptied"].id]
    assert "the event's body is not kept" in words[rows["erased"].id]
    assert words[rows["kept"].id] == ""
    job = await look(store, job)
    assert (job.state, job.done, job.not_allowed) == (JobState.DONE, 1, 3)
    assert not (await store.consistency.report()).imbalances


async def test_states_that_the_action_does_not_begin_in(store: Store) -> None:
    await failed(store, 3)
    await recorded(store, "waits")
    job = await plan(store, "retry", EVERYTHING)
    await runner(store).run_one(job.id)
    [group] = await store.jobs.causes(job.id)
    assert (group.cause, group.count) == (Cause.STATE, 1)
    assert group.sample == "it was pending; retry is allowed only in: failed, needs_review, retrying"
    assert await store.counts() == {State.PENDING: 4}


async def test_a_replay_that_needs_a_decision_is_refused(store: Store) -> None:
    """The same verdict as for the single replay, from the same code."""
    await recorded(store, "evt_doubt")
    owner = await claim(store)
    await store.ledger.start([intent(owner, "k", kind=EffectKind.CALL, repeat=Repeat.NEVER)], WORKER)
    assert await settle(store, owner, "fail")
    fine = await failed(store, 2)
    job = await plan(store)
    await runner(store).run_one(job.id)
    items = {item.event_id: item for item in await store.jobs.items(job.id)}
    doubtful = items.pop(owner.id)
    assert (doubtful.outcome, doubtful.cause) == (ItemOutcome.NOT_ALLOWED, Cause.DECISION)
    context = Context(store)
    assert doubtful.words == replay.preview(context, await history(store, owner.id)).words
    assert doubtful.words.startswith("needs a decision: ")
    assert {ident: item.outcome for ident, item in items.items()} == dict.fromkeys(fine, ItemOutcome.DONE)
    assert await replays(store, owner.id) == []


async def test_the_evidence_is_what_the_history_says(store: Store) -> None:
    """Read for many at once, judged alike."""
    await recorded(store, "evt_doubt")
    owner = await claim(store)
    await store.ledger.start([intent(owner, "k", kind=EffectKind.CALL, repeat=Repeat.NEVER)], WORKER)
    assert await settle(store, owner, "fail")
    idents = [owner.id, *await failed(store, 2)]
    found = {one.event.id: one for one in await store.jobs.evidence([*idents, new_id()])}
    assert found.keys() == set(idents)
    for ident in idents:
        full = await history(store, ident)
        assert found[ident].event == full.event
        assert found[ident].attempts == full.attempts
        assert found[ident].kept
        assert [e.effect.identity for e in found[ident].effects] == [e.effect.identity for e in full.effects]


# ── runners that die, freeze and race ────────────────────────────────────────


async def test_one_runner_at_a_time(store: Store, open_store: OpenStore) -> None:
    await failed(store, 5)
    job = await plan(store)
    others = [await open_store() for _ in range(4)]
    found = await asyncio.gather(*(other.jobs.take(f"runner-{n}", LEASE) for n, other in enumerate(others)))
    assert len([one for one in found if one is not None]) == 1
    assert (await look(store, job)).state is JobState.RUNNING


async def test_two_concurrent_runners_act_on_each_event_once(
    store: Store, open_store: OpenStore, clock: Clock
) -> None:
    idents = await failed(store, 300)
    job = await plan(store)
    stores = [await open_store(), await open_store()]
    first = await taken(stores[0], job, "first")
    clock.offset += LEASE + 1  # the first is late, and does not know
    second = await taken(stores[1], job, "second")
    runners = [runner(stores[0], "first"), runner(stores[1], "second")]

    async def all_steps(who: JobRunner, owner: Taken) -> int:
        steps = 0
        while await who.step(owner, 7):
            steps += 1
        return steps

    ends = await asyncio.gather(all_steps(runners[0], first), all_steps(runners[1], second))
    assert tuple(ends) == (0, 42)
    found = Counter([len(await replays(store, ident)) for ident in idents])
    assert found == {1: 300}
    assert (await look(store, job)).done == 300


async def test_a_zombie_cannot_take_a_step(store: Store, raw: Raw, clock: Clock) -> None:
    await failed(store, 30)
    job = await plan(store)
    old = await taken(store, job, "old")
    assert await runner(store).step(old, 10)
    items = await store.jobs.open_items(old, 10)
    clock.offset += LEASE + 1
    new = await taken(store, job, "new")
    assert new.fence > old.fence
    before = [await raw.all(table) for table in ("jobs", "job_items", "events", "actions")]
    assert await store.jobs.step(old, items, {}, LEASE) is None
    assert await store.jobs.open_items(old, 10) == []
    assert not await store.jobs.renew(old, LEASE)
    await store.jobs.release(old)
    assert [await raw.all(table) for table in ("jobs", "job_items", "events", "actions")] == before
    assert (await store.jobs.open_items(new, 10)) == items, "the new one goes on where the old one was"


async def test_a_step_that_was_made_is_not_made_again(store: Store, raw: Raw) -> None:
    """Its answer was lost: whoever tries it again is told that these are not the next."""
    await failed(store, 30)
    owner = await taken(store, await plan(store))
    items = await store.jobs.open_items(owner, 10)
    assert await store.jobs.step(owner, items, {}, LEASE) is not None
    before = [await raw.all(table) for table in ("jobs", "job_items", "events", "actions")]
    assert await store.jobs.step(owner, items, {}, LEASE) is None
    assert [await raw.all(table) for table in ("jobs", "job_items", "events", "actions")] == before


async def test_a_step_is_all_or_nothing(store: Store, raw: Raw) -> None:
    await failed(store, 10)
    job = await plan(store)
    owner = await taken(store, job)
    items = await store.jobs.open_items(owner, 10)
    last = raw.ident(items[-1].event_id)
    await raw.run(f"UPDATE job_items SET outcome = 'done', ended_at = {raw.now} WHERE event_id = {last}")
    before = [await raw.all(table) for table in ("jobs", "job_items", "events", "actions")]
    with pytest.raises(AssertionError):
        await store.jobs.step(owner, items, {}, LEASE)
    assert [await raw.all(table) for table in ("jobs", "job_items", "events", "actions")] == before


async def test_a_runner_that_stands_still_in_the_middle_of_a_step(
    store: Store, open_store: OpenStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the job and its events. PostgreSQL takes them from it; SQLite's writer has a watch of its own."""
    if not isinstance(store, PostgresStore):
        return
    idents = await failed(store, 3)
    job = await plan(store)
    other = await open_store()
    stands = asyncio.Event()
    move_all = decisions.move_all

    async def stand_still(*values: Any) -> Any:
        moved = await move_all(*values)
        if not stands.is_set():  # the first runner; the second goes on
            stands.set()
            await asyncio.Event().wait()
        return moved

    monkeypatch.setattr(decisions, "move_all", stand_still)
    standing = asyncio.create_task(runner(store).run_one(job.id))
    await stands.wait()
    clock.offset += LEASE + 1
    while not await runner(other, "second").run_one(job.id):  # locked until the server ends the session
        await asyncio.sleep(0.2)
    standing.cancel()
    await asyncio.gather(standing, return_exceptions=True)
    job = await look(store, job)
    assert (job.state, job.done, job.worker) == (JobState.DONE, 3, "second")
    assert [len(await replays(store, ident)) for ident in idents] == [1, 1, 1]
    assert not (await store.consistency.report()).imbalances


async def test_a_runner_that_stops_gives_the_job_back(store: Store) -> None:
    await failed(store, 100)
    job = await plan(store, per_second=40.0)
    running = asyncio.create_task(runner(store, "first").run_one(job.id))
    while not (await look(store, job)).done:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    found = await look(store, job)
    assert (found.state, found.lease_left) == (JobState.RUNNING, 0)
    assert 0 < found.done < 100
    owner = await taken(store, job, "second")
    assert owner.job.started_at == found.started_at, "it is the same job"


async def test_maintenance_runs_any_open_job(store: Store) -> None:
    await failed(store, 40)
    first = await plan(store, where=Filter(states=(State.FAILED,), key="evt_00001"))
    second = await plan(store)
    upkeep = asyncio.create_task(JobRunner(Context(store, lease=LEASE), worker="w", poll=0.01).run())
    while (await look(store, first)).unfinished or (await look(store, second)).unfinished:
        await asyncio.sleep(0.01)
    upkeep.cancel()
    await asyncio.gather(upkeep, return_exceptions=True)
    done = [await look(store, first), await look(store, second)]
    assert sum(job.done for job in done) == 40, "the event that both had was replayed by one of them"
    assert sum(job.not_allowed for job in done) == 1


# ── cancelling ───────────────────────────────────────────────────────────────


async def test_cancel_in_the_middle(store: Store, raw: Raw) -> None:
    idents = await failed(store, 30)
    job = await plan(store)
    owner = await taken(store, job)
    assert await runner(store).step(owner, 10)
    items = await store.jobs.open_items(owner, 10)
    found = await bulk_jobs.cancel(Context(store), by("bob", "enough"), job)
    assert (found.state, found.done, found.open) == (JobState.CANCELLED, 10, 20)
    assert (found.cancelled_by, found.cancel_reason, found.lease_left) == ("bob", "enough", 0)
    assert await store.jobs.step(owner, items, {}, LEASE) is None, "whoever runs it stops"
    assert not await runner(store).run_one(job.id)
    assert [len(await replays(store, ident)) for ident in idents] == [1] * 10 + [0] * 20
    actions = await raw.run("SELECT name, actor, from_state, to_state FROM actions WHERE name = 'cancel-job'")
    assert actions == [("cancel-job", "bob", "running", "cancelled")]
    with pytest.raises(WrongState, match=r"is cancelled since .* UTC, by bob \(enough\)"):
        await bulk_jobs.cancel(Context(store), by("ada", "me too"), job)


async def test_cancel_before_it_begins_and_after_it_is_done(store: Store) -> None:
    await failed(store, 3)
    job, other = await plan(store), await plan(store)
    await bulk_jobs.cancel(Context(store), by("ada", "no"), job)
    assert await store.jobs.take("w", LEASE, job.id) is None
    await runner(store).run_one(other.id)
    with pytest.raises(WrongState, match="is done since"):
        await bulk_jobs.cancel(Context(store), by("ada", "too late"), other)
    with pytest.raises(WrongState, match="there is no job"):
        await store.jobs.cancel(new_id(), "ada", "nothing")


async def test_racing_to_cancel(store: Store, open_store: OpenStore) -> None:
    await failed(store, 3)
    job = await plan(store)
    other = await open_store()
    ends = await asyncio.gather(
        store.jobs.cancel(job.id, "ada", "a"), other.jobs.cancel(job.id, "bob", "b"), return_exceptions=True
    )
    assert sorted(type(end).__name__ for end in ends) == ["Job", "WrongState"]


# ── two operators ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "names", [("replay", "replay"), ("retry", "discard"), ("retry", "retry"), ("discard", "replay")]
)
async def test_two_operators_race_on_one_event(store: Store, open_store: OpenStore, names: tuple[str, str]) -> None:
    """One wins; the other is told who did what, when and why."""
    other = await open_store()
    for n in range(8):
        [ident] = (await failed(store, 1, f"race{n}"))[-1:]
        seen = await event(store, ident)
        acts: dict[str, Any] = {"retry": decide.retry, "replay": replay.replay, "discard": decide.discard}
        operators = {"ada": Context(store), "bob": Context(other)}
        asked = [
            acts[name](context, by(who, f"{who} says so"), seen)
            for (who, context), name in zip(operators.items(), names, strict=True)
        ]
        ends = await asyncio.gather(*asked, return_exceptions=True)
        [error] = [end for end in ends if isinstance(end, WrongState)]
        [action] = (await history(store, ident)).actions
        assert action.actor == list(operators)[0 if isinstance(ends[1], WrongState) else 1]
        when = f"{action.at:%Y-%m-%d %H:%M:%S} UTC"
        assert f"Last action: {action.name} by {action.actor} at {when} ({action.actor} says so)" in str(error)
        for owner in await store.claim(WORKER, [KIND], 10, LEASE):
            assert await settle(store, owner, "complete")


# ── reading ──────────────────────────────────────────────────────────────────


async def test_jobs_newest_first_and_by_the_beginning_of_an_id(store: Store) -> None:
    await failed(store, 3)
    jobs = [await plan(store) for _ in range(3)]
    context = Context(store)
    assert [job.id for job in await bulk_jobs.jobs(context)] == [job.id for job in jobs][::-1]
    assert [job.id for job in await bulk_jobs.jobs(context, before=jobs[2].id, limit=1)] == [jobs[1].id]
    assert (await bulk_jobs.find(context, str(jobs[0].id))).id == jobs[0].id
    with pytest.raises(Ambiguous):
        await bulk_jobs.find(context, jobs[0].id.hex[:8])
    with pytest.raises(NotFound):
        await bulk_jobs.find(context, "what?")


async def test_what_a_job_would_be_about(store: Store) -> None:
    await failed(store, 5)
    await recorded(store, "waits")
    preview = await bulk.look(Context(store), "replay", EVERYTHING)
    assert (preview.count, preview.allowed, preview.sampled) == (6, 5, 6)
    assert [(p.source, p.type, p.state, p.count) for p in preview.groups] == [
        ("stripe", "invoice.paid", State.FAILED, 5),
        ("stripe", "invoice.paid", State.PENDING, 1),
    ]
    assert preview.verdicts == {"will do": 5, "needs a decision": 1}
    assert (await bulk.look(Context(store), "discard", FAILED)).verdicts == {}
