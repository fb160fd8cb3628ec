"""Reviews as handlers and operators meet them, on both databases: `event.approved`, and what it never lets pass."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from hookledger import Approval, Event, Op, Retry, Review, State, SyncEvent
from hookledger.errors import WrongState
from hookledger.model import Kind
from hookledger.operate import audit, effects, review, search
from hookledger.operate.replay.preview import Verdict
from hookledger.store.history import EventRow, History
from hookledger.store.protocol import Store
from tests.asgi_client import Site
from tests.builders import Raw
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.remote import deliver, finish

WHY = "account acct_1 is cancelled"
LEASE = 60.0


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    made = await site_on(database_url)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


class Shop:
    """A handler that asks an operator about every event; what it got as `event.approved`."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.got: list[Approval | None] = []
        self.fails = 0
        """Attempts with an approval that fail after their writes."""

        @site.inbox.sources["stripe"].on("invoice.paid")
        async def paid(event: Event) -> str:
            self.got.append(event.approved)
            await event.tx.execute("INSERT INTO done VALUES ('provisioned')")
            if not event.approved:
                raise Review(WHY)
            if self.fails:
                self.fails -= 1
                raise Retry("not yet", after=1)
            return f"approved by {event.approved.by}"

    async def reviewed(self, ident: str = "evt_1") -> None:
        await deliver(self.site, ident, "invoice.paid")
        await self.site.work()
        assert await self.site.state(ident) is State.NEEDS_REVIEW


async def approve(
    site: Site, ident: str = "evt_1", reason: str = "she paid", *, seen: EventRow | None = None
) -> History:
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        event = seen or (await search.find(context, ident)).event
        return await review.approve(context, audit.by("ada", reason), event)


async def outcomes(site: Site, ident: str = "evt_1") -> list[tuple[int, str]]:
    return [(attempt.run, attempt.outcome.value) for attempt in (await site.event(ident)).attempts]


async def balanced(store: Store) -> None:
    assert (await store.consistency.report()).imbalances == ()


# proves R70
async def test_the_approved_run_passes_once(site: Site) -> None:
    shop = Shop(site)
    await shop.reviewed()
    assert (shop.got, await done(site)) == ([None], [])
    await approve(site)
    await asyncio.gather(site.work(), site.work())
    row = (await site.event("evt_1")).event
    assert (row.state, row.result, row.run, row.approval_id) == (State.PROCESSED, "approved by ada", 2, None)
    [_, approval] = shop.got
    assert isinstance(approval, Approval)
    assert (approval.by, approval.reason, approval.at.tzinfo is not None) == ("ada", "she paid", True)
    assert await done(site) == ["provisioned"]
    # Another run asks again.
    async with site.inbox.opened() as store:
        await store.replay(row.id, row.state, "bob", "again", seen=row.claim)
    await site.work()
    assert (shop.got[2:], await site.state("evt_1"), await done(site)) == (
        [None],
        State.NEEDS_REVIEW,
        ["provisioned"],
    )
    async with site.inbox.opened() as store:
        await store.retry(row.id, State.NEEDS_REVIEW, "bob", "again")
    await site.work()
    assert (shop.got[3:], await site.state("evt_1")) == ([None], State.NEEDS_REVIEW)


async def test_a_plain_function_is_told_too(site: Site) -> None:
    got: list[Approval | None] = []

    @site.inbox.sources["stripe"].on("invoice.paid")
    def paid(event: SyncEvent) -> None:
        got.append(event.approved)
        event.tx.execute("INSERT INTO done VALUES ('provisioned')")
        if not event.approved:
            raise Review(WHY)

    await deliver(site, "evt_1", "invoice.paid")
    await site.work()
    await approve(site)
    await site.work()
    assert (await site.state("evt_1"), await done(site)) == (State.PROCESSED, ["provisioned"])
    assert [approval and approval.by for approval in got] == [None, "ada"]


async def test_retries_and_crashes_of_the_run_keep_it(site: Site) -> None:
    shop = Shop(site)
    await shop.reviewed()
    await approve(site)
    shop.fails = 2
    await site.work()
    await site.work(later=2)
    async with site.inbox.opened() as store:  # a worker that dies with it
        site.inbox.clock.offset += 2
        [_] = await store.claim("dead", [Kind("stripe", "invoice.paid")], 1, LEASE)
    await finish(site)
    assert await outcomes(site) == [
        *((1, "needs_review"), (2, "retrying"), (2, "retrying")),
        *((2, "crashed"), (2, "processed")),
    ]
    assert [approval and approval.by for approval in shop.got] == [None, "ada", "ada", "ada"]
    assert await done(site) == ["provisioned"]


