"""Handlers that answer: the event is recorded, handled and answered in one request, and redeliveries get the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from hookledger import Answer, Event, Inbox, Permanent, Retry, Review, Skip, Source, State, SyncEvent
from hookledger.errors import Unavailable
from hookledger.inline.answerer import InlineAnswerer
from hookledger.model import Outcome
from hookledger.operate.audit import by
from hookledger.operate.replay import replay
from hookledger.receive.answering import Answering
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from hookledger.work.outcome import Settler
from hookledger.work.route import Routes
from tests.asgi_client import Answer as Response
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, HeardLate, MakeSite, done

hold = InlineAnswerer._hold
FORM = {"text": "done"}
LATE = Answer({"text": "working on it"}, status=202)


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    return await site_on(database_url, {"answers": {"lease": "3s", "waiting": 5}})


def add_source(inbox: Inbox) -> Source:
    return inbox.source("stripe", provider="stripe", secrets=[SECRET])


def same(*responses: Response) -> bool:
    """Whether all of them are the same, byte for byte."""
    return len({(one.status, tuple(sorted(one.headers.items())), one.body) for one in responses}) == 1


def answering(inbox: Inbox, **rules: Any) -> list[str]:
    """A source whose handler writes the event's key and answers; returns the keys in the order of its runs."""
    ran: list[str] = []

    @add_source(inbox).answer("*", **{"deadline": 20, **rules})
    async def handle(event: Event) -> Answer:
        ran.append(event.key)
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        return Answer({"event": event.key, "run": len(ran)}, 201, {"X-Ledger": "kept", "Content-Language": "de"})

    return ran


async def second_site(site: Site) -> Site:
    """The same database in another process, as far as the store can tell."""
    return Site(Inbox(site.inbox.database, settings=site.inbox.settings, clock=site.inbox.clock))


# ── the same answer ──


async def test_a_redelivery_gets_the_answer_byte_for_byte_and_runs_nothing(site: Site) -> None:
    ran = answering(site.inbox)
    first = await site.deliver(stripe_event())
    assert (first.status, first.json, first.headers["x-ledger"]) == (201, {"event": "evt_1", "run": 1}, "kept")
    again = [await site.deliver(stripe_event()) for _ in range(3)]
    assert same(first, *again)
    assert ran == await done(site) == ["evt_1"]
    await site.inbox.asgi.stop()
    other = await site.deliver(stripe_event())  # after a restart
    assert same(first, other)
    history = await site.event("evt_1")
    assert (history.event.state, history.event.claim, len(history.attempts)) == (State.PROCESSED, 2, 1)
    assert (await site.deliveries()) == {"accepted": 1, "duplicate": 4}


async def test_a_replay_of_an_answered_event_runs_it_and_redeliveries_keep_their_answer(site: Site) -> None:
    ran = answering(site.inbox)
    first = await site.deliver(stripe_event())
    history = await site.event("evt_1")
    assert history.answer is not None
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        until = f"{history.answer.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        told = f"Redeliveries get the stored answer (201) until {until}, whatever this run answers."
        assert told in replay.preview(context, history).reasons
        await replay.replay(context, by("ada", "again"), history.event)
    await site.work()
    assert ran == ["evt_1", "evt_1"]
    assert same(first, await site.deliver(stripe_event()))


async def test_concurrent_deliveries_of_one_event_run_it_once(site: Site) -> None:
    ran = answering(site.inbox)
    responses = await asyncio.gather(*(site.deliver(stripe_event()) for _ in range(6)))
    assert same(*responses)
    assert ran == await done(site) == ["evt_1"]


async def test_concurrent_deliveries_at_two_processes_run_it_once(site: Site) -> None:
    other = await second_site(site)
    ran = [answering(site.inbox), answering(other.inbox)]
    sites = (site, other)
    responses = await asyncio.gather(*(sites[n % 2].deliver(stripe_event()) for n in range(10)))
    assert same(*responses)
    assert sum(map(len, ran)) == 1
    assert await done(site) == ["evt_1"]
    await other.inbox.asgi.stop()


async def test_a_plain_function_answers(site: Site) -> None:
    @add_source(site.inbox).answer("*", deadline=20)
    def handle(event: SyncEvent) -> Answer:
        event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        return Answer("plain")

    first = await site.deliver(stripe_event())
    assert (first.status, first.body, first.headers["content-type"]) == (200, b"plain", "text/plain; charset=utf-8")
    assert same(first, await site.deliver(stripe_event()))


