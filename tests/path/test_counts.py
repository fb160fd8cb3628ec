"""What a worker counts of its handlers and effects, on both databases; and the counts over the API."""

from typing import Any

import pytest

from hookledger import Event, Op, Refused
from hookledger.observe.metrics.samples import Samples, in_text
from tests.asgi_client import Site, ask, stripe_event
from tests.crash.test_monitor import metric
from tests.operators import TOKENS
from tests.path.conftest import SECRET, MakeSite


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    tokens = [{"name": "ada", "role": "operator", "token": TOKENS["operator"]}]
    made = await site_on(database_url, {"operator": {"tokens": tokens}})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


def declare(site: Site) -> None:
    stripe = site.inbox.sources["stripe"]

    @site.inbox.effect(repeat="never")
    async def charge(op: Op, cents: int) -> None:
        if cents < 0:
            raise Refused("the bank said no")

    @stripe.on("*")
    async def paid(event: Event) -> None:
        await event.call(charge, "order_1", cents=event.json["cents"])
        await event.newer("status", "order_1", event.json["version"])


async def test_effects_conflicts_and_stale_answers_are_counted(site: Site) -> None:
    declare(site)

    def body(name: str, cents: int, version: int) -> dict[str, Any]:
        return {**stripe_event(name), "cents": cents, "version": version}

    for content in (body("evt_1", 5, 9), body("evt_2", 5, 3), body("evt_3", 6, 10)):
        assert (await site.deliver(content)).status == 202
        await site.work()
    samples = Samples("work")
    site.inbox.work_metrics.collect(samples)
    text = in_text(samples)
    assert metric(text, "effect_calls_total", effect="charge", outcome="done") == 1
    assert metric(text, "effect_calls_total", effect="charge") == 1, "asked for again, it was not called again"
    assert metric(text, "effect_seconds_count", effect="charge") == 1
    assert metric(text, "effect_conflicts_total", effect="charge") == 1, "other arguments for the same key"
    assert metric(text, "stale_total", source="stripe") == 1
    assert metric(text, "attempts_total", source="stripe", outcome="processed") == 2
    assert metric(text, "attempts_total", source="stripe", outcome="needs_review") == 1
    assert metric(text, "attempts_total", source="stripe", outcome="failed") == 0
    assert metric(text, "late_outcomes_refused_total") == 0


async def test_counts_over_the_api_and_metrics_of_the_operators_listener(site: Site) -> None:
    await site.deliver(stripe_event())
    await site.deliver(stripe_event())
    await site.inbox.asgi.stop()  # which writes what was counted

    async def asked(query: bytes) -> Any:
        token = [("authorization", f"Bearer {TOKENS['operator']}")]
        return await ask(site.inbox.operator, "GET", "/api/v1/rates", b"", token, query=query)

    for query in (b"step=10", b"step=3600&source=stripe", b""):
        found = (await asked(query)).json
        counts = {rate["what"]: rate["n"] for rate in found["rates"] if not rate["what"].startswith("ack.")}
        assert counts == {"delivery.accepted": 1, "delivery.duplicate": 1}
        assert found["complete"]
    assert (await asked(b"source=github")).json["rates"] == []
    for wrong in (b"step=7", b"step=ten", b"since=yesterday", b"step=10&since=2001-01-01T00:00:00Z", b"what=x"):
        assert (await asked(wrong)).status in (400, 422), wrong
    answer = await ask(site.inbox.operator, "GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    assert metric(text, "database_up") == 1
    assert metric(text, "queue_events", source="stripe", state="pending") == 1
    await site.inbox.operator.stop()
