"""Decide what a known body is if the signature does not cover key or type (decision 0034)."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import UnreadableError
from ..model import Request
from ..providers.fields import Content
from ..providers.reading import contents, decode
from .endpoint import Endpoint


class KnownBody(NamedTuple):
    """What a known body is under the type that it is delivered as."""

    repeats: bool = False
    """Each delivery is an event."""
    once: bool = False
    """An event once as this type; with `repeats`, only if it was delivered as another type first."""
    group: bytes = b""
    """The types that it may share its body with."""
    alert: str | None = None
    """The alert for operators if it is quarantined."""


_QUARANTINED = KnownBody()
_NO_TYPES = frozenset[str]()


def known_body(endpoint: Endpoint, request: Request, content: Content, kind: str, first: str) -> KnownBody:
    """Return what this body is if it is known. `first`: the value of the type's first field."""
    repeatable, group = _repeatable(endpoint, kind, first), endpoint.contract.groups.get(kind, b"")
    if not (repeatable or group):
        return _QUARANTINED
    alert = _alert(kind) if repeatable else None
    if endpoint.contract.denies(kind, content):
        return KnownBody(group=group, alert=alert)
    family = _family(endpoint, request, content, kind, first) if repeatable else _NO_TYPES
    if not family:
        return KnownBody(once=bool(group), group=group, alert=alert)
    # An unsigned header chooses among the types that the body fits, so only the first may repeat without limit.
    limited = len(family) > 1 and endpoint.settings.repeatable is None
    return KnownBody(repeats=True, once=limited, group=group, alert=alert if limited else None)


def known_unreadable_body(endpoint: Endpoint, kind: str, first: str) -> KnownBody:
    """Return the same for an unreadable body."""
    return KnownBody(alert=_alert(kind)) if _repeatable(endpoint, kind, first) else _QUARANTINED


def _repeatable(endpoint: Endpoint, kind: str, first: str) -> bool:
    """Whether the type, or the type with its action, repeats. Not if a header holds both: with the action appended
    that would be no real type."""
    names = endpoint.repeatable
    return bool(names) and (kind in names or (first in names and "." not in first))


def _alert(kind: str) -> str:
    return f"a known body was redelivered as {kind}: an operator decides whether it is a new event"


def _family(endpoint: Endpoint, request: Request, content: Content, kind: str, first: str) -> frozenset[str]:
    """Return the types that the body fits. Reads the whole body, because few types need it."""
    contract = endpoint.contract
    if endpoint.outline is not None and not contract.type_authenticated:
        try:
            [found] = contents(contract, decode(contract, request.body))
        except UnreadableError:
            return _NO_TYPES
        content = found if isinstance(found, dict) else {}
    return contract.family(kind, first, content)
