"""`event.current()` with a ready-made fetcher, as handlers and operators meet it; and tickets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from hookledger import CallInTransaction, Event, FetchFailed, NoTicket, RetryPolicy, SyncEvent
from hookledger.clock import Seconds
from hookledger.operate import search
from hookledger.operate.audit import by
from hookledger.operate.reconcile.repair import repair
from hookledger.providers.fetching.fetcher import ReadyFetcher
from hookledger.states import CircuitState, State
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.remote import Running, eventually
from tests.services import objects as service
from tests.services.objects import SLOW, Objects, Reply

TOKEN = "made_up_key_of_the_tests"
HOST = "127.0.0.1"
INVOICE = "/v1/invoices/in_1"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    monkeypatch.setenv("STRIPE_API_KEY", TOKEN)
    with service.running() as running:
        running.objects[INVOICE] = {"id": "in_1", "status": "paid"}
        yield running


@pytest.fixture
async def shop(site_on: MakeSite, database_url: str, api: Objects) -> Site:
    """A site on either store, whose source `stripe` is configured in TOML."""
    source = {
        "provider": "stripe",
        "secrets": [SECRET],
        "current": {"token": "env:STRIPE_API_KEY", "base_url": api.url},
    }
    work = {"poll": "10ms", "circuit": {"failures": 3, "cooldown": "60s"}}
    return await site_on(database_url, {"work": work, "sources": {"stripe": source}})


def writes_state(site: Site) -> None:
    @site.inbox.sources["stripe"].on("invoice.*")
    async def handle(event: Event) -> str:
        now = await event.current()
        status = "gone" if now is None else now["status"]
        await event.tx.execute(f"INSERT INTO done VALUES ('{status}')")
        return f"{status} {event.ticket}"


def pause_is_over(site: Site) -> None:
    """The clock of the tests moves the database's time, and not that of this process."""
    fetcher = site.inbox.currents.of("stripe")
    assert isinstance(fetcher, ReadyFetcher)
    fetcher._rests_until = 0.0


# proves R37
async def test_one_line_of_settings_fetches_the_current_state(shop: Site, api: Objects) -> None:
    writes_state(shop)
    for number in (1, 2):
        await shop.deliver(stripe_event(f"evt_{number}"))
        await shop.work()
        api.objects[INVOICE] = {"id": "in_1", "status": "refunded"}
    assert await done(shop) == ["paid", "refunded"]
    assert (await shop.event("evt_2")).event.result == "refunded 2"


async def test_the_setting_in_python(site_on: MakeSite, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await site_on(sqlite_url)
    monkeypatch.setenv("STRIPE_API_KEY", TOKEN)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET], current="env:STRIPE_API_KEY")
    fetcher = made.inbox.currents.of("stripe")
    assert isinstance(fetcher, ReadyFetcher)
    assert fetcher.downstream == "api.stripe.com"


async def test_plain_functions_fetch_too(shop: Site) -> None:
    @shop.inbox.sources["stripe"].on("invoice.*")
    def handle(event: SyncEvent) -> str:
        with pytest.raises(NoTicket):
            assert event.ticket
        return f"{event.current()['status']} {event.ticket}"

    await shop.deliver(stripe_event())
    await shop.work()
    assert (await shop.event("evt_1")).event.result == "paid 1"


async def test_a_rate_limit_costs_no_attempt(shop: Site, api: Objects) -> None:
    writes_state(shop)
    api.trouble.append(Reply(429, {}, {"Retry-After": "300"}))
    await shop.deliver(stripe_event("evt_1"))
    await shop.work()
    waiting = (await shop.event("evt_1")).event
    assert (waiting.state, waiting.attempts) == (State.RETRYING, 0)
    assert waiting.reason is not None
    assert "429: too many requests" in waiting.reason
    assert waiting.due_at is not None
    assert (waiting.due_at - waiting.received_at).total_seconds() >= 300
    await shop.deliver(stripe_event("evt_2"))
    await shop.work()
    assert len(api.asked) == 1, "another event does not ask before the pause is over"
    pause_is_over(shop)
    await shop.work(later=400)
    assert await done(shop) == ["paid", "paid"]
    assert (await shop.event("evt_1")).event.attempts == 1


