"""Several handlers for one event, through intake and workers: each with its own state, attempts, retry and replay."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from hookledger import Event, Inbox, Permanent, Retry, RetryPolicy, Review, Skip, State, SyncEvent
from hookledger.config import decode
from hookledger.errors import ConfigError, WrongState
from hookledger.model import Kind, Pattern, Waiting
from hookledger.operate import decide, search
from hookledger.operate.pauses import pause
from hookledger.operate.replay import replay as replaying
from hookledger.operate.replay.stages import replay_stage
from hookledger.operate.review import approve
from hookledger.operate.review import settle as settle_by_hand
from hookledger.source import Source
from hookledger.states import AttemptOutcome
from hookledger.store.history import EventRow
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.filters import Filter
from hookledger.store.protocol import Store
from tests.asgi_client import Site, stripe_event
from tests.builders import delivered, way_out
from tests.path.conftest import SECRET, MakeSite, done

BY = Audit("ada", "we checked")
ORDERED: Any = {"ordered": ["customer.*"], "entity": ["data.object.customer"]}


def stripe_of(site: Site, **options: Any) -> Source:
    return site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **options)


async def write(event: Event, what: str) -> None:
    await event.tx.execute(f"INSERT INTO done VALUES ('{what}')")


async def states(site: Site, *references: str) -> list[State]:
    return [(await site.event(reference)).event.state for reference in references]


async def check_books(site: Site) -> None:
    async with site.inbox.opened() as store:
        assert (await store.consistency.report()).imbalances == ()


async def retry(site: Site, reference: str) -> EventRow:
    async with site.inbox.operating() as context:
        return (await decide.retry(context, BY, (await search.find(context, reference)).event)).event


async def replay(site: Site, reference: str) -> EventRow:
    async with site.inbox.operating() as context:
        return (await replaying.replay(context, BY, (await search.find(context, reference)).event)).event


# proves R69
async def test_a_stage_fails_alone_and_is_retried_alone(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)
    broken, seen = True, Counter[str]()

    @stripe.on("invoice.paid", stage="finance")
    async def finance(event: Event) -> None:
        assert (event.source, event.type, event.stage) == ("stripe", "invoice.paid", "finance")
        assert event.json["id"] == event.key == "evt_1"
        seen["finance"] += 1
        if broken:
            raise Permanent("the ledger is closed")
        await write(event, "booked")

    @stripe.on("invoice.paid", stage="provision")
    def provision(event: SyncEvent) -> str:
        seen["provision"] += 1
        event.tx.execute("INSERT INTO done VALUES ('provisioned')")
        return "provisioned"

    await site.deliver(stripe_event())
    await site.work()
    assert await states(site, "evt_1", "evt_1/finance", "evt_1/provision") == ["processed", "failed", "processed"]
    whole, failed = await site.event("evt_1"), await site.event("evt_1/finance")
    assert whole.event.result == "stages: finance, provision"
    assert [(row.stage, row.state, row.attempts) for row in whole.stages] == [
        ("finance", "failed", 1),
        ("provision", "processed", 1),
    ]
    assert (failed.event.source, failed.event.parent) == ("stripe/finance", whole.event.id)
    assert failed.event.reason == "the ledger is closed"
    assert (await site.event("evt_1/provision")).event.result == "provisioned"
    broken = False
    await retry(site, "evt_1/finance")
    await site.work()
    assert seen == {"finance": 2, "provision": 1}
    assert await done(site) == ["booked", "provisioned"]
    failed = await site.event("evt_1/finance")
    assert [attempt.outcome for attempt in failed.attempts] == [AttemptOutcome.FAILED, AttemptOutcome.PROCESSED]
    assert len((await site.event("evt_1/provision")).attempts) == 1
    await replay(site, "evt_1/provision")
    await site.work()
    assert seen == {"finance": 2, "provision": 2}
    assert (await site.event("evt_1/provision")).event.run == 2
    assert [row.run for row in (await site.event("evt_1")).stages] == [1, 2]
    await check_books(site)


async def test_a_handler_without_a_stage_runs_first_and_decides(site_on: MakeSite, database_url: str) -> None:
    """What it writes, its outcome and the stages are one commit; nothing begins while it fails."""
    site = await site_on(database_url)
    stripe = stripe_of(site)
    order: list[str] = []

    @stripe.on("invoice.paid", retry=RetryPolicy(attempts=3))
    async def record(event: Event) -> str:
        order.append(f"record {event.stage}")
        await write(event, "recorded")
        if event.attempt == 1:
            raise Retry("not yet")
        return "recorded"

    @stripe.on("invoice.*", stage="mail")
    async def mail(event: Event) -> None:
        order.append(f"{event.stage} by pattern")

    @stripe.on("invoice.paid", stage="mail")
    async def mail_paid(event: Event) -> None:
        order.append(f"{event.stage} by type")

    await site.deliver(stripe_event())
    await site.work()
    assert (await site.event("evt_1")).stages == ()
    await site.work(later=3600)
    await site.deliver(stripe_event("evt_2", "invoice.voided"))
    await site.work()
    assert order == ["record None", "record None", "mail by type", "mail by pattern"]
    assert await done(site) == ["recorded"]
    found = await site.event("evt_1")
    assert (found.event.result, [row.stage for row in found.stages]) == ("recorded", ["mail"])
    await replay(site, "evt_1")  # of the event alone
    await site.work()
    assert order[4:] == ["record None"]
    await check_books(site)


async def test_draining_sees_the_stages_of_an_event_that_ended_while_it_looked(
    site_on: MakeSite, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to "what is due" may be from before the commit that began the stages."""
    site = await site_on(database_url)
    stripe = stripe_of(site)
    ran: list[str | None] = []
    runs, asked = asyncio.Event(), asyncio.Event()
    async with site.inbox.opened() as store:
        kind: type[Store] = type(store)
    waiting = kind.waiting

    async def answered_late(store: Store) -> list[Waiting]:
        found = await waiting(store)
        if runs.is_set() and not asked.is_set():
            asked.set()
            await asyncio.sleep(0.5)
        return found

    @stripe.on("invoice.paid")
    async def record(event: Event) -> None:
        ran.append(event.stage)
        runs.set()
        await asked.wait()

    @stripe.on("invoice.paid", stage="mail")
    async def mail(event: Event) -> None:
        ran.append(event.stage)

    await site.deliver(stripe_event())
    monkeypatch.setattr(kind, "waiting", answered_late)
    await site.work()
    assert ran == [None, "mail"]
    assert await states(site, "evt_1/mail") == [State.PROCESSED]


