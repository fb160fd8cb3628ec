"""Counts of what goes wrong: claims lost and reclaimed, requests that get 503, circuits that open."""

import asyncio
from typing import Any

import pytest

from hookledger import Event, Op
from hookledger.batching import retry_individually, short_way_first
from hookledger.errors import Unavailable
from hookledger.model import Kind, Outcome
from hookledger.observe.metrics.samples import Samples, in_text
from tests.asgi_client import Site, ask, stripe_event
from tests.crash.test_monitor import metric
from tests.path.conftest import SECRET, MakeSite

LEASE = 3.0


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    work = {"poll": "10ms", "lease": f"{LEASE:g}s", "circuit": {"failures": 2, "cooldown": "1h"}}
    made = await site_on(database_url, {"work": work})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


def worked(site: Site) -> str:
    samples = Samples("work")
    site.inbox.work_metrics.collect(samples)
    return in_text(samples)


async def test_a_claim_that_is_lost_is_counted(site: Site) -> None:
    @site.inbox.sources["stripe"].on("*", transaction=False)
    async def paid(event: Event) -> None:
        row = (await site.event("evt_1")).event
        async with site.inbox.opened(check=False) as other:  # as if another worker had reclaimed and ended it
            assert await other.settle([Outcome(row.id, row.claim, "fail", reason="by another")]) == {row.id}
        await asyncio.sleep(60)

    await site.deliver(stripe_event())
    await site.work()
    text = worked(site)
    assert metric(text, "claims_lost_total") == 1
    assert metric(text, "late_outcomes_refused_total") == 1
    assert metric(text, "attempts_total") == 0, "its outcome is not recorded"
    assert (await site.event("evt_1")).event.reason == "by another"


async def test_leases_of_dead_workers_are_counted(site: Site) -> None:
    await site.deliver(stripe_event("evt_1"))
    await site.deliver(stripe_event("evt_2"))
    async with site.inbox.opened(check=False) as store:
        assert len(await store.claim("dead", [Kind("stripe", "invoice.paid")], 10, LEASE)) == 2
        site.inbox.clock.offset += LEASE + 1
        assert await site.inbox.lease_reclaimer(store).reclaim() == 2
        assert await site.inbox.lease_reclaimer(store).reclaim() == 0
    assert metric(worked(site), "leases_reclaimed_total") == 2


@pytest.mark.parametrize(
    ("error", "cause"), [(Unavailable("down"), "database"), (ZeroDivisionError("a defect"), "internal")]
)
async def test_requests_that_get_503_are_counted_by_cause(site: Site, error: Exception, cause: str) -> None:
    async def down(arrivals: Any) -> Any:
        raise error

    opened = await site.inbox.asgi.start()
    recorder: Any = opened._intake._recorder
    recorder._commit = short_way_first(down, retry_individually(down))
    assert (await site.deliver(stripe_event())).status == 503
    samples = Samples("receive")
    opened.metrics.collect(samples)
    text = in_text(samples)
    assert metric(text, "unavailable_total", cause=cause) == metric(text, "unavailable_total") == 1
    assert metric(text, "requests_total", source="stripe") == 1
    assert metric(text, "ack_seconds_count") == metric(text, "deliveries_total") == 0
    assert opened.metrics.totals()["stripe", "unavailable"] == 1


async def test_a_circuit_that_opens_is_a_metric(site: Site) -> None:
    @site.inbox.effect(repeat="never", downstream="bank")
    async def charge(op: Op) -> None:
        raise ConnectionRefusedError("the bank is closed")

    @site.inbox.sources["stripe"].on("*", transaction=False)
    async def paid(event: Event) -> None:
        await event.call(charge, event.key)

    async def is_open() -> float:
        text = (await ask(site.inbox.operator, "GET", "/metrics")).body.decode()
        await site.inbox.operator.stop()
        return metric(text, "circuit_open", downstream="bank")

    assert await is_open() == 0
    for number in range(2):
        await site.deliver(stripe_event(f"evt_{number}"))
    await site.work()
    assert metric(worked(site), "effect_calls_total", effect="charge", outcome="refused") >= 2
    assert await is_open() == 1
