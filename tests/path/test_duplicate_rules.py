"""What duplicates of troubled work bring about, and what is refused: after the answer, by rule, in durable rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from hookledger import Event, Permanent, State
from hookledger.operate import decide
from hookledger.operate.audit import by
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    return await site_on(database_url)


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + 60
    while not await condition():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.02)


def failing(site: Site, **rules: object) -> list[str]:
    """A source whose handler fails for good until the list it gives back is emptied."""
    reasons = ["out of order"]
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], **rules)  # type: ignore[arg-type]

    @stripe.on("*")
    async def handle(event: Event) -> None:
        if reasons:
            raise Permanent(reasons[0])
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)

    return reasons


async def test_a_duplicate_of_failed_work_is_recorded_and_nothing_else(site: Site) -> None:
    failing(site)
    await site.deliver(stripe_event())
    await site.work()
    assert (await site.deliver(stripe_event())).status == 200
    await site.inbox.asgi.stop()
    history = await site.event("evt_1")
    assert (history.event.state, history.event.alert, history.actions) == (State.FAILED, None, ())
    assert [d.event_state for d in history.deliveries] == [None, State.FAILED]


async def test_by_rule_it_retries_the_event(site: Site) -> None:
    reasons = failing(site, on_failed="retry")
    await site.deliver(stripe_event())
    await site.work()
    reasons.clear()
    assert (await site.deliver(stripe_event())).status == 200

    async def pending() -> bool:
        return await site.state("evt_1") is State.PENDING

    await eventually(pending, "sent round")
    await site.work()
    history = await site.event("evt_1")
    assert history.event.state is State.PROCESSED
    [action] = history.actions
    assert (action.name, action.actor, action.reason) == ("retry", "hookledger", "the provider redelivered it")
    assert await done(site) == ["evt_1"]


async def test_by_rule_it_raises_an_alert(site: Site) -> None:
    failing(site, on_failed="alert")
    await site.deliver(stripe_event())
    await site.work()
    for _ in range(2):
        await site.deliver(stripe_event())

    async def marked() -> bool:
        return (await site.event("evt_1")).event.alert is not None

    await eventually(marked, "the alert")
    history = await site.event("evt_1")
    assert history.event.state is State.FAILED
    assert history.event.alert == "redelivered after it became a dead letter"
    assert [action.name for action in history.actions] == ["alert"]


# proves R15
async def test_an_event_that_keeps_bouncing(site: Site) -> None:
    reasons = failing(site)
    await site.deliver(stripe_event())
    await site.work()
    for _ in range(3):
        await site.deliver(stripe_event())
    await asyncio.sleep(0.3)
    assert (await site.event("evt_1")).event.alert is None
    await site.deliver(stripe_event())

    async def marked() -> bool:
        return (await site.event("evt_1")).event.alert is not None

    await eventually(marked, "the alert")
    history = await site.event("evt_1")
    assert history.event.alert == "delivered 5 times, and its handler still fails"
    reasons.clear()
    async with site.inbox.opened() as store:
        await decide.retry(site.inbox.context(store), by("ada", "the handler is mended"), history.event)
    await site.work()
    history = await site.event("evt_1")
    assert (history.event.state, history.event.alert) == (State.PROCESSED, None)


async def test_observing_runs_nothing(site: Site) -> None:
    reasons = failing(site, mode="observe")
    reasons.clear()
    assert (await site.deliver(stripe_event())).status == 202
    assert (await site.deliver(stripe_event())).status == 200
    await site.work()
    [event] = await site.events()
    assert (event.state, event.reason) == (State.SKIPPED, 'the source only observes: mode = "observe"')
    assert await done(site) == []


# proves R2, R53
async def test_what_is_refused_is_counted_and_sampled(site: Site) -> None:
    failing(site)
    for _ in range(40):
        assert (await site.deliver(stripe_event(), secret="whsec_somebody_elses")).status == 401
    await site.inbox.asgi.stop()
    async with site.inbox.opened() as store:
        [count] = await store.rejections.rejection_counts()
        sample = await store.rejections.sample(source="stripe", limit=100)
    assert (count.source, count.reason, count.count) == ("stripe", "signature_mismatch", 40)
    assert len(sample) == count.kept == 30  # a minute's worth of one reason
    assert b"evt_1" in sample[0].body
    assert b"authorization" not in sample[0].headers