async def test_batches_and_plain_functions_begin_stages(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)
    seen: Counter[str | None] = Counter()

    @stripe.on("invoice.paid", batch=5)
    async def record(event: Event) -> None:
        seen[event.stage] += 1
        await write(event, event.key)

    for stage in ("a", "b"):

        @stripe.on("invoice.paid", batch=5, stage=stage)
        def more(event: SyncEvent) -> None:
            seen[event.stage] += 1

    for number in range(12):
        await site.deliver(stripe_event(f"evt_{number}"))
    await site.work()
    assert seen == {None: 12, "a": 12, "b": 12}
    await check_books(site)


async def test_an_event_that_is_skipped_has_no_stages_until_it_is_processed(
    site_on: MakeSite, database_url: str
) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)
    skips, seen = True, 0

    @stripe.on("invoice.paid")
    async def record(event: Event) -> None:
        if skips:
            raise Skip("a test invoice")

    @stripe.on("invoice.paid", stage="mail")
    async def mail(event: Event) -> None:
        nonlocal seen
        seen += 1

    await site.deliver(stripe_event())
    await site.work()
    assert ((await site.event("evt_1")).stages, seen) == ((), 0)
    skips = False
    await replay(site, "evt_1")
    await site.work()
    assert ([row.state for row in (await site.event("evt_1")).stages], seen) == (["processed"], 1)


async def test_a_worker_without_the_stages_leaves_them_alone(site_on: MakeSite, database_url: str) -> None:
    """A rolling deploy: the old worker processes the event, and never touches a stage. What it processed lacks it."""
    site = await site_on(database_url)
    stripe = stripe_of(site)
    seen: list[tuple[str, str | None]] = []

    @stripe.on("invoice.paid")
    async def record(event: Event) -> None:
        seen.append((event.key, event.stage))

    old = Inbox(site.inbox.database, settings=decode({"work": {"poll": "10ms"}}))
    old_stripe = old.source("stripe", provider="stripe", secrets=[SECRET])
    old_stripe.on("invoice.paid")(record)

    @stripe.on("invoice.paid", stage="mail")
    async def mail(event: Event) -> None:
        seen.append((event.key, event.stage))

    await site.deliver(stripe_event("evt_1"))
    await old.work(drain=True)
    await site.deliver(stripe_event("evt_2"))
    async with site.inbox.opened(handlers=1) as store:
        [owner] = await store.claim("new", [Kind("stripe", "invoice.paid")], 1, 60.0)
        assert await store.settle([way_out(owner, "complete", stages=("mail",))]) == {owner.id}
    await old.work(drain=True)  # finds nothing that it handles
    assert seen == [("evt_1", None)]
    assert (await site.event("evt_1")).stages == ()
    assert await states(site, "evt_2/mail") == ["pending"]
    await site.work()
    assert seen[1:] == [("evt_2", "mail")]


