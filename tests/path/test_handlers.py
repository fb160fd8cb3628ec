"""What becomes of an event, by what its handler does."""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from hookledger import (
    ClaimLost,
    ConfigError,
    Event,
    HookledgerError,
    Permanent,
    Retry,
    RetryPolicy,
    Review,
    Seconds,
    Skip,
    State,
    SyncEvent,
    Wait,
)
from hookledger.model import Outcome
from hookledger.operate import decide
from hookledger.operate.audit import by
from hookledger.states import AttemptOutcome
from hookledger.work.loop import Worker
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

POLICY = RetryPolicy(attempts=3)


class RemoteError(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__(f"the remote answered {status_code}")
        self.status_code = status_code


class Strict(msgspec.Struct):
    amount: int


def invalid() -> None:
    msgspec.json.decode(b'{"amount": "many"}', type=Strict)


def raises(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


CASES = [
    pytest.param(raises(Retry("later", after=5)), State.RETRYING, "later", id="Retry"),
    pytest.param(raises(ConnectionError("refused")), State.RETRYING, "ConnectionError", id="connection"),
    pytest.param(raises(RemoteError(503)), State.RETRYING, "503", id="503"),
    pytest.param(raises(RemoteError(429)), State.RETRYING, "429", id="429"),
    pytest.param(raises(KeyError("amount")), State.RETRYING, "KeyError", id="defect"),
    pytest.param(raises(Wait("no account yet", after=60)), State.RETRYING, "no account yet", id="Wait"),
    pytest.param(raises(Permanent("unknown plan")), State.FAILED, "unknown plan", id="Permanent"),
    pytest.param(raises(RemoteError(403)), State.FAILED, "403", id="403"),
    pytest.param(raises(PermissionError("no")), State.FAILED, "PermissionError", id="authorization"),
    pytest.param(invalid, State.FAILED, "ValidationError", id="validation"),
    pytest.param(raises(Skip("a trial")), State.SKIPPED, "a trial", id="Skip"),
    pytest.param(raises(Review("amount too high")), State.NEEDS_REVIEW, "amount too high", id="Review"),
]


# proves R22
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize(("act", "state", "reason"), CASES)
async def test_outcomes(site: Site, act: Callable[[], None], state: State, reason: str, plain: bool) -> None:
    on = site.inbox.sources["stripe"].on("invoice.paid")
    if plain:

        @on
        def plainly(event: SyncEvent) -> None:
            event.tx.execute("INSERT INTO done VALUES ('undone')")
            act()

    else:

        @on
        async def handle(event: Event) -> None:
            await event.tx.execute("INSERT INTO done VALUES ('undone')")
            act()

    await site.deliver(stripe_event())
    await site.work()
    history = await site.event("evt_1")
    assert history.event.state is state
    assert reason in (history.event.reason or "")
    assert len(history.attempts) == 1
    assert await done(site) == []


# proves R27
@pytest.mark.parametrize(
    ("result", "kept"),
    [
        ({"invoice": "in_1", "credited": 4900}, '{"invoice":"in_1","credited":4900}'),
        ("done", "done"),
        (None, None),
    ],
)
async def test_result_is_kept(site: Site, result: Any, kept: str | None) -> None:
    @site.inbox.sources["stripe"].on("*")
    def plainly(event: SyncEvent) -> Any:
        event.tx.execute("INSERT INTO done VALUES (?)", event.key)
        assert event.tx.fetchval("SELECT count(*) FROM done") == 1
        return result

    await site.deliver(stripe_event())
    await site.work()
    event = (await site.event("evt_1")).event
    assert (event.state, event.result) == (State.PROCESSED, kept)
    assert await done(site) == ["evt_1"]


@pytest.mark.parametrize("result", [17, ["a"], "x" * 20_000, {"x": object()}], ids=["int", "list", "long", "object"])
async def test_result_that_cannot_be_kept(site: Site, result: Any) -> None:
    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> Any:
        await event.tx.execute("INSERT INTO done VALUES ('undone')")
        return result

    await site.deliver(stripe_event())
    await site.work()
    assert await site.state("evt_1") is State.FAILED
    assert await done(site) == []


# proves R23
async def test_attempts_end_in_the_dead_letter_and_an_operator_restarts(site: Site) -> None:
    failing = True

    @site.inbox.sources["stripe"].on("invoice.paid", retry=POLICY)
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('done')")
        if failing:
            raise ConnectionError("refused")

    await site.deliver(stripe_event())
    for _ in range(5):
        await site.work(later=60)
    history = await site.event("evt_1")
    outcomes = [attempt.outcome for attempt in history.attempts]
    assert outcomes == [AttemptOutcome.RETRYING, AttemptOutcome.RETRYING, AttemptOutcome.FAILED]
    assert history.event.reason is not None
    assert history.event.reason.startswith("attempts exhausted (3)")
    failing = False
    async with site.inbox.opened() as store:
        await decide.retry(site.inbox.context(store), by("ada", "the remote is back"), history.event)
    await site.work()
    history = await site.event("evt_1")
    assert history.event.state is State.PROCESSED
    assert [(a.name, a.actor, a.reason) for a in history.actions] == [("retry", "ada", "the remote is back")]
    assert await done(site) == ["done"]


# proves R38
async def test_waiting_consumes_no_attempt(site: Site) -> None:
    ready = False

    @site.inbox.sources["stripe"].on("invoice.paid", retry=POLICY)
    async def handle(event: Event) -> None:
        if not ready:
            raise Wait("no account yet", after=10)
        await event.tx.execute("INSERT INTO done VALUES (?)", str(event.attempt))

    await site.deliver(stripe_event())
    for _ in range(5):
        await site.work(later=11)
    event = (await site.event("evt_1")).event
    assert (event.state, event.attempts, event.snoozes) == (State.RETRYING, 0, 5)
    ready = True
    await site.work(later=11)
    assert await done(site) == ["1"]


async def test_handler_over_its_time(site: Site) -> None:
    stripe = site.inbox.sources["stripe"]
    release, over = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    late: list[str] = []

    @stripe.on("slow.async", timeout="50ms")
    async def slow(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('undone')")
        await asyncio.sleep(30)

    @stripe.on("slow.plain", timeout="50ms")
    def slow_plainly(event: SyncEvent) -> None:
        release.wait(30)
        try:
            event.tx.execute("INSERT INTO done VALUES ('too late')")
        except HookledgerError as error:
            late.append(type(error).__name__)
        loop.call_soon_threadsafe(over.set)

    await site.deliver(stripe_event("evt_1", "slow.async"))
    await site.deliver(stripe_event("evt_2", "slow.plain"))
    await site.work()
    for key in ("evt_1", "evt_2"):
        event = (await site.event(key)).event
        assert event.state is State.RETRYING
        assert "TimeoutError" in (event.reason or "")
    release.set()
    await over.wait()
    assert late == ["ClaimLost"]
    assert await done(site) == []


# ── several in one transaction ──


# proves R25
async def test_batch_is_one_transaction(site: Site) -> None:
    transactions: set[int] = set()

    @site.inbox.sources["stripe"].on("meter.used", batch=10)
    async def meter(event: Event) -> None:
        transactions.add(id(event.tx._tx))  # type: ignore[attr-defined]
        await event.tx.execute("INSERT INTO done VALUES (?)", event.key)

    keys = [f"evt_{number}" for number in range(10)]
    for key in keys:
        await site.deliver(stripe_event(key, "meter.used"))
    await site.work()
    assert await done(site) == keys
    assert len(transactions) == 1


async def test_one_bad_event_of_a_batch_fails_alone(site: Site) -> None:
    @site.inbox.sources["stripe"].on("meter.used", batch=10)
    async def meter(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES (?)", event.key)
        if event.key == "evt_3":
            raise Permanent("not a number")

    keys = [f"evt_{number}" for number in range(6)]
    for key in keys:
        await site.deliver(stripe_event(key, "meter.used"))
    await site.work()
    assert await done(site) == [key for key in keys if key != "evt_3"]
    states = {event.key: event.state for event in await site.events()}
    assert states.pop("evt_3") is State.FAILED
    assert set(states.values()) == {State.PROCESSED}


async def test_one_lost_claim_of_a_batch_leaves_the_others(site: Site, tmp_path: Path) -> None:
    @site.inbox.sources["stripe"].on("meter.used", batch=10)
    async def meter(event: Event) -> None:
        if event.key == "evt_0":
            thief = apsw.Connection(str(tmp_path / "inbox.db"))
            thief.execute("UPDATE events SET claim = 99 WHERE key = 'evt_0'")
            thief.close()
        await event.tx.execute("INSERT INTO done VALUES (?)", event.key)

    for number in range(3):
        await site.deliver(stripe_event(f"evt_{number}", "meter.used"))
    await site.work()
    assert await done(site) == ["evt_1", "evt_2"]
    states = {event.key: event.state for event in await site.events()}
    assert states == {"evt_0": State.PROCESSING, "evt_1": State.PROCESSED, "evt_2": State.PROCESSED}


# ── which handler ──


async def test_exact_beats_pattern_and_longer_beats_shorter(site: Site) -> None:
    def record(name: str, *types: str) -> None:
        @site.inbox.sources["stripe"].on(*types)
        async def handle(event: Event) -> None:
            await event.tx.execute("INSERT INTO done VALUES (?)", f"{event.type} by {name}")

    record("everything", "*")
    record("customer", "customer.*")
    record("subscription", "customer.subscription.*")
    record("exact", "customer.subscription.updated")
    kinds = ["invoice.paid", "customer.created", "customer.subscription.deleted", "customer.subscription.updated"]
    for number, kind in enumerate(kinds):
        await site.deliver(stripe_event(f"evt_{number}", kind))
    await site.work()
    assert await done(site) == [
        "customer.created by customer",
        "customer.subscription.deleted by subscription",
        "customer.subscription.updated by exact",
        "invoice.paid by everything",
    ]


@pytest.mark.parametrize("pattern", ["invoice.paid", "invoice.*", "*"])
async def test_two_handlers_for_one_type_are_an_error(site: Site, pattern: str) -> None:
    on = site.inbox.sources["stripe"].on(pattern)

    async def first(event: Event) -> None: ...
    async def second(event: Event) -> None: ...

    on(first)
    with pytest.raises(ConfigError, match=r"both .*first and .*second handle"):
        on(second)


@pytest.mark.parametrize("pattern", ["", "in*voice", "*.paid"])
async def test_patterns_that_are_none(site: Site, pattern: str) -> None:
    async def handle(event: Event) -> None: ...

    with pytest.raises(ConfigError, match="not an event type"):
        site.inbox.sources["stripe"].on(pattern)(handle)


async def test_worker_claims_only_what_it_handles(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url, {"work": {"unhandled_after": "1h", "lease": "500ms"}})
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @stripe.on("invoice.paid")
    async def handle(event: Event) -> None: ...

    await site.deliver(stripe_event("evt_1"))
    await site.deliver(stripe_event("evt_2", "charge.failed"))
    await site.work()
    event = (await site.event("evt_2")).event
    assert (event.state, event.claim) == (State.PENDING, 0)

    # Another worker that handles it, alive within the time, keeps it waiting (a rolling deploy).
    async with site.inbox.opened() as store:
        site.inbox.clock.offset += 3000
        await store.register("other", [("stripe", "charge.*")])
        site.inbox.clock.offset += 700
        lease_reclaimer = site.inbox.lease_reclaimer(store)
        assert await lease_reclaimer.skip_unhandled() == 0
        site.inbox.clock.offset += 3601
        assert await lease_reclaimer.skip_unhandled() == 1
    event = (await site.event("evt_2")).event
    assert (event.state, event.reason) == (State.SKIPPED, "no handler")


# ── handlers that misbehave ──────────────────────────────────────────────────


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


async def cancelled() -> None:
    task = asyncio.get_running_loop().create_future()
    task.cancel()
    await task


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def leaves() -> None:
    sys.exit(3)


async def unspeakable() -> None:
    raise Unspeakable


async def wrong_delay() -> None:
    raise Retry("later", after=timedelta(seconds=5))  # type: ignore[arg-type]


async def test_cancelled_with_the_whole_worker_is_no_failure(site: Site) -> None:
    """As the end of asyncio.run does: it cancels the worker and its handlers together."""
    running = asyncio.Event()

    @site.inbox.sources["stripe"].on("slow", retry=RetryPolicy(attempts=1))
    async def slow(event: Event) -> None:
        running.set()
        await asyncio.sleep(60)

    await site.deliver(stripe_event("evt_slow", "slow"))
    before = asyncio.all_tasks()
    worker = asyncio.create_task(site.inbox.work())
    await asyncio.wait_for(running.wait(), 60)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.wait([worker], timeout=60)
    event = (await site.event("evt_slow")).event
    assert (event.state, event.reason) == (State.RETRYING, "the worker was stopped")


@pytest.mark.parametrize("act", [cancelled, cancels_itself, leaves, unspeakable, wrong_delay])
async def test_every_way_to_fail_is_bounded_and_leaves_neighbours_alone(
    site: Site, act: Callable[[], Awaitable[None]]
) -> None:
    calls = 0

    quick = RetryPolicy(attempts=2, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))

    @site.inbox.sources["stripe"].on("bad", retry=quick)
    async def bad(event: Event) -> None:
        nonlocal calls
        calls += 1
        await act()

    @site.inbox.sources["stripe"].on("good")
    async def good(event: Event) -> str:
        return "done"

    for number in range(5):
        await site.deliver(stripe_event(f"good_{number}", "good"))
    await site.deliver(stripe_event("evt_bad", "bad"))
    for _ in range(20):
        await site.inbox.work(drain=True)
        if (history := await site.event("evt_bad")).event.state is State.FAILED:
            break
        await asyncio.sleep(0.01)
    assert (history.event.state, calls, len(history.attempts)) == (State.FAILED, 2, 2)
    for number in range(5):
        neighbour = await site.event(f"good_{number}")
        assert (neighbour.event.state, len(neighbour.attempts)) == (State.PROCESSED, 1)


async def test_hung_plain_functions_do_not_starve_the_others(site: Site) -> None:
    release = threading.Event()

    @site.inbox.sources["stripe"].on("hangs", timeout="50ms", retry=RetryPolicy(attempts=1))
    def hangs(event: SyncEvent) -> None:
        release.wait(30)

    @site.inbox.sources["stripe"].on("fine")
    def fine(event: SyncEvent) -> str:
        return "done"

    try:
        for number in range(40):  # more than there are slots, twice over
            await site.deliver(stripe_event(f"hangs_{number}", "hangs"))
        await site.deliver(stripe_event("evt_fine", "fine"))
        await site.inbox.work(drain=True)
        assert (await site.event("evt_fine")).event.state is State.PROCESSED
        assert (await site.event("hangs_0")).event.state is State.FAILED
    finally:
        release.set()


# proves R68
async def test_a_long_handler_can_ask_whether_the_event_is_still_its_own(site: Site) -> None:
    answers: list[str] = []
    workers: list[Worker] = []

    @site.inbox.sources["stripe"].on("long")
    async def long(event: Event) -> None:
        if answers:
            return  # claimed again, perhaps before the first attempt has heard that it lost the event
        await event.renew()
        answers.append("mine")
        async with site.inbox.opened() as other:
            [(ident, claim)] = [(event.id, (await other.history(event.id)).event.claim)]  # type: ignore[union-attr]
            await other.settle([Outcome(ident, claim, "release")])
        try:
            await event.renew()
        except ClaimLost:
            answers.append("lost")
            raise
        finally:
            workers[0].stop()

    await site.deliver(stripe_event("evt_long", "long"))
    await site.inbox.work(started=workers.append)
    assert answers == ["mine", "lost"]


async def test_a_blocked_event_loop_keeps_no_claims(site_on: MakeSite, sqlite_url: str) -> None:
    """Beyond every time-out nothing is renewed, so that somebody else can take over."""
    site = await site_on(sqlite_url, {"work": {"lease": "500ms", "timeout": "100ms", "poll": "10ms"}})
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    stuck = threading.Event()

    @site.inbox.sources["stripe"].on("blocks")
    async def blocks(event: Event) -> None:
        assert stuck.wait(30), "nobody noticed"

    await site.deliver(stripe_event("evt_1", "blocks"))
    await site.inbox.work(drain=True, stuck=stuck.set)
    assert stuck.is_set()


async def test_nothing_runs_beside_an_event_that_crashed_its_workers_twice(site: Site, tmp_path: Path) -> None:
    running: set[str] = set()
    beside: list[set[str]] = []

    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        running.add(event.key)
        for _ in range(20):
            if "outcast" in running and len(running) > 1:
                beside.append(set(running))
            await asyncio.sleep(0.005)
        running.discard(event.key)

    keys = [*(f"evt_{number}" for number in range(60)), "outcast"]
    for key in keys:
        await site.deliver(stripe_event(key, "order"))
    database = apsw.Connection(str(tmp_path / "inbox.db"))
    # Due while the others are being handled.
    due = int((time.time() + 0.08) * 1_000_000)
    database.execute("UPDATE events SET crashes = 2, due_at = ? WHERE key = 'outcast'", (due,))
    database.close()
    while (await site.event("outcast")).event.state is not State.PROCESSED:
        await site.inbox.work(drain=True)
    assert beside == []
    for key in keys:
        assert (await site.event(key)).event.state is State.PROCESSED