async def test_other_types_are_acked_and_left_to_workers(site: Site) -> None:
    stripe = add_source(site.inbox)

    @stripe.answer("answered", deadline=20)
    async def handle(event: Event) -> Answer:
        return Answer("now")

    @stripe.on("*")
    async def later(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)

    plain = await site.deliver(stripe_event("evt_plain", "other"))
    assert (plain.status, plain.json["status"]) == (202, "accepted")
    assert await site.state("evt_plain") is State.PENDING
    assert (await site.deliver(stripe_event("evt_1", "answered"))).body == b"now"
    await site.work()
    assert await done(site) == ["evt_plain"]


# ── while it is handled ──


def holding(inbox: Inbox, **rules: Any) -> tuple[asyncio.Event, asyncio.Event]:
    """A handler that has begun, and that may end."""
    begun, go = asyncio.Event(), asyncio.Event()

    @add_source(inbox).answer("*", **{"deadline": 20, **rules})
    async def handle(event: Event) -> Answer:
        begun.set()
        await go.wait()
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        return Answer("held")

    return begun, go


@pytest.mark.parametrize("status", [409, 429])
async def test_by_rule_a_concurrent_delivery_is_refused(site: Site, status: Any) -> None:
    begun, go = holding(site.inbox, concurrent=status)
    first = asyncio.create_task(site.deliver(stripe_event()))
    await begun.wait()
    busy = await site.deliver(stripe_event())
    assert (busy.status, busy.headers["retry-after"]) == (status, "1")
    other = await second_site(site)
    holding(other.inbox, concurrent=status)
    assert (await other.deliver(stripe_event())).status == status
    await other.inbox.asgi.stop()
    go.set()
    assert same(await first, await site.deliver(stripe_event()))
    assert await done(site) == ["evt_1"]


async def test_no_more_than_so_many_wait_for_one_event(site: Site) -> None:
    begun, go = holding(site.inbox)
    first = asyncio.create_task(site.deliver(stripe_event()))
    await begun.wait()
    others = [asyncio.create_task(site.deliver(stripe_event())) for _ in range(8)]
    refused = []
    for response in asyncio.as_completed(others):
        refused.append(await response)
        if len(refused) == 3:
            break
    assert [one.status for one in refused] == [429, 429, 429]
    go.set()
    answers = [one for one in await asyncio.gather(*others) if one.status != 429]
    assert len(answers) == 5
    assert same(await first, *answers)


async def test_past_the_deadline_the_late_answer_is_sent_and_the_handler_finishes(
    site: Site, recorded_in_time: None
) -> None:
    begun, go = holding(site.inbox, deadline=0.2, late=LATE)
    late = await site.deliver(stripe_event())
    assert (late.status, late.json) == (202, {"text": "working on it"})
    await begun.wait()
    again = await site.deliver(stripe_event())
    assert same(late, again)
    go.set()
    await processed(site)
    assert (await site.deliver(stripe_event())).body == b"held"
    assert await done(site) == ["evt_1"]


async def test_without_a_late_answer_the_sender_gets_503(site: Site) -> None:
    _, go = holding(site.inbox, deadline=0.2)
    late = await site.deliver(stripe_event())
    assert (late.status, late.headers["retry-after"]) == (503, "5")
    go.set()
    await processed(site)
    assert (await site.deliver(stripe_event())).body == b"held"


async def processed(site: Site, key: str = "evt_1") -> None:
    await reached(site, key, State.PROCESSED)


async def reached(site: Site, key: str, state: State) -> None:
    while await site.state(key) is not state:
        await asyncio.sleep(0.02)


