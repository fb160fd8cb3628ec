"""What an application of the user's own counts, logs and traces: guarded routes, and handlers that answer in it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hookledger import Event
from hookledger.errors import Unavailable
from hookledger.observe.metrics.samples import Samples, in_text
from hookledger.operate import gauges
from hookledger.operate.doctor.proof import workers as look_at_workers
from hookledger.operate.workers import any_works, live_workers
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Watch
from tests.asgi_client import Site, stripe_event
from tests.crash.test_monitor import metric
from tests.path.conftest import MakeSite
from tests.path.test_answers import answering
from tests.path.test_idempotent import Shop, insert, shop  # noqa: F401 - a fixture
from tests.path.test_log_lines import Told, told_lines  # noqa: F401 - a fixture
from tests.path.test_traces import exporter, named  # noqa: F401 - a fixture


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    return await site_on(database_url)


async def charts(inbox: Any) -> Counter[str]:
    """What was written for charts, without buckets."""
    async with inbox.opened() as store:
        now = await store.rates.now()
        found = await store.rates.read(10, now - timedelta(hours=1), now + timedelta(hours=1))
    counts: Counter[str] = Counter()
    for one in found:
        counts[one.what] += one.n
    return counts


# ── metrics ──────────────────────────────────────────────────────────────────


async def test_a_guarded_application_shows_its_metrics(shop: Shop) -> None:  # noqa: F811
    shop.guard()

    @shop.route()
    async def order(event: Event) -> Any:
        ordered = await insert(event)
        if event.json["item"] == "cake":
            raise RuntimeError("no cake")
        return ordered

    for _ in range(2):
        await shop.post()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await shop.post('"k-2"', {"item": "cake"})
    assert (await shop.post(body={"item": "coffee"})).status == 422
    text = shop.inbox.metrics()
    assert metric(text, "up", process="app") == 1
    assert metric(text, "requests_total", source="partner") == 5
    assert metric(text, "ack_seconds_count", source="partner") == 5
    for outcome, count in {"accepted": 2, "duplicate": 2, "conflict": 1}.items():
        assert metric(text, "deliveries_total", source="partner", outcome=outcome) == count
    assert metric(text, "answers_total", source="partner", result="run") == 1
    assert metric(text, "answers_total", source="partner", result="stored") == 1
    assert metric(text, "answers_total", source="partner", result="refused") == 3, "one of them is 422"
    assert metric(text, "answer_lookups_total", source="partner", result="miss") == 1
    assert metric(text, "answer_lookups_total", source="partner", result="hit") == 1
    assert metric(text, "attempts_total", source="partner", outcome="processed") == 1
    assert metric(text, "rollbacks_total", cause="error") == 2
    assert metric(text, "handler_slots") > 0


async def test_a_guarded_request_that_gets_503_has_a_cause(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    shop.guard()
    shop.route()(insert)
    await shop.post()

    async def down(*_: object) -> Any:
        raise Unavailable("no database")

    with monkeypatch.context() as patched:
        patched.setattr(type(shop.inbox.store()), "claim_new", down)
        assert (await shop.post('"k-2"')).status == 503
    text = shop.inbox.metrics()
    assert metric(text, "unavailable_total", cause="database") == 1
    assert metric(text, "requests_total", source="partner") == 2
    await shop.guards[0].stop()
    with monkeypatch.context() as patched:
        patched.setattr(type(shop.inbox.store()), "health", down)
        assert (await shop.post('"k-3"')).status == 503
    assert metric(shop.inbox.metrics(), "unavailable_total", cause="database") == 2


async def test_a_guarded_request_that_is_rejected_is_counted_and_told(
    shop: Shop,  # noqa: F811
    told_lines: Told,  # noqa: F811
) -> None:
    shop.guard(max_body=100)
    shop.route()(insert)
    answers = [await shop.post(None), await shop.post('"' + "k" * 1000 + '"'), await shop.post(body="x" * 200)]
    assert [answer.status for answer in answers] == [400, 400, 413]
    reasons = ["idempotency_key_missing", "idempotency_key_malformed", "body_too_large"]
    text = shop.inbox.metrics()
    for reason in reasons:
        assert metric(text, "rejections_total", source="partner", reason=reason) == 1
    assert metric(text, "requests_total", source="partner") == 3
    assert [one["reason"] for one in told_lines.fields("request rejected")] == reasons


async def test_charts_have_what_guarded_routes_do(shop: Shop) -> None:  # noqa: F811
    shop.guard()
    shop.route()(insert)
    await shop.post()
    await shop.guards[0].stop()
    found = await charts(shop.inbox)
    assert (found["delivery.accepted"], found["attempt.processed"]) == (1, 1)


async def test_an_application_that_mounts_all_counts_each_attempt_once(site: Site) -> None:
    """Handlers that answer, and a worker of the same process."""
    answering(site.inbox)

    @site.inbox.source("github", provider="github", secrets=["s" * 20]).on("push")
    async def push(event: Event) -> None: ...

    for _ in range(2):
        assert (await site.deliver(stripe_event())).status == 201
    assert (await site.deliver({"ref": "main"}, source="github", kind="push")).status == 202
    await site.work()
    text = site.inbox.metrics()
    assert metric(text, "attempts_total", outcome="processed") == 2
    assert metric(text, "deliveries_total", outcome="accepted") == 2
    assert metric(text, "answer_lookups_total", result="hit") == 1
    await site.inbox.asgi.stop()
    assert (await charts(site.inbox))["attempt.processed"] == 2


async def test_what_is_recorded_past_the_deadline_is_one_request(
    site: Site,
    told_lines: Told,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(site.inbox, deadline=0.3)
    await site.inbox.asgi.start()
    kind, go = type(site.inbox.store()), asyncio.Event()
    claim_new = kind.claim_new

    async def slow(*given: Any) -> Any:
        await go.wait()
        return await claim_new(*given)

    monkeypatch.setattr(kind, "claim_new", slow)
    assert (await site.deliver(stripe_event())).status == 503
    go.set()
    while not await site.deliveries():
        await asyncio.sleep(0.01)
    await site.inbox.asgi.stop()
    text = site.inbox.metrics()
    assert metric(text, "deliveries_total", outcome="accepted") == 1
    assert metric(text, "unavailable_total", cause="answers") == 1
    assert metric(text, "requests_total", source="stripe") == 1
    [accepted] = told_lines.fields("delivery accepted")
    assert (accepted["event_key"], accepted["status"]) == ("evt_1", 503)


# ── logs and traces ──────────────────────────────────────────────────────────


# proves R76
async def test_a_repetition_of_a_guarded_request_is_answered_from_the_ledger(
    shop: Shop,  # noqa: F811
    told_lines: Told,  # noqa: F811
) -> None:
    shop.guard()
    shop.route()(insert)
    for _ in range(2):
        await shop.post()
    assert [one for one in told_lines.messages if one.startswith(("delivery", "answered"))] == [
        "delivery accepted",
        "delivery duplicate",
        "answered from the ledger",
    ]
    [answered] = told_lines.fields("answered from the ledger")
    [event] = await shop.events()
    assert answered == {
        "source": "partner",
        "event_id": str(event.id),
        "event_key": "acme:k-1",
        "event_type": "POST /orders",
        "status": 200,
    }


async def test_the_span_of_a_request_that_is_answered_holds_its_attempt(
    shop: Shop,  # noqa: F811
    site: Site,
    exporter: InMemorySpanExporter,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It begins when the request came, whatever came since."""
    caplog.set_level(logging.DEBUG, "hookledger.events")
    shop.guard()
    shop.route()(insert)
    await shop.post()
    answering(site.inbox)
    await site.deliver(stripe_event())
    spans = exporter.get_finished_spans()
    for source in ("partner", "stripe"):
        [request], [attempt] = named(spans, f"receive {source}"), named(spans, f"process {source}")
        assert request.start_time is not None
        assert attempt.start_time is not None
        assert attempt.end_time is not None
        assert request.end_time is not None
        assert request.start_time < attempt.start_time < attempt.end_time < request.end_time


# ── no worker ────────────────────────────────────────────────────────────────


async def test_a_guard_is_no_worker(shop: Shop) -> None:  # noqa: F811
    """It runs only what is asked for: that it lives must not hide that no worker does."""
    shop.guard()
    shop.route()(insert)
    await shop.post()
    shop.inbox.source("stripe", provider="stripe", secrets=["s" * 20])
    async with shop.inbox.operating() as context:
        assert [one.id.partition("/")[0] for one in await live_workers(context)] == ["guard"]
        assert not await any_works(context)
        samples = Samples()
        await gauges.processes(context, samples)
        assert "hookledger_workers_alive 0.0" in in_text(samples)
        finding, *_ = await look_at_workers(context)
        assert finding.says.startswith("none is alive")
    await Site(shop.inbox).deliver(stripe_event())
    await shop.inbox.asgi.stop()
    async with shop.inbox.operating() as context:
        watch = Watch("ops", frozenset({AlertKind.NO_WORKER}), no_worker_after=0.0)
        await context.store.alert_looks.look(watch)
        assert [one.kind for one in await context.store.alert_messages.page()] == [AlertKind.NO_WORKER]