async def test_another_review_voids_it(site: Site) -> None:
    got: list[Approval | None] = []

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        got.append(event.approved)
        await event.tx.execute("INSERT INTO done VALUES ('provisioned')")
        raise Review("and the card is stolen" if event.approved else WHY)

    await deliver(site, "evt_1", "invoice.paid")
    await site.work()
    first = (await site.event("evt_1")).event
    await approve(site)
    await site.work()
    history = await site.event("evt_1")
    assert (history.event.state, history.event.reason) == (State.NEEDS_REVIEW, "and the card is stolen")
    with pytest.raises(WrongState, match=r"approve by ada.*review now, at claim 4: and the card is stolen"):
        await approve(site, seen=first)
    async with site.inbox.opened() as store:
        await store.retry(first.id, State.NEEDS_REVIEW, "bob", "again")
    await site.work()
    assert [approval and approval.by for approval in got] == [None, "ada", None]
    assert await done(site) == []


async def test_a_batch_has_approved_events_and_others(site: Site) -> None:
    got: dict[str, Approval | None] = {}

    @site.inbox.sources["stripe"].on("invoice.paid", batch=5)
    async def paid(event: Event) -> None:
        got[event.key] = event.approved
        await event.tx.execute(f"INSERT INTO done VALUES ('{event.key}')")
        if event.key == "evt_1" and not event.approved:
            raise Review(WHY)

    await deliver(site, "evt_1", "invoice.paid")
    await site.work()
    await approve(site)
    await deliver(site, "evt_2", "invoice.paid")
    await site.work()
    assert ({key: bool(value) for key, value in got.items()}, await done(site)) == (
        *({"evt_1": True, "evt_2": False}, ["evt_1", "evt_2"]),
    )


# ── when the audit log cannot be read ────────────────────────────────────────


async def test_an_approval_that_cannot_be_read_costs_no_attempt(site: Site) -> None:
    """The handler must not run as if there were none: it would ask for a second review."""
    shop = Shop(site)
    await shop.reviewed()
    await approve(site)
    async with site.inbox.opened() as store:
        await Raw(store).run("ALTER TABLE actions RENAME TO elsewhere")
    await site.work()
    [row] = await site.events()
    assert (row.state, row.attempts, row.snoozes) == (State.RETRYING, 0, 1)
    assert (row.reason or "").startswith("not started: its approval could not be read: ")
    assert (shop.got, row.approval_id is not None) == ([None], True)
    async with site.inbox.opened() as store:
        await Raw(store).run("ALTER TABLE elsewhere RENAME TO actions")
    await site.work(later=3600)
    assert (await site.state("evt_1"), await done(site)) == (State.PROCESSED, ["provisioned"])
    assert await outcomes(site) == [(1, "needs_review"), (2, "waiting"), (2, "processed")]


