"""One attempt as log lines and traces show it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from ..model import Claimed
from ..states import BY_NAME
from . import spans
from .correlation import Origin, TraceContext, kept_origin
from .lines import ENDED, tell
from .logs import about


def facts_of(claimed: Claimed, origin: Origin | None = None) -> dict[str, Any]:
    """Return what every log line about a claimed event has."""
    origin = kept_origin(claimed.headers) if origin is None else origin
    event_id = str(claimed.id)
    facts: dict[str, Any] = {
        "source": claimed.source,
        "event_id": event_id,
        "event_key": claimed.key,
        "event_type": claimed.type,
        "attempt": claimed.attempts,
        "run": claimed.run,
        "claim": claimed.claim,
        "correlation_id": origin.given or event_id,
    }
    if claimed.object_id is not None:
        facts["object_id"] = claimed.object_id
    if origin.trace is not None:
        facts["trace_id"] = origin.trace.trace_id
    return facts


class Watched:
    """`tracer`: the application's, if it has one; `before`: the span of the last attempt."""

    __slots__ = ("_span", "facts", "origin", "traceparent")

    def __init__(
        self, claimed: Claimed, handler: str, tracer: Any | None = None, before: TraceContext | None = None
    ) -> None:
        self.origin: Origin = kept_origin(claimed.headers)
        self.facts: dict[str, Any] = facts_of(claimed, self.origin) | {"handler": handler}
        self.traceparent: str | None = None
        self._span: Any | None = None
        if tracer is None:
            return
        self._span = spans.attempt(tracer, claimed, handler, (self.origin.trace, before))
        if self._span is not None and (context := spans.context_of(self._span)):
            self.traceparent = str(context)
            self.facts["trace_id"] = context.trace_id

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Log and trace what happens inside as part of this attempt."""
        return about(**self.facts) if self._span is None else self._traced(self._span)

    @contextlib.contextmanager
    def _traced(self, span: Any) -> Iterator[None]:
        with about(**self.facts), spans.inside(span):
            yield

    def ended(self, outcome: str, error: BaseException | None = None) -> None:
        """End its span, once."""
        if self._span is not None:
            span, self._span = self._span, None
            spans.ended(span, outcome, error)

    def processed(self, *, logged: bool) -> None:
        """The handler's transaction is committed."""
        if logged:
            tell(ENDED, level=logging.DEBUG, **self.facts, outcome="processed", state="processed")
        self.ended("processed")


def outcome_and_state(transition: str) -> dict[str, str]:
    """Return how an attempt ended, and its event's state, by the transition that ended it."""
    way = BY_NAME[transition]
    return {"outcome": (way.attempt or way.target).value, "state": way.target.value}