async def test_a_handler_starts_while_the_outcome_of_another_is_recorded(
    site_on: MakeSite, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await site_on(database_url, {"answers": {"concurrency": 1}})
    running, kept, said = Counter[str](), asyncio.Event(), ContextVar("said", default="nothing")
    go, held = asyncio.Event(), list[Outcome]()
    settle = Settler.settle

    async def held_up(self: Settler, way: Outcome) -> bool:
        held.append(way)
        if held[0] is way:
            await kept.wait()
        return await settle(self, way)

    @add_source(site.inbox).answer("*", deadline=20)
    async def handle(event: Event) -> Answer:
        running["now"] += 1
        running[event.key] += 1
        before = [said.get(), running["now"]]
        said.set(event.key)
        await go.wait()
        running["now"] -= 1
        return Answer(before)

    monkeypatch.setattr(Settler, "settle", held_up)
    first = asyncio.create_task(site.deliver(stripe_event("evt_1")))
    while not running:
        await asyncio.sleep(0.01)
    second = asyncio.create_task(site.deliver(stripe_event("evt_2")))
    while [row.state for row in await site.events()] != [State.PROCESSING] * 2:
        await asyncio.sleep(0.01)
    go.set()
    assert (await second).json == ["nothing", 1], "in a context of its own, and alone"
    assert not first.done()
    assert await site.state("evt_1") is State.PROCESSING
    kept.set()
    assert (await first).json == ["nothing", 1]
    assert running == {"evt_1": 1, "evt_2": 1, "now": 0}


async def test_a_handler_runs_in_the_context_of_its_request(site: Site) -> None:
    caller = ContextVar("caller", default="unknown")

    @add_source(site.inbox).answer("*", deadline=20)
    async def handle(event: Event) -> Answer:
        return Answer(caller.get())

    async def called(name: str) -> bytes:
        caller.set(name)  # as a middleware of the application may
        return (await site.deliver(stripe_event(f"evt_{name}"))).body

    for name in ("one", "two"):
        assert await asyncio.create_task(called(name)) == name.encode()


async def test_an_answer_that_is_just_committed_is_sent_although_the_loop_was_blocked(
    site: Site, heard_late: HeardLate
) -> None:
    """The heartbeat finds the event processed, and gives up its claim before the loop can hear of the commit."""
    running, (committed, given_up) = asyncio.Event(), heard_late
    source = add_source(site.inbox)

    @source.answer("quick", deadline=20)
    async def quick(event: Event) -> Answer:
        await running.wait()
        return Answer("quick")

    @source.answer("blocks", deadline=20)
    async def blocks(event: Event) -> Answer:
        running.set()
        await committed.wait()
        assert given_up.wait(30)
        return Answer("blocked")

    sending = asyncio.create_task(site.deliver(stripe_event("evt_quick", "quick")))
    assert (await site.deliver(stripe_event("evt_blocks", "blocks"))).body == b"blocked"
    response = await sending
    assert (response.status, response.body) == (200, b"quick")


async def test_what_is_recorded_runs_even_if_its_delivery_cannot_be_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = answering(site.inbox)

    def broken(*_: object) -> None:
        raise RuntimeError("no metrics")

    with monkeypatch.context() as patched:
        patched.setattr(Answering, "recorded", broken)
        assert (await site.deliver(stripe_event())).status == 503
    await processed(site)
    assert ran == ["evt_1"]
    assert (await site.deliver(stripe_event())).status == 201


async def test_what_is_not_recorded_gets_no_late_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(site.inbox, deadline=0.3, late=LATE)
    await site.inbox.asgi.start()

    began, over = asyncio.Event(), asyncio.Event()

    async def stuck(*_: object) -> Any:
        began.set()
        await over.wait()
        raise Unavailable("no database")

    async def down(*_: object) -> Any:
        raise Unavailable("no database")

    kind = type(site.inbox.store())
    for instead in (down, stuck):
        with monkeypatch.context() as patched:
            patched.setattr(kind, "claim_new", instead)
            assert (await site.deliver(stripe_event())).status == 503
            if instead is stuck:
                await began.wait()
    over.set()
    await site.inbox.asgi.stop()
    assert await site.deliveries() == {}


async def test_without_the_handler_the_event_is_left_to_a_worker(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answering process may have been started again with other code than the receiver's."""
    ran = answering(site.inbox, late=LATE)
    await site.inbox.asgi.start()
    with monkeypatch.context() as patched:
        patched.setattr(InlineAnswerer, "_hold", hold_without_handlers)
        assert (await site.deliver(stripe_event())).status == LATE.status
    assert ran == []
    await site.work()
    assert ran == ["evt_1"]
    history = await site.event("evt_1")
    assert (history.event.state, history.event.crashes) == (State.PROCESSED, 0)


def hold_without_handlers(answerer: Any, *given: Any) -> Any:
    routes, answerer._routes = answerer._routes, Routes()
    try:
        return hold(answerer, *given)
    finally:
        answerer._routes = routes


# ── how it ends ──


def raising(inbox: Inbox, errors: list[Exception], **rules: Any) -> None:
    """A handler that raises these, one after the other, and then answers."""

    @add_source(inbox).answer("*", **{"deadline": 20, **rules})
    async def handle(event: Event) -> Answer:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        if errors:
            raise errors.pop(0)
        return Answer("at last")


async def test_a_transient_failure_is_run_again_by_the_next_delivery(site: Site) -> None:
    raising(site.inbox, [Retry("their API is down", after=7)])
    failed = await site.deliver(stripe_event())
    assert (failed.status, failed.headers["retry-after"]) == (503, "7")
    assert await site.state("evt_1") is State.RETRYING
    assert await done(site) == []
    answer = await site.deliver(stripe_event())
    assert (answer.status, answer.body) == (200, b"at last")
    assert await done(site) == ["evt_1"]
    assert (await site.event("evt_1")).event.attempts == 2


async def test_a_sender_that_does_not_come_again_gets_the_late_answer_and_a_worker_repeats(
    site_on: MakeSite, database_url: str
) -> None:
    site = await site_on(database_url)
    errors: list[Exception] = [Retry("their API is down", after=0)]
    made = site.inbox.source("twilio", provider="slack_commands", secrets=["ab" * 16])

    @made.answer("*", deadline=20, late=LATE)
    async def handle(event: Event) -> Answer:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.type)
        if errors:
            raise errors.pop(0)
        return Answer("at last")

    body = b"command=%2Fdeploy&text=now&trigger_id=1.2.3&user_id=U1&team_id=T1&channel_id=C1"
    late = await site.deliver(body, source="twilio")
    assert late.status == 202
    await site.work()
    assert len(await done(site)) == 1
    assert (await site.deliver(body, source="twilio")).body == b"at last"


async def test_the_4xx_that_a_handler_names_is_sent_once(site: Site) -> None:
    refusal = Answer({"error": "no such account"}, status=422)
    raising(site.inbox, [Permanent("no such account", answer=refusal)])
    refused = await site.deliver(stripe_event())
    assert (refused.status, refused.json) == (422, {"error": "no such account"})
    assert await site.state("evt_1") is State.FAILED
    again = await site.deliver(stripe_event())
    assert (again.status, again.json["status"]) == (200, "duplicate")
    assert await done(site) == []


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Permanent("no"), State.FAILED),
        (Review("look at it"), State.NEEDS_REVIEW),
        (Skip("nothing to do"), State.SKIPPED),
    ],
)
@pytest.mark.parametrize("failed", [None, Answer({"text": "it failed"})])
async def test_an_event_that_ended_without_an_answer_gets_that_of_the_rule(
    site: Site, error: Exception, state: State, failed: Answer | None
) -> None:
    raising(site.inbox, [error], failed=failed)
    responses = [await site.deliver(stripe_event()) for _ in range(2)]
    assert await site.state("evt_1") is state
    if failed is None:
        assert [(one.status, one.json["status"]) for one in responses] == [(202, "accepted"), (200, "duplicate")]
    else:
        assert same(*responses)
        assert responses[0].json == {"text": "it failed"}
    assert await done(site) == []