async def test_an_approval_that_is_gone_is_none(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(site)
    await shop.reviewed()
    await approve(site)
    async with site.inbox.opened() as store:
        await Raw(store).run("DELETE FROM actions")
    with caplog.at_level(logging.ERROR):
        await site.work()
    assert (shop.got, await site.state("evt_1"), await done(site)) == ([None, None], State.NEEDS_REVIEW, [])
    assert "runs without its approval" in caplog.text


# ── an approval never goes past the ledger ───────────────────────────────────


class Bank:
    """A call whose outcome is unknown and must not be repeated."""

    def __init__(self, site: Site) -> None:
        self.calls = 0
        self.cents = 5
        self.asks = False

        @site.inbox.effect(repeat="never")
        async def charge(op: Op, cents: int) -> str:
            self.calls += 1
            raise TimeoutError("no answer")

        @site.inbox.sources["stripe"].on("invoice.paid")
        async def paid(event: Event) -> str:
            if self.asks and not event.approved:
                raise Review(WHY)
            charged = await event.call(charge, event.json["data"]["object"]["id"], cents=self.cents)
            await event.tx.execute("INSERT INTO done VALUES ('provisioned')")
            return charged


# proves R47
async def test_an_unknown_call_is_resolved_and_not_approved(site: Site) -> None:
    bank = Bank(site)
    await deliver(site, "evt_1", "invoice.paid")
    await finish(site)
    history = await site.event("evt_1")
    assert (history.event.state, bank.calls) == (State.NEEDS_REVIEW, 1)
    with pytest.raises(WrongState, match=r"cannot be approved now: needs a decision: charge:.* hookledger resolve"):
        await approve(site)
    assert (await site.event("evt_1")).event == history.event
    # Whoever goes past the preview meets the ledger.
    async with site.inbox.opened() as store:
        await store.reviews.approve(history.event.id, history.event.state, "ada", "go", seen=history.event.claim)
    await finish(site)
    assert (await site.state("evt_1"), bank.calls, await done(site)) == (State.NEEDS_REVIEW, 1, [])
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        effect = await effects.find(context, "evt_1", "charge")
        await effects.resolve(context, audit.by("ada", "I looked"), effect, "happened", "ch_1")
        await balanced(store)
    await finish(site)
    assert (await site.state("evt_1"), bank.calls, await done(site)) == (State.PROCESSED, 1, ["provisioned"])


async def test_a_call_of_another_event_is_not_approved_either(site: Site) -> None:
    """The ledger has it under the other event, so that the preview cannot see it: the run does."""
    bank = Bank(site)
    await deliver(site, "evt_1", "invoice.paid", "in_1")
    await deliver(site, "evt_2", "invoice.paid", "in_1")
    await finish(site)
    assert bank.calls == 1
    owner = "evt_1" if (await site.event("evt_1")).effects else "evt_2"
    other = "evt_2" if owner == "evt_1" else "evt_1"
    assert await site.state(other) is State.NEEDS_REVIEW
    await approve(site, other)
    await finish(site)
    assert (await site.state(other), bank.calls, await done(site)) == (State.NEEDS_REVIEW, 1, [])


async def test_changed_arguments_are_not_approved(site: Site) -> None:
    bank = Bank(site)
    await deliver(site, "evt_1", "invoice.paid")
    await finish(site)
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        effect = await effects.find(context, "evt_1", "charge")
        await effects.resolve(context, audit.by("ada", "I looked"), effect, "happened", "ch_1")
    bank.cents = 6
    await finish(site)
    row = (await site.event("evt_1")).event
    assert (row.state, "other arguments" in (row.reason or "")) == (State.NEEDS_REVIEW, True), row.reason
    await approve(site)
    await finish(site)
    assert (await site.state("evt_1"), bank.calls, await done(site)) == (State.NEEDS_REVIEW, 1, [])


async def test_an_unknown_call_in_the_approved_run_voids_the_approval(site: Site) -> None:
    bank = Bank(site)
    bank.asks = True
    await deliver(site, "evt_1", "invoice.paid")
    await finish(site)
    await approve(site)
    await finish(site)
    row = (await site.event("evt_1")).event
    assert (row.state, row.approval_id, bank.calls) == (State.NEEDS_REVIEW, None, 1)
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        effect = await effects.find(context, "evt_1", "charge")
        await effects.resolve(context, audit.by("ada", "I looked"), effect, "happened", "ch_1")
    await finish(site)
    row = (await site.event("evt_1")).event
    assert (row.state, row.reason) == (State.NEEDS_REVIEW, WHY), "the handler asks again"
    await approve(site)
    await finish(site)
    assert (await site.state("evt_1"), bank.calls, await done(site)) == (State.PROCESSED, 1, ["provisioned"])


# ── what it would do ─────────────────────────────────────────────────────────


async def contents(store: Store) -> list[list[tuple[Any, ...]]]:
    return [await Raw(store).all(table) for table in ("events", "attempts", "actions", "effects", "done")]


async def test_a_dry_run_as_approved(site: Site) -> None:
    shop = Shop(site)
    await shop.reviewed()
    async with site.inbox.opened(handlers=1) as store:
        before = await contents(store)
        history = await search.find(site.inbox.context(store), "evt_1")
        refused = await site.inbox.dry_run(store).run(history)
        assert (refused.state, refused.reason, refused.run) == (State.NEEDS_REVIEW, WHY, 2)
        approval = Approval("ada", site.inbox.clock.now(), "she paid")
        passed = await site.inbox.dry_run(store).run(history, approval)
        assert (passed.state, passed.result, passed.run) == (State.PROCESSED, "approved by ada", 2)
        assert await contents(store) == before
    assert shop.got == [None, None, approval]


async def test_the_preview_of_an_approval(site: Site) -> None:
    shop = Shop(site)
    await shop.reviewed()
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        history = await search.find(context, "evt_1")
        found = review.preview_approval(context, history)
        assert (found.verdict, found.run) == (Verdict.WILL_DO, 2)
        asked = review.review_of(history, "approve")
        assert (asked.reason, asked.claim, asked.at) == (WHY, 1, history.attempts[0].ended_at)
    await approve(site)
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        with pytest.raises(WrongState, match="is pending: only needs_review can be approved"):
            review.preview_approval(context, await search.find(context, "evt_1"))
