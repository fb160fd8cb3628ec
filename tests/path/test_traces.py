"""One event as linked traces: deliveries, attempts, effects, and what outgoing calls carry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from hookledger import Event, Op
from hookledger.observe.correlation import trace_context
from tests.asgi_client import Site, stripe_event

SENDER = "00-{:032x}-{:016x}-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Tracing is set up, as the application's module would do it."""
    return set_up(monkeypatch, None)


def set_up(monkeypatch: pytest.MonkeyPatch, sampler: Sampler | None) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # `set_tracer_provider` works once in a process.
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    return exporter


def named(spans: tuple[ReadableSpan, ...], name: str) -> list[ReadableSpan]:
    return sorted((span for span in spans if span.name == name), key=lambda span: span.start_time or 0)


def ident(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def links(span: ReadableSpan) -> list[str]:
    return [f"{link.context.span_id:016x}" for link in span.links]


def fact(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(f"hookledger.{name}")


def drawing(spans: tuple[ReadableSpan, ...]) -> str:
    """Each trace as a tree; below each span what it is linked to."""
    labels = {ident(span): f"{span.name} ({fact(span, 'outcome')})" for span in spans}
    lines = []

    def draw(span: ReadableSpan, depth: int) -> None:
        indent = "   " * depth + ("└─ " if depth else "")
        state = f", {fact(span, 'state')}" if fact(span, "state") else ""
        lines.append(f"{indent}{span.name}  [{span.kind.name}]  {fact(span, 'outcome')}{state}")
        for link in links(span):
            other = labels.get(link, "the sender, span " + link.lstrip("0"))
            lines.append(f"{'   ' * depth}     ⇠ links to {other}")
        for child in sorted(spans, key=lambda one: one.start_time or 0):
            if child.parent is not None and f"{child.parent.span_id:016x}" == ident(span):
                draw(child, depth + 1)

    for root in sorted(spans, key=lambda one: one.start_time or 0):
        if root.parent is None:
            lines.append(f"trace {root.context.trace_id:032x}" if root.context else "trace")
            draw(root, 1)
    return "\n".join(lines)


# proves R54
async def test_one_event_is_one_linked_trace(site: Site, exporter: InMemorySpanExporter) -> None:
    sent: dict[str, dict[str, str]] = {}

    @site.inbox.effect(repeat="never")
    async def charge(op: Op, cents: int) -> None:
        sent["charge"] = op.headers

    @site.inbox.effect(repeat="never")
    def mail(op: Op, to: str) -> None:
        sent["mail"] = op.headers

    @site.inbox.sources["stripe"].on("invoice.paid", transaction=False)
    async def paid(event: Event) -> None:
        if event.attempt == 1:
            raise RuntimeError("the bank is closed")
        await event.call(charge, "k", cents=5)
        await event.later(mail, "k", to="ada")

    for number in (1, 2):
        await site.deliver(stripe_event(), headers=[("traceparent", SENDER.format(number, number))])
    await site.work()
    await site.deliver(stripe_event(), headers=[("traceparent", SENDER.format(3, 3))])
    await site.work(later=3600)
    history, spans = await site.event("evt_1"), exporter.get_finished_spans()
    print("\n" + drawing(spans))

    deliveries, attempts = named(spans, "receive stripe"), named(spans, "process stripe")
    [charged], [mailed] = named(spans, "effect charge"), named(spans, "effect mail")
    assert len(spans) == 7
    assert {fact(span, "event_id") for span in spans} == {str(history.event.id)}, "duplicates are found by it"

    assert [fact(span, "outcome") for span in deliveries] == ["accepted", "duplicate", "duplicate"]
    assert [fact(span, "state") for span in deliveries] == [None, "pending", "retrying"]
    assert [links(span) for span in deliveries] == [[f"{number:016x}"] for number in (1, 2, 3)]
    assert [span.kind for span in (*deliveries, *attempts)] == [SpanKind.SERVER] * 3 + [SpanKind.CONSUMER] * 2

    first, second = attempts
    assert [fact(span, "outcome") for span in attempts] == ["retrying", "processed"]
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR, StatusCode.UNSET]
    assert links(first) == [f"{1:016x}"]
    assert links(second) == [f"{1:016x}", ident(first)]
    traces = [span.context.trace_id for span in (*deliveries, *attempts) if span.context]
    assert len({1, 2, 3, *traces}) == 8, "strangers choose no trace"
    assert [row.traceparent and trace_context(row.traceparent) is not None for row in history.attempts] == [
        True,
        True,
    ]

    for effect, name in ((charged, "charge"), (mailed, "mail")):
        assert effect.kind is SpanKind.CLIENT
        assert effect.parent is not None
        assert f"{effect.parent.span_id:016x}" == ident(second)
        carried = trace_context(sent[name]["traceparent"])
        assert carried is not None
        assert carried.span_id == ident(effect)
        assert sent[name]["X-Correlation-Id"] == f"{1:032x}", "the trace id of the first delivery"


async def test_an_outbox_effect_continues_the_trace_in_another_process(
    site: Site, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    @site.inbox.effect(repeat="safe")
    async def mail(op: Op) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionRefusedError

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        await event.later(mail, "k")

    await site.deliver(stripe_event(), headers=[("X-Request-Id", "req-1")])
    await site.work()
    await site.work(later=3600)  # another worker, which knows only what is stored
    [attempt] = named(exporter.get_finished_spans(), "process stripe")
    first, second = named(exporter.get_finished_spans(), "effect mail")
    assert [span.parent and f"{span.parent.span_id:016x}" for span in (first, second)] == [ident(attempt)] * 2
    assert [fact(span, "outcome") for span in (first, second)] == ["refused", "done"]
    assert (first.attributes or {})["error.type"] == "ConnectionRefusedError"
    [known] = (await site.event("evt_1")).effects
    assert (known.effect.correlation_id, trace_context(known.effect.traceparent) is not None) == ("req-1", True)


async def test_spans_hold_no_message_of_an_exception(site: Site, exporter: InMemorySpanExporter) -> None:
    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        raise ValueError("of the customer")

    await site.deliver(stripe_event())
    await site.work()
    assert named(exporter.get_finished_spans(), "process stripe")
    assert "of the customer" not in "".join(span.to_json() for span in exporter.get_finished_spans())


async def test_a_trace_that_is_not_sampled_is_not_exported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = set_up(monkeypatch, ALWAYS_OFF)

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None: ...

    await site.deliver(stripe_event(), headers=[("traceparent", SENDER.format(1, 1))])
    await site.work()
    assert not exporter.get_finished_spans()
    assert (await site.event("evt_1")).event.first_processed_at is not None


async def test_a_provider_that_cannot_be_loaded_stops_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a wrong OTEL_PYTHON_TRACER_PROVIDER makes it."""

    def fail() -> None:
        raise RuntimeError("no such provider")

    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", fail)

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        pass

    assert (await site.deliver(stripe_event())).status == 202
    await site.work()
    assert (await site.event("evt_1")).event.state == "processed"


@pytest.mark.parametrize("fails_at", ["start_span", "get_tracer"])
async def test_a_failing_tracer_stops_nothing(
    site: Site, fails_at: str, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the tracer is broken")

    where = "opentelemetry.sdk.trace.Tracer" if fails_at == "start_span" else "opentelemetry.sdk.trace.TracerProvider"
    monkeypatch.setattr(f"{where}.{fails_at}", fail)

    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> None:
        assert "traceparent" not in op.headers

    @site.inbox.sources["stripe"].on("invoice.paid", transaction=False)
    async def paid(event: Event) -> None:
        await event.call(charge, "k")

    assert (await site.deliver(stripe_event())).status == 202
    await site.work()
    history = await site.event("evt_1")
    assert (history.event.state, history.effects[0].effect.state) == ("processed", "done")
    assert history.attempts[0].traceparent is None


@pytest.fixture
def without_tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)
    yield


async def test_any_key_fits_into_the_headers_of_an_outgoing_call(site: Site, without_tracing: None) -> None:
    sent: list[dict[str, str]] = []
    key = "evt: 1 ü%41"

    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> None:
        assert op.event_key == key
        sent.append(op.headers)

    @site.inbox.sources["stripe"].on("invoice.paid", transaction=False)
    async def paid(event: Event) -> None:
        await event.call(charge, "now")
        await event.later(charge, "later")

    await site.deliver(stripe_event(key))
    await site.work()
    assert [headers["X-Event-Key"] for headers in sent] == ["evt:%201%20%C3%BC%2541"] * 2
    assert unquote(sent[0]["X-Event-Key"]) == key


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("X-Request-Id", "req-1"), ("traceparent", SENDER.format(7, 7))], "req-1"),
        ([("traceparent", SENDER.format(7, 7))], f"{7:032x}"),
        ([("X-Request-Id", "two words")], None),
        ([], None),
    ],
)
async def test_the_correlation_id_of_outgoing_calls(
    site: Site, without_tracing: None, headers: list[tuple[str, str]], expected: str | None
) -> None:
    sent: list[dict[str, str]] = []

    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> None:
        sent.append(op.headers)

    @site.inbox.sources["stripe"].on("invoice.paid", transaction=False)
    async def paid(event: Event) -> None:
        await event.call(charge, "now")
        await event.later(charge, "later")

    await site.deliver(stripe_event(), headers=headers)
    await site.work()
    event = (await site.event("evt_1")).event
    own = {"X-Event-Id": str(event.id), "X-Event-Key": "evt_1"}
    assert sent == [{"X-Correlation-Id": expected or str(event.id), **own}] * 2, "and no trace of a stranger"


def test_opentelemetry_is_not_imported() -> None:
    text = (
        "import sys, asyncio, hookledger.cli, hookledger.work.loop, hookledger.receive.app\n"
        "from hookledger.observe import spans\n"
        "assert spans.tracer() is None and spans.current() is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