async def test_a_stage_that_was_added_later(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)

    @stripe.on("invoice.paid", stage="finance")
    async def finance(event: Event) -> None:
        await write(event, f"booked {event.key}")

    for number in (1, 2):
        await site.deliver(stripe_event(f"evt_{number}"))
    await site.work()

    @stripe.on("invoice.paid", stage="mail")
    async def mail(event: Event) -> None:
        await write(event, f"sent {event.key}")

    await site.deliver(stripe_event("evt_3"))
    await site.work()
    async with site.inbox.operating() as context:
        lacking = Filter(source="stripe", lacks_stage="mail")
        assert [row.key for row in (await search.page(context, lacking)).events] == ["evt_2", "evt_1"]
        with pytest.raises(ConfigError, match="no handler"):
            await replay_stage(context, BY, (await search.find(context, "evt_1")).event, "nothing")
        added = await replay_stage(context, BY, (await search.find(context, "evt_1")).event, "mail")
        assert (added.event.stage, added.event.state) == ("mail", State.PENDING)
        assert [(action.name, action.actor) for action in added.actions] == [("add-stage", "ada")]
        assert [row.key for row in (await search.page(context, lacking)).events] == ["evt_2"]
    await site.work()
    assert await done(site) == ["booked evt_1", "booked evt_2", "booked evt_3", "sent evt_1", "sent evt_3"]
    async with site.inbox.operating() as context:
        again = await replay_stage(context, BY, (await search.find(context, "evt_1")).event, "mail")
        assert (again.event.run, again.event.state) == (2, State.PENDING)
    await check_books(site)


async def test_stages_of_ordered_events_are_ordered_too(site_on: MakeSite, database_url: str) -> None:
    """Events of one entity run by time in each stage; a stage that fails keeps no other stage waiting."""
    site = await site_on(database_url)
    stripe = stripe_of(site, **ORDERED)
    seen: dict[str | None, list[int]] = {}

    async def note(event: Event) -> None:
        seen.setdefault(event.stage, []).append(event.json["created"])
        if event.stage == "a" and event.attempt == 1:
            raise Retry("once more", after=0.0)

    for stage in ("a", "b"):
        stripe.on("customer.updated", stage=stage)(note)
    for at in (3, 1, 2):
        data = {"object": {"id": "cus", "customer": "cus_1"}}
        await site.deliver(stripe_event(f"evt_{at}", "customer.updated", created=1_700_000_000 + at, data=data))
    await site.work()
    in_order = [1_700_000_001, 1_700_000_002, 1_700_000_003]
    assert seen == {"a": [at for at in in_order for _ in range(2)], "b": in_order}
    row = (await site.event("evt_1/a")).event
    assert (row.source, row.entity) == ("stripe/a", "cus_1")
    await check_books(site)


async def test_the_same_once_in_two_stages_goes_to_review(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)

    async def credit(event: Event) -> None:
        if await event.once("credit", "in_1"):
            await write(event, "credited")

    stripe.on("invoice.paid", stage="finance")(credit)
    stripe.on("invoice.paid", stage="provision")(credit)
    stripe.on("customer.credited")(credit)
    await site.deliver(stripe_event())
    await site.work()
    assert await done(site) == ["credited"]
    rows = {row.state: row for row in (await site.event("evt_1")).stages}
    assert rows.keys() == {State.PROCESSED, State.NEEDS_REVIEW}
    reason = rows[State.NEEDS_REVIEW].reason or ""
    assert "'finance'" in reason
    assert "'provision'" in reason
    # Of another event it is done already, and of a replay too.
    await site.deliver(stripe_event("evt_2", "customer.credited"))
    await replay(site, f"evt_1/{rows[State.PROCESSED].stage}")
    await site.work()
    assert await done(site) == ["credited"]
    assert await states(site, "evt_2", f"evt_1/{rows[State.PROCESSED].stage}") == ["processed", "processed"]


