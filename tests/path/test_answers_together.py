"""Handlers that answer, beside stages, reviews, waits and order."""

from __future__ import annotations

import pytest

from hookledger import Answer, Event, Inbox, Review, Source, State, Wait
from hookledger.model import Kind
from hookledger.operate import review, search
from hookledger.operate.audit import by
from hookledger.operate.replay import replay
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

ENTITY = ["data.object.id"]


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    return await site_on(database_url, {"answers": {"lease": "3s"}})


def add_source(inbox: Inbox, **options: object) -> Source:
    return inbox.source("stripe", provider="stripe", secrets=[SECRET], **options)  # type: ignore[arg-type]


async def balanced(site: Site) -> None:
    async with site.inbox.opened() as store:
        assert (await store.consistency.report()).imbalances == ()


async def approve(site: Site, reference: str) -> None:
    async with site.inbox.operating() as context:
        known = (await search.find(context, reference)).event
        await review.approve(context, by("ada", "she paid"), known)


# ── stages ───────────────────────────────────────────────────────────────────


async def test_stages_begin_with_the_answer_of_their_event(site: Site) -> None:
    """In the same commit; a failed stage changes neither the event nor its answer, and is replayed alone."""
    source = add_source(site.inbox)
    ran: list[str] = []

    @source.answer("*", deadline=20)
    async def handle(event: Event) -> Answer:
        ran.append("answer")
        await event.tx.execute("INSERT INTO done VALUES ('answer')")
        return Answer({"run": ran.count("answer")}, 201)

    @source.on("*", stage="finance")
    async def book(event: Event) -> None:
        ran.append("finance")
        if ran.count("finance") == 1:
            raise Review("the ledger is closed")
        await event.tx.execute("INSERT INTO done VALUES ('finance')")

    first = await site.deliver(stripe_event())
    assert (first.status, first.json) == (201, {"run": 1})
    [stage] = (await site.event("evt_1")).stages
    assert (stage.stage, stage.state) == ("finance", State.PENDING)
    await site.work()
    assert await site.state("evt_1/finance") is State.NEEDS_REVIEW
    again = await site.deliver(stripe_event())
    assert (again.status, again.body) == (201, first.body)
    await approve(site, "evt_1/finance")
    await site.work()
    assert (await site.state("evt_1/finance"), await site.state("evt_1")) == (State.PROCESSED, State.PROCESSED)
    assert ran == ["answer", "finance", "finance"]
    async with site.inbox.operating() as context:
        await replay.replay(context, by("ada", "why"), (await search.find(context, "evt_1")).event)
    await site.work()
    assert ran == ["answer", "finance", "finance", "answer"], "a replay of the event replays no stage"
    assert (await site.deliver(stripe_event())).body == first.body
    await balanced(site)


# ── reviews ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("who", ["the next delivery", "a worker"])
async def test_an_approved_run_answers(site: Site, who: str) -> None:
    """Whoever runs it, it has the approval once, and its answer is kept."""
    approvals: list[str | None] = []

    @add_source(site.inbox).answer("*", deadline=20, failed=Answer("ask us", 202))
    async def handle(event: Event) -> Answer:
        approvals.append(event.approved.by if event.approved else None)
        if not event.approved:
            raise Review("the account is cancelled")
        await event.tx.execute("INSERT INTO done VALUES ('answer')")
        return Answer("welcome back", 201)

    asked = await site.deliver(stripe_event())
    assert (asked.status, asked.body) == (202, b"ask us")
    assert (await site.deliver(stripe_event())).body == b"ask us", "a redelivery is no approval"
    await approve(site, "evt_1")
    if who == "a worker":
        await site.work()
    for _ in range(2):
        answered = await site.deliver(stripe_event())
        assert (answered.status, answered.body) == (201, b"welcome back")
    await site.work()
    assert approvals == [None, "ada"]
    found = await site.event("evt_1")
    assert (found.event.state, found.event.run, found.event.approval_id) == (State.PROCESSED, 2, None)
    assert await done(site) == ["answer"]
    await balanced(site)


async def test_a_review_in_a_replay_keeps_the_answer(site: Site) -> None:
    """A sender that repeats the request sees the answer that it was given, whatever later runs come to."""
    decided: list[bool] = []

    @add_source(site.inbox).answer("*", deadline=20)
    async def handle(event: Event) -> Answer:
        if decided and not event.approved:
            raise Review("once more?")
        decided.append(event.approved is not None)
        return Answer(f"answer {len(decided)}", 201)

    first = await site.deliver(stripe_event())
    async with site.inbox.operating() as context:
        await replay.replay(context, by("ada", "why"), (await search.find(context, "evt_1")).event)
    await site.work()
    assert await site.state("evt_1") is State.NEEDS_REVIEW
    assert (await site.deliver(stripe_event())).body == first.body
    await approve(site, "evt_1")
    await site.work()
    assert decided == [False, True]
    assert (await site.deliver(stripe_event())).body == first.body
    await balanced(site)


# ── order ────────────────────────────────────────────────────────────────────


async def test_an_answered_event_wakes_what_waits_for_its_entity(site: Site) -> None:
    source = add_source(site.inbox, entity=ENTITY)
    created: list[str] = []

    @source.answer("customer.created", deadline=20)
    async def create(event: Event) -> Answer:
        created.append(event.key)
        return Answer("created", 201)

    @source.on("customer.updated")
    async def update(event: Event) -> None:
        if not created:
            raise Wait("no such customer yet", for_entity="in_1", at_most="1h")

    await site.deliver(stripe_event("evt_2", "customer.updated"))
    await site.work()
    assert await site.state("evt_2") is State.RETRYING
    assert (await site.deliver(stripe_event("evt_1", "customer.created"))).status == 201
    await site.work()
    assert await site.state("evt_2") is State.PROCESSED, "long before it would look again"
    await balanced(site)


async def test_a_delivery_runs_no_event_before_its_turn(site_on: MakeSite, database_url: str) -> None:
    """Its type was ordered when it was recorded, and has a handler that answers since."""
    before = await site_on(database_url)
    add_source(before.inbox, ordered=["invoice.*"], entity=ENTITY)
    for ident, created in (("evt_2", 1_790_000_002), ("evt_1", 1_790_000_001)):
        assert (await before.deliver(stripe_event(ident, created=created))).status == 202
    async with before.inbox.opened() as store:
        while await store.entities.place():
            pass
        assert [one.key for one in await store.claim("w", [Kind("stripe", "invoice.paid")], 9, 0.5)] == ["evt_1"]
    now = Site(Inbox(before.inbox.database, settings=before.inbox.settings, clock=before.inbox.clock))
    ran: list[str] = []

    @add_source(now.inbox, entity=ENTITY).answer("*", deadline=20, late=Answer("later", 202))
    async def handle(event: Event) -> Answer:
        ran.append(event.key)
        return Answer("done", 201)

    waits = await now.deliver(stripe_event("evt_2", created=1_790_000_002))
    assert (waits.status, waits.body, ran) == (202, b"later", [])
    assert await now.state("evt_2") is State.PENDING
    await balanced(now)
