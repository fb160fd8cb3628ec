"""What joins the log lines, traces and outgoing calls of one delivery: its correlation id and its trace context.

Both are read from headers of an authentic delivery. No signature covers them, so they are checked strictly and decide
nothing: a trace context is only ever linked to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_ID = 128
_REQUEST_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/=+@-]{0,127}")
_TRACEPARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_KEPT = re.compile(rb"(?:^|\r\n)(x-request-id|traceparent): ([^\r\n]*)")


class TraceContext(NamedTuple):
    """A span, as `traceparent` of W3C Trace Context names it."""

    trace_id: str
    span_id: str
    flags: str

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


class Origin(NamedTuple):
    """What a delivery says of where it belongs."""

    request_id: str | None = None
    trace: TraceContext | None = None

    @property
    def given(self) -> str | None:
        """The correlation id that the delivery brought."""
        return self.request_id or (self.trace.trace_id if self.trace else None)


NO_ORIGIN = Origin()


def origin_of(headers: Iterable[tuple[bytes, bytes]]) -> Origin:
    """Return what the headers of a request say; a header that is repeated or malformed says nothing."""
    found = [(name, value) for name, value in headers if name in (b"x-request-id", b"traceparent")]
    return _origin(found) if found else NO_ORIGIN


def kept_origin(headers: bytes) -> Origin:
    """Return what the kept headers of an event say, which are in wire form."""
    if b"x-request-id: " not in headers and b"traceparent: " not in headers:
        return NO_ORIGIN
    return _origin(_KEPT.findall(headers))


def _origin(found: list[tuple[bytes, bytes]]) -> Origin:
    ids = [value for name, value in found if name == b"x-request-id"]
    traces = [value for name, value in found if name == b"traceparent"]
    request_id = ids[0].decode() if len(ids) == 1 and _REQUEST_ID.fullmatch(ids[0]) else None
    return Origin(request_id, trace_context(traces[0]) if len(traces) == 1 else None)


def trace_context(text: bytes | str | None) -> TraceContext | None:
    """Return the span that a traceparent names; None if it is malformed, of another version, or all zero."""
    if text is None:
        return None
    match = _TRACEPARENT.fullmatch(text if isinstance(text, bytes) else text.encode())
    return None if match is None else TraceContext(*(part.decode() for part in match.groups()))