@pytest.mark.parametrize("pause", ["0", "0.001", "Wed, 21 Oct 2015 07:28:00 GMT"])
async def test_an_api_that_is_down_and_asks_for_no_pause_does_not_use_up_the_attempts(
    shop: Site, api: Objects, pause: str
) -> None:
    policy = RetryPolicy(attempts=2, initial_delay=Seconds("6h"))

    @shop.inbox.sources["stripe"].on("invoice.*", retry=policy)
    async def handle(event: Event) -> str:
        return str((await event.current())["status"])

    api.trouble.extend([Reply(503, {}, {"Retry-After": pause})] * 2)
    await shop.deliver(stripe_event())
    await shop.work()
    waiting = (await shop.event("evt_1")).event
    assert (waiting.state, waiting.attempts, len(api.asked)) == (State.RETRYING, 1, 1)
    api.trouble.clear()
    await shop.work(later=6 * 3600)
    assert (await shop.event("evt_1")).event.result == "paid"


async def test_a_broken_api_opens_its_circuit(shop: Site, api: Objects) -> None:
    """Three failures in a row; then events wait without a request or an attempt, until one trial succeeds."""
    writes_state(shop)
    api.trouble.extend([Reply(500, {})] * 4)
    await shop.deliver(stripe_event("evt_1"))
    for _ in range(3):
        await shop.work(later=3600)
    async with shop.inbox.opened() as store:
        [circuit] = await store.circuits.all()
    assert (circuit.downstream, circuit.state, len(api.asked)) == (HOST, CircuitState.OPEN, 3)
    assert circuit.reason is not None
    assert "127.0.0.1 answered 500" in circuit.reason

    await shop.deliver(stripe_event("evt_2"))
    await shop.work()
    waiting = (await shop.event("evt_2")).event
    assert (waiting.state, waiting.attempts, len(api.asked)) == (State.RETRYING, 0, 3)
    assert waiting.reason is not None
    assert "circuit of 127.0.0.1 is open" in waiting.reason

    await shop.work(later=61)
    assert len(api.asked) == 4, "one trial, which fails"
    for _ in range(4):
        await shop.work(later=3600)
    assert await done(shop) == ["paid", "paid"]
    async with shop.inbox.opened() as store:
        [circuit] = await store.circuits.all()
    assert circuit.state is CircuitState.CLOSED


async def test_an_answer_that_is_no_failure_closes_the_circuit(shop: Site, api: Objects) -> None:
    """A rejected token is no reason to spare the API: it answers."""
    writes_state(shop)
    async with shop.inbox.opened() as store:
        for _ in range(3):
            await store.circuits.fail(HOST, 3, 60.0, "down")
    api.trouble.append(Reply(403, {}))
    await shop.deliver(stripe_event("evt_1"))
    await shop.work(later=61)
    async with shop.inbox.opened() as store:
        [circuit] = await store.circuits.all()
    assert (await shop.state("evt_1"), circuit.state) == (State.FAILED, CircuitState.CLOSED)


