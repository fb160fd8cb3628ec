"""Handlers that answer, more than can run: what waits is bounded, and so is what runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hookledger import Answer, Event, Permanent, Source, State, Wait
from hookledger.states import DeliveryOutcome
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite

LATE = Answer({"text": "working on it"}, status=202)


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    return await site_on(database_url, {"answers": {"lease": "3s", "queue": 5, "concurrency": 2}})


def add_source(site: Site, **options: Any) -> Source:
    return site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **options)


async def test_events_whose_deadline_is_over_count_until_they_have_ended(site: Site, recorded_in_time: None) -> None:
    go, ran = asyncio.Event(), []

    @add_source(site).answer("*", deadline=0.2, late=LATE)
    async def handle(event: Event) -> Answer:
        await go.wait()
        ran.append(event.key)
        return Answer("done")

    responses = [await site.deliver(stripe_event(f"evt_{n}")) for n in range(9)]
    assert [one.status for one in responses] == [202] * 5 + [503] * 4
    assert (await site.deliveries()) == {"accepted": 5}
    go.set()
    await site.inbox.asgi.stop()  # lets what runs finish
    assert len(ran) == 2


async def test_a_source_runs_no_more_than_it_may_and_delays_no_other(site: Site) -> None:
    go, running, most = asyncio.Event(), 0, 0

    @add_source(site, max_running=1).answer("*", deadline=20)
    async def handle(event: Event) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return Answer("done")

    other = site.inbox.source("other", provider="stripe", secrets=[SECRET])

    @other.answer("*", deadline=20)
    async def at_once(event: Event) -> Answer:
        return Answer("not delayed")

    asked = [asyncio.ensure_future(site.deliver(stripe_event(f"evt_{n}"))) for n in range(3)]
    while running == 0:
        await asyncio.sleep(0.01)
    assert (await site.deliver(stripe_event(), source="other")).body == b"not delayed"
    go.set()
    assert [one.body for one in await asyncio.gather(*asked)] == [b"done"] * 3
    assert most == 1


async def test_what_waits_for_a_slot_at_the_end_is_released(site: Site, recorded_in_time: None) -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    @add_source(site, max_running=1).answer("*", deadline=0.2, late=LATE)
    async def handle(event: Event) -> Answer:
        begun.set()
        await go.wait()
        return Answer("done")

    assert [(await site.deliver(stripe_event(f"evt_{n}"))).status for n in range(2)] == [202, 202]
    await begun.wait()
    stopping = asyncio.ensure_future(site.inbox.asgi.stop())
    while await site.state("evt_1") is not State.PENDING:
        await asyncio.sleep(0.01)
    go.set()
    await stopping
    assert await site.state("evt_0") is State.PROCESSED
    history = await site.event("evt_1")
    assert (history.event.state, history.event.attempts) == (State.PENDING, 0)


async def test_an_event_that_waits_for_another_is_not_run_by_its_duplicates(site: Site) -> None:
    ran: list[str] = []

    @add_source(site, entity=("data.object.id",)).answer("*", deadline=20, late=LATE)
    async def handle(event: Event) -> Answer:
        ran.append(event.key)
        if event.type == "first":
            return Answer("first")
        if "evt_first" not in ran:
            raise Wait(for_entity="in_1", at_most="1h")
        return Answer("second")

    assert (await site.deliver(stripe_event("evt_second", "second"))).status == 503
    duplicates = [await site.deliver(stripe_event("evt_second", "second")) for _ in range(3)]
    assert ran == ["evt_second"]
    assert [one.status for one in duplicates] == [202] * 3
    assert (await site.deliver(stripe_event("evt_first", "first"))).body == b"first"
    await site.work(later=400)
    assert (await site.deliver(stripe_event("evt_second", "second"))).body == b"second"


async def test_what_is_recorded_after_the_deadline_counts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()
    source = add_source(site)

    @source.answer("*", deadline=0.2, late=LATE)
    async def handle(event: Event) -> Answer:
        return Answer("done")

    kind = type(site.inbox.store())
    claim_new = kind.claim_new

    async def slow(self: Any, *given: Any) -> Any:
        await over.wait()
        return await claim_new(self, *given)

    monkeypatch.setattr(kind, "claim_new", slow)
    assert (await site.deliver(stripe_event())).status == 503
    over.set()
    while await site.deliveries() != {"accepted": 1}:
        await asyncio.sleep(0.01)
    await site.inbox.asgi.stop()
    assert source.endpoint.counts.outcomes[DeliveryOutcome.ACCEPTED] == 1


async def test_permanent_takes_no_other_answer_than_an_answer(site: Site) -> None:
    @add_source(site).answer("*", deadline=20)
    async def handle(event: Event) -> Answer:
        raise Permanent("no", answer={"error": "no"})  # type: ignore[arg-type]

    assert (await site.deliver(stripe_event())).status == 503
    history = await site.event("evt_1")
    assert history.event.state is State.RETRYING
    assert "answer is an Answer, not dict" in (history.event.reason or "")
