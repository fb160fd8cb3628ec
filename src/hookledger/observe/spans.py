"""Spans, if the application has set up OpenTelemetry: this module never imports it.

A delivery is a span `receive SOURCE`, an attempt a span `process SOURCE`, a call a span `effect NAME`. The first two
begin traces, because strangers choose no trace: they link to the `traceparent` of the delivery, and an attempt to the
attempt before it. A call belongs to the trace of the attempt that asked for it, in any process. All have the
attribute `hookledger.event_id`, by which duplicates are found.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..model import Claimed, Item, Recorded
from .correlation import Origin, TraceContext, trace_context
from .logs import RateLimitedLogger

log: logging.Logger = logging.getLogger(__name__)
_seldom = RateLimitedLogger(log, every=60.0)

NAME = "hookledger"
_made: tuple[Any, Any] = (None, None)
"""The last provider and its tracer: making one costs as much as a span."""


def _safely(act: Callable[[], Any]) -> Any | None:
    """Return what `act` returns; None if the tracing library fails, which must not stop an event."""
    try:
        return act()
    except Exception as error:
        _seldom.warning("tracing failed: %s: %s", type(error).__name__, error)
        return None


def tracer() -> Any | None:
    """Return the application's tracer; None without OpenTelemetry or without a provider."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    global _made  # noqa: PLW0603 - a cache
    provider = _safely(api.get_tracer_provider)  # it loads the one that an environment variable names
    if provider is None:
        return None
    if provider is not _made[0]:
        real = not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
        _made = provider, _safely(lambda: provider.get_tracer(NAME)) if real else None
    return _made[1]


def current() -> TraceContext | None:
    """Return the span that this code runs in."""
    api = sys.modules.get("opentelemetry.trace")
    return None if api is None else context_of(api.get_current_span())


def context_of(span: Any) -> TraceContext | None:
    """Return what names a span in another process; None for one that is not real."""
    found = span.get_span_context()
    if not found.is_valid:
        return None
    return TraceContext(f"{found.trace_id:032x}", f"{found.span_id:016x}", f"{int(found.trace_flags):02x}")


def received(
    tracer: Any, source: str, origin: Origin, pairs: Iterable[tuple[Item, Recorded]], began: int, status: int
) -> None:
    """Add a span for each event of an answered delivery. `began`: nanoseconds of the clock."""
    _safely(lambda: _received(tracer, source, origin, pairs, began, status))


def _received(
    tracer: Any, source: str, origin: Origin, pairs: Iterable[tuple[Item, Recorded]], began: int, status: int
) -> None:
    api = _api()
    for item, recorded in pairs:
        facts: dict[str, Any] = {
            "hookledger.source": source,
            "hookledger.event_id": str(recorded.event_id),
            "hookledger.event_key": item.key,
            "hookledger.event_type": item.type,
            "hookledger.outcome": recorded.outcome.value,
            "http.response.status_code": status,
        }
        if recorded.state is not None:
            facts["hookledger.state"] = recorded.state.value
        links, kind = _links([origin.trace]), api.SpanKind.SERVER
        span = tracer.start_span(
            f"receive {source}", _root(), kind=kind, attributes=facts, links=links, start_time=began
        )
        span.end()


def attempt(tracer: Any, claimed: Claimed, handler: str, links: Iterable[TraceContext | None]) -> Any | None:
    """Start the span of an attempt."""
    facts = {
        "hookledger.source": claimed.source,
        "hookledger.event_id": str(claimed.id),
        "hookledger.event_key": claimed.key,
        "hookledger.event_type": claimed.type,
        "hookledger.handler": handler,
        "hookledger.attempt": claimed.attempts,
        "hookledger.run": claimed.run,
    }
    name, kind = f"process {claimed.source}", _api().SpanKind.CONSUMER
    return _safely(lambda: tracer.start_span(name, _root(), kind=kind, attributes=facts, links=_links(links)))


def ended(span: Any, outcome: str, error: BaseException | None = None) -> None:
    """End a span with how it ended."""
    _safely(lambda: _end(span, outcome, error))


def _end(span: Any, outcome: str, error: BaseException | None) -> None:
    span.set_attribute("hookledger.outcome", outcome)
    if error is not None:
        api = _api()
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(api.Status(api.StatusCode.ERROR, outcome))
    span.end()


def inside(span: Any) -> contextlib.AbstractContextManager[Any]:
    """Make a span the current one; exceptions are told by `ended`, their messages are not sent."""
    entered: contextlib.AbstractContextManager[Any] = _api().use_span(
        span, end_on_exit=False, record_exception=False, set_status_on_exception=False
    )
    return entered


@contextlib.contextmanager
def calling(name: str, event_id: object, number: int, asked_by: str | None) -> Iterator[Any]:
    """Yield the span of a call, made the current one; None without tracing. `asked_by`: the attempt that planned it,
    for a call outside of one. The caller ends it."""
    found = tracer()
    span = None if found is None else _safely(lambda: _start_call(found, name, event_id, number, asked_by))
    with contextlib.nullcontext() if span is None else inside(span):
        yield span


def _start_call(tracer: Any, name: str, event_id: object, number: int, asked_by: str | None) -> Any:
    facts = {"hookledger.event_id": str(event_id), "hookledger.effect": name, "hookledger.call": number}
    parent = None if current() is not None else _remote(trace_context(asked_by))
    return tracer.start_span(f"effect {name}", parent, kind=_api().SpanKind.CLIENT, attributes=facts)


def _api() -> Any:
    return sys.modules["opentelemetry.trace"]


def _root() -> Any:
    """A context without a span, whatever runs around us."""
    return sys.modules["opentelemetry.context"].Context()


def _links(contexts: Iterable[TraceContext | None]) -> list[Any]:
    api = _api()
    return [api.Link(_span_context(context)) for context in contexts if context is not None]


def _remote(context: TraceContext | None) -> Any:
    if context is None:
        return _root()
    return _api().set_span_in_context(_api().NonRecordingSpan(_span_context(context)), _root())


def _span_context(context: TraceContext) -> Any:
    api = _api()
    flags = api.TraceFlags(int(context.flags, 16))
    return api.SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=flags)