@pytest.mark.parametrize("returned", [None, "text", {"a": 1}, Answer("no", 404)])
async def test_a_handler_that_does_not_return_an_answer_fails(site: Site, returned: Any) -> None:
    @add_source(site.inbox).answer("*", deadline=20)
    async def handle(event: Event) -> Answer:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        answer: Answer = returned
        return answer

    assert (await site.deliver(stripe_event())).status in (202, 503)
    assert await done(site) == []
    assert "Answer" in str((await site.event("evt_1")).event.reason) or returned is not None


async def test_a_handler_that_answers_no_request_must_not_return_one(site: Site) -> None:
    @add_source(site.inbox).on("*")
    async def handle(event: Event) -> Any:
        return Answer("nobody hears it")

    await site.deliver(stripe_event())
    await site.work()
    history = await site.event("evt_1")
    assert "declare it with answer" in str(history.event.reason)


async def test_a_conflict_gets_the_providers_success_form(site: Site) -> None:
    ran = answering(site.inbox)
    await site.deliver(stripe_event())
    other = await site.deliver(stripe_event(data={"object": {"id": "another"}}))
    assert (other.status, other.json["status"]) == (202, "conflict")
    assert ran == ["evt_1"]


async def test_an_unreadable_body_is_a_dead_letter_and_acked(site: Site) -> None:
    answering(site.inbox, failed=Answer("it failed"))
    answer = await site.deliver(b"\xff{")
    assert (answer.status, answer.json["status"]) == (202, "invalid")