@pytest.mark.parametrize("grows", [False, True], ids=["one version", "growing versions"])
async def test_the_same_guard_in_two_stages_goes_to_review(site_on: MakeSite, database_url: str, grows: bool) -> None:
    """Which stage is later must not depend on their ids, or on who runs first: one of them writes, no other does."""
    site = await site_on(database_url)
    stripe = stripe_of(site)
    names = [f"stage-{number}" for number in range(6)]
    asked = 0

    async def guard(event: Event) -> None:
        nonlocal asked
        asked += 1
        if await event.newer("status", "sub_1", asked if grows else 7):
            await write(event, str(event.stage))

    for name in names:
        stripe.on("invoice.paid", stage=name)(guard)
    await site.deliver(stripe_event())
    await site.work()
    found = {str(row.stage): row for row in (await site.event("evt_1")).stages}
    assert Counter(row.state for row in found.values()) == {State.PROCESSED: 1, State.NEEDS_REVIEW: 5}
    assert await done(site) == [name for name in names if found[name].state is State.PROCESSED]
    reviewed = next(row for row in found.values() if row.state is State.NEEDS_REVIEW)
    assert "set by another stage of the same event" in (reviewed.reason or "")
    await check_books(site)


async def test_an_approved_stage_gets_an_answer_where_another_stage_was_first(
    site_on: MakeSite, database_url: str
) -> None:
    """An operator has read the review: to ask again would never end. The other stages keep theirs."""
    site = await site_on(database_url)
    stripe = stripe_of(site)

    async def credit(event: Event) -> str:
        first = await event.once("credit", "in_1")
        applied = await event.newer("status", "in_1", 7)
        if first and applied:
            await write(event, "credited")
        return f"{first} {bool(event.approved)}"

    for stage in ("a", "b", "c"):
        stripe.on("invoice.paid", stage=stage)(credit)
    await site.deliver(stripe_event())
    await site.work()
    one, other = [row for row in (await site.event("evt_1")).stages if row.state is State.NEEDS_REVIEW]
    async with site.inbox.operating() as context:
        await approve(context, BY, one)
    await site.work()
    after, left = (await site.event(str(one.id))).event, (await site.event(str(other.id))).event
    assert (after.state, after.result, after.run) == (State.PROCESSED, "False True", 2)
    assert (left.state, left.claim) == (State.NEEDS_REVIEW, other.claim)
    assert await done(site) == ["credited"]
    await check_books(site)


async def test_a_source_and_its_stages_share_max_running(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site, max_running=2)
    other = site.inbox.source("other", provider="stripe", secrets=[SECRET])
    running, most = Counter[str](), Counter[str]()

    async def note(event: Event) -> None:
        running[event.source] += 1
        most[event.source] = max(most[event.source], running[event.source])
        await asyncio.sleep(0.005)
        running[event.source] -= 1

    for source in (stripe, other):
        source.on("invoice.paid")(note)
        for stage in ("a", "b", "c"):
            source.on("invoice.paid", stage=stage)(note)
    async with site.inbox.opened() as store:
        await store.record([delivered(f"evt_{n}", source=name) for n in range(20) for name in ("stripe", "other")])
    await site.work()
    assert (most["stripe"], most["other"] > 2) == (2, True)
    async with site.inbox.opened() as store:
        assert await store.counts() == {State.PROCESSED: 160}


async def test_a_dedicated_worker_begins_all_stages(site_on: MakeSite, database_url: str) -> None:
    """Who takes only some of the types, or one stage, knows the others: they are those of the application."""
    site = await site_on(database_url)
    stripe = stripe_of(site)
    seen: list[tuple[str, str | None]] = []

    async def note(event: Event) -> None:
        seen.append((event.type, event.stage))

    for stage in ("a", "b"):
        stripe.on("invoice.*", stage=stage)(note)
        stripe.on("customer.created", stage=stage)(note)
    routes = site.inbox.routes
    assert routes.only(["stripe/a"], []).handles() == [
        Pattern("stripe/a", kind) for kind in ("customer.created", "invoice.*")
    ]
    assert Pattern("stripe", "customer.created") in routes.only(["stripe"], ["customer.*"]).handles()
    assert routes.only(["stripe/a"], []).find(Kind("stripe", "invoice.paid")) is None
    with pytest.raises(ConfigError, match="stripe/c"):
        routes.only(["stripe/c"], [])
    await site.deliver(stripe_event("evt_1", "customer.created"))
    await site.deliver(stripe_event("evt_2", "invoice.paid"))
    await site.inbox.work(drain=True, sources=["stripe"], types=["customer.*"])
    assert sorted(seen, key=str) == [("customer.created", "a"), ("customer.created", "b")]
    await site.work()
    assert len(seen) == 4