async def test_a_wrong_token_is_a_dead_letter_that_names_the_setting(
    shop: Site, api: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    writes_state(shop)
    api.trouble.append(Reply(401, {"error": f"Invalid API Key provided: {TOKEN}"}))
    await shop.deliver(stripe_event("evt_1"))
    with caplog.at_level(logging.DEBUG):
        await shop.work()
    history = await shop.event("evt_1")
    assert (history.event.state, history.event.attempts) == (State.FAILED, 1)
    assert "check token (env:STRIPE_API_KEY) in [sources.stripe.current]" in (history.event.reason or "")
    assert TOKEN not in f"{history} {caplog.text}", "neither in the ledger nor in the log"
    assert api.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


async def test_an_object_that_is_gone(shop: Site, api: Objects) -> None:
    writes_state(shop)
    api.objects = {"/v1/events/evt_1": {"id": "evt_1"}}
    await shop.deliver(stripe_event("evt_1"))
    await shop.work()
    assert await done(shop) == ["gone"]


async def test_a_repair_fetches_by_the_id_alone(shop: Site) -> None:
    stripe = shop.inbox.sources["stripe"]

    @stripe.repair
    async def repaired(event: Event) -> str:
        return f"{(await event.current())['status']} {event.ticket}"

    async with shop.inbox.opened() as store:
        made = await repair(shop.inbox.context(store), by("ada", "support asked"), "stripe", "in_1")
    await shop.work()
    assert (await shop.event(made.event.id)).event.result == "paid 1"


async def test_a_missing_token_is_logged_at_the_start(
    shop: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("STRIPE_API_KEY")
    await shop.work()
    assert "event.current() will fail: the token in environment variable STRIPE_API_KEY is not set" in caplog.text


# ── tickets ──────────────────────────────────────────────────────────────────


async def test_there_is_no_ticket_before_current_nor_after_a_failed_one(shop: Site, api: Objects) -> None:
    @shop.inbox.sources["stripe"].on("invoice.*")
    async def handle(event: Event) -> None:
        with pytest.raises(NoTicket, match=r"await event\.current\(\) first"):
            assert event.ticket
        await event.current()
        assert event.ticket == 1
        api.trouble.append(Reply(500, {}))
        with pytest.raises(FetchFailed):
            await event.current()
        with pytest.raises(NoTicket):
            assert event.ticket
        await event.current()
        assert event.ticket == 3

    await shop.deliver(stripe_event("evt_1"))
    await shop.work()
    assert await shop.state("evt_1") is State.PROCESSED


async def test_reading_a_ticket_too_early_is_a_bug_that_no_retry_cures(shop: Site) -> None:
    @shop.inbox.sources["stripe"].on("invoice.*")
    async def handle(event: Event) -> str:
        return str(event.ticket)

    await shop.deliver(stripe_event("evt_1"))
    await shop.work()
    failed = (await shop.event("evt_1")).event
    assert (failed.state, failed.attempts) == (State.FAILED, 1)
    assert "event.ticket before event.current()" in (failed.reason or "")


@pytest.mark.parametrize("plain", [False, True])
async def test_your_own_function_has_a_ticket_too(site: Site, plain: bool) -> None:
    """Drawn before it is called, and a new one in each attempt."""
    stripe = site.inbox.sources["stripe"]
    seen: list[int] = []

    async def last() -> int:
        async with site.inbox.opened() as store:
            [drawn] = await store.tickets.draw(1)
            return drawn - 1

    if plain:
        loop = asyncio.get_running_loop()

        @stripe.current
        def ask(event: Any) -> str:
            seen.append(asyncio.run_coroutine_threadsafe(last(), loop).result(30))
            return "now"
    else:

        @stripe.current
        async def ask_async(event: Any) -> str:
            seen.append(await last())
            return "now"

    tickets: list[int] = []

    @stripe.on("invoice.*")
    async def handle(event: Event) -> None:
        await event.current()
        tickets.append(event.ticket)
        if event.attempt == 1:
            raise ConnectionError("later")

    await site.deliver(stripe_event("evt_1"))
    await site.work()
    await site.work(later=3600)
    assert len(tickets) == 2
    assert tickets[0] < tickets[1]
    assert seen == tickets, "the ticket was there before the function was called"


async def test_a_ticket_is_drawn_before_the_request(shop: Site, api: Objects) -> None:
    """The API is slow: when it has the request, the database has given out the ticket."""
    writes_state(shop)
    api.trouble.append(SLOW)
    await shop.deliver(stripe_event("evt_1"))
    async with Running(shop):
        await eventually(lambda: bool(api.asked), "the API has the request")
        async with shop.inbox.opened() as store:
            assert list(await store.tickets.draw(1)) == [2]
        api.gate.set()
        await eventually(lambda: processed(shop), "the event is processed")
    assert (await shop.event("evt_1")).event.result == "paid 1"


async def processed(site: Site) -> bool:
    return await site.state("evt_1") is State.PROCESSED


async def test_a_ticket_is_outside_the_handlers_transaction(shop: Site) -> None:
    """PostgreSQL: the handler holds a transaction and a connection while it asks. On SQLite that is refused."""
    tickets: list[int] = []

    @shop.inbox.sources["stripe"].on("invoice.*")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('before')")
        try:
            await event.current()
        except CallInTransaction:
            return
        tickets.append(event.ticket)
        if event.attempt == 1:
            raise ConnectionError("roll back")

    await shop.deliver(stripe_event("evt_1"))
    await shop.work()
    await shop.work(later=3600)
    async with shop.inbox.opened() as store:
        exclusive = store.tickets._database.exclusive
    assert tickets == ([] if exclusive else [1, 2])
    assert await done(shop) == ["before"]


async def test_concurrent_handlers_draw_distinct_tickets(shop: Site, api: Objects) -> None:
    """Many at a time share a commit; each has its own number."""
    tickets: list[int] = []

    @shop.inbox.sources["stripe"].on("invoice.*")
    async def handle(event: Event) -> None:
        await event.current()
        tickets.append(event.ticket)

    for number in range(60):
        await shop.deliver(stripe_event(f"evt_{number}"))
    await shop.work()
    assert sorted(tickets) == list(range(1, 61))


async def test_a_batch_has_a_ticket_for_each_event(site_on: MakeSite, postgres_url: str) -> None:
    """PostgreSQL: on SQLite the second event of a batch may not ask, because the first has begun the transaction."""
    made = await site_on(postgres_url)
    stripe = made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    tickets: list[int] = []

    @stripe.current
    async def ask(event: Any) -> str:
        return "now"

    @stripe.on("invoice.*", batch=5)
    async def handle(event: Event) -> None:
        with pytest.raises(NoTicket):
            assert event.ticket
        await event.current()
        tickets.append(event.ticket)

    for number in range(5):
        await made.deliver(stripe_event(f"evt_{number}"))
    await made.work()
    assert sorted(tickets) == [1, 2, 3, 4, 5]


async def test_a_dry_run_draws_a_real_ticket_and_writes_nothing_else(shop: Site, api: Objects) -> None:
    """Whatever the handler writes under it is rolled back, and a number that nobody uses does no harm. A run would
    have one, so `event.newer` answers as it would there."""
    writes_state(shop)
    await shop.deliver(stripe_event("evt_1"))
    await shop.work()
    async with shop.inbox.opened(handlers=1) as store:
        history = await search.find(shop.inbox.context(store), "evt_1")
        report = await shop.inbox.dry_run(store).run(history)
        assert (report.state, report.result) == (State.PROCESSED, "paid 2")
        assert list(await store.tickets.draw(1)) == [3]
    assert await done(shop) == ["paid"]


async def test_a_dry_run_stops_at_an_open_circuit(shop: Site, api: Objects) -> None:
    writes_state(shop)
    await shop.deliver(stripe_event("evt_1"))
    await shop.work()
    async with shop.inbox.opened(handlers=1) as store:
        await store.circuits.trip(HOST, "ada", "they are down")
        history = await search.find(shop.inbox.context(store), "evt_1")
        report = await shop.inbox.dry_run(store).run(history)
    assert report.state is State.RETRYING
    assert "they are down" in (report.reason or "")
    assert len(api.asked) == 1