# ── workers and operators ──


async def test_what_is_paused_is_left_to_workers(site: Site) -> None:
    ran = answering(site.inbox, late=LATE)

    async def on_store(act: Callable[[Store], Any]) -> None:
        async with site.inbox.opened() as store:
            await act(store)

    await on_store(lambda store: store.pauses.pause("stripe", "*", "ada", "incident"))
    responses = [await site.deliver(stripe_event()) for _ in range(2)]
    assert [one.status for one in responses] == [202, 202]
    assert same(*responses)
    assert (ran, await site.state("evt_1")) == ([], State.PENDING)
    await on_store(lambda store: store.pauses.resume("stripe", "*", "ada", "over"))
    await site.work()
    assert ran == ["evt_1"]
    assert (await site.deliver(stripe_event())).json == {"event": "evt_1", "run": 1}


async def test_a_delivery_runs_what_waits_for_a_worker(site: Site) -> None:
    raising(site.inbox, [Permanent("no")])
    await site.deliver(stripe_event())
    async with site.inbox.opened() as store:
        [row] = await store.search.events()
        await store.retry(row.id, State.FAILED, "ada", "it works again")
    assert await site.state("evt_1") is State.PENDING
    assert (await site.deliver(stripe_event())).body == b"at last"


async def dead(site: Site) -> None:
    """Another process claims the event, which waits, and dies."""
    async with site.inbox.opened() as store:
        [row] = await store.search.events()
        assert await store.claim_seen(row.id, row.claim, "dead", 0.3) is not None


async def test_the_next_delivery_runs_what_a_dead_process_held(site: Site) -> None:
    raising(site.inbox, [Retry("not yet")])
    assert (await site.deliver(stripe_event())).status == 503
    await dead(site)
    responses = await asyncio.gather(*(site.deliver(stripe_event()) for _ in range(4)))
    assert same(*responses)
    assert responses[0].body == b"at last"
    history = await site.event("evt_1")
    assert [attempt.outcome for attempt in history.attempts] == ["retrying", "crashed", "processed"]
    assert history.event.crashes == 1
    assert await done(site) == ["evt_1"]


async def test_the_next_delivery_runs_what_was_claimed_in_a_commit_of_unknown_outcome(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = answering(site.inbox)
    with monkeypatch.context() as patched:
        for kind, name in ((PostgresStore, "claim_new"), (SqliteStore, "record_claimed")):
            patched.setattr(kind, name, then_cut_off(getattr(kind, name)))
        assert (await site.deliver(stripe_event())).status == 503
    assert ran == []
    conflict, *same_event = await asyncio.gather(
        site.deliver(stripe_event(data={"object": {"id": "in_2"}})),
        *(site.deliver(stripe_event()) for _ in range(4)),
    )
    assert conflict.status == 202
    assert same(*same_event)
    assert same_event[0].status == 201
    assert ran == await done(site) == ["evt_1"]
    history = await site.event("evt_1")
    assert [attempt.outcome for attempt in history.attempts] == ["processed"]  # the lost claim is none
    assert (history.event.attempts, history.event.crashes) == (1, 0)
    async with site.inbox.opened() as store:
        assert (await store.consistency.report()).imbalances == ()


def then_cut_off(recorded: Any) -> Any:
    """The commit succeeds, and its result is lost."""

    async def cut_off(*given: Any, **options: Any) -> Any:
        await recorded(*given, **options)
        raise Unavailable("connection reset by peer")

    return cut_off


async def test_an_event_that_crashed_twice_is_left_to_workers(site: Site) -> None:
    raising(site.inbox, [Retry("not yet")], deadline=1, late=LATE)
    await site.deliver(stripe_event())
    for _ in range(2):
        await dead(site)
        async with site.inbox.opened() as store:
            site.inbox.clock.offset += 1
            assert await site.inbox.lease_reclaimer(store).reclaim() == 1
    assert (await site.deliver(stripe_event())).status == 202
    assert await done(site) == []
    await site.work(later=60)
    assert (await site.deliver(stripe_event())).body == b"at last"