async def test_what_the_handler_without_a_stage_did_once_counts(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)

    async def credit(event: Event) -> None:
        await event.once("credit", "in_1")

    stripe.on("invoice.paid")(credit)
    stripe.on("invoice.paid", stage="provision")(credit)
    await site.deliver(stripe_event())
    await site.work()
    found = (await site.event("evt_1/provision")).event
    assert found.state is State.NEEDS_REVIEW
    assert "the handler without a stage" in (found.reason or "")


async def test_stages_share_the_effects_of_their_source(site_on: MakeSite, database_url: str) -> None:
    """A call is made once, whichever stage asks first; a stage that waits for its outcome is continued."""
    site = await site_on(database_url)
    stripe = stripe_of(site)
    called: list[str] = []

    @site.inbox.effect(repeat="never")
    async def charge(op: Any) -> str:
        called.append(op.key)
        return "charged"

    async def ask(event: Event) -> str:
        result: str = await event.call(charge, "in_1")
        return result

    for stage in ("a", "b"):
        stripe.on("invoice.paid", stage=stage, transaction=False)(ask)
    await site.deliver(stripe_event())
    await site.work(later=1)
    await site.work(later=3600)
    assert len(called) == 1
    assert await states(site, "evt_1/a", "evt_1/b") == ["processed", "processed"]
    effects = [known.effect for stage in "ab" for known in (await site.event(f"evt_1/{stage}")).effects]
    assert [effect.source for effect in effects] == ["stripe"]


async def test_pauses_are_per_stage(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    stripe = stripe_of(site)
    for stage in ("a", "b"):

        @stripe.on("invoice.paid", stage=stage)
        async def handle(event: Event) -> None: ...

    async with site.inbox.operating() as context:
        await pause(context, BY, "stripe/a")
        with pytest.raises(ConfigError, match="unknown source"):
            await pause(context, BY, "strip/a")
    await site.deliver(stripe_event())
    await site.work()
    assert await states(site, "evt_1/a", "evt_1/b") == ["pending", "processed"]


async def test_names_of_stages(site: Site) -> None:
    stripe = site.inbox.sources["stripe"]

    async def handle(event: Event) -> None: ...

    for name in ("", "a/b", "a b", "x" * 65, 3):
        with pytest.raises(ConfigError, match="cannot name a stage"):
            stripe.on("invoice.paid", stage=name)  # type: ignore[arg-type]
    stripe.on("invoice.paid", stage="a")(handle)
    stripe.on("invoice.*", stage="a")(handle)
    stripe.on("invoice.paid", stage="b")(handle)
    stripe.on("invoice.paid")(handle)
    with pytest.raises(ConfigError, match=r"handle 'invoice.paid' in stage 'a'"):
        stripe.on("invoice.paid", stage="a")(handle)


async def test_a_stage_is_added_to_a_processed_event_only(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)

    @stripe.on("invoice.paid", stage="mail")
    async def mail(event: Event) -> None: ...

    await site.deliver(stripe_event())
    async with site.inbox.operating() as context:
        pending = (await search.find(context, "evt_1")).event
        with pytest.raises(WrongState, match="only processed"):
            await replay_stage(context, BY, pending, "mail")
        store: Store = context.store
        with pytest.raises(WrongState, match="changed"):
            await store.stages.add(pending.id, 7, "mail", *BY)


async def test_an_event_settled_by_hand_lacks_its_stages(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = stripe_of(site)

    @stripe.on("invoice.paid")
    async def record(event: Event) -> None:
        raise Review("look at it")

    @stripe.on("invoice.paid", stage="mail")
    async def mail(event: Event) -> None: ...

    await site.deliver(stripe_event())
    await site.work()
    async with site.inbox.operating() as context:
        event = (await search.find(context, "evt_1")).event
        await settle_by_hand(context, BY, event)
        event = (await search.find(context, "evt_1")).event
        assert (event.state, (await search.find(context, "evt_1")).stages) == (State.PROCESSED, ())
        [found] = (await search.page(context, Filter(source="stripe", lacks_stage="mail"))).events
        await replay_stage(context, BY, found, "mail")
    await site.work()
    assert await states(site, "evt_1/mail") == ["processed"]
    await check_books(site)
