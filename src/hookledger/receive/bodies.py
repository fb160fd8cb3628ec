"""What holds for a body that was here before, where key or type is not signed (decision 0034)."""

from __future__ import annotations

from typing import NamedTuple

from ..model import Request
from ..providers.fields import Content
from ..providers.reading import contents, decode
from ..providers.tolerant import UnreadableError
from .endpoint import Endpoint


class Again(NamedTuple):
    """What a known body is under the type that it comes as."""

    repeats: bool = False
    """An event each time."""
    once: bool = False
    """An event once as this type; with `repeats`, only where it came as another type first."""
    group: bytes = b""
    """The types that it may share its body with."""
    alert: str | None = None
    """What to tell operators if it is quarantined."""


_QUARANTINED = Again()
_NO_TYPES = frozenset[str]()


def again(endpoint: Endpoint, request: Request, content: Content, kind: str, first: str) -> Again:
    """`first`: what the first field of the type gives."""
    repeatable, group = _repeatable(endpoint, kind, first), endpoint.groups.get(kind, b"")
    if not (repeatable or group):
        return _QUARANTINED
    alert = _alert(kind) if repeatable else None
    if endpoint.contract.denies(kind, content):
        return Again(group=group, alert=alert)
    family = _family(endpoint, request, content, kind, first) if repeatable else _NO_TYPES
    if not family:
        return Again(once=bool(group), group=group, alert=alert)
    # A header chooses among the types that the body may be of, so only the first may repeat without limit.
    limited = len(family) > 1 and not endpoint.repeats_all
    return Again(repeats=True, once=limited, group=group, alert=alert if limited else None)


def unread(endpoint: Endpoint, kind: str, first: str) -> Again:
    """The same for a body that cannot be read."""
    return Again(alert=_alert(kind)) if _repeatable(endpoint, kind, first) else _QUARANTINED


def _repeatable(endpoint: Endpoint, kind: str, first: str) -> bool:
    """By its type, or by type and action; not where a header has both, which with the action is a made-up type."""
    names = endpoint.repeatable
    return bool(names) and (kind in names or (first in names and "." not in first))


def _alert(kind: str) -> str:
    return f"a known body came again as {kind}: an operator decides whether it is a new event"


def _family(endpoint: Endpoint, request: Request, content: Content, kind: str, first: str) -> frozenset[str]:
    """The types that the body may be of. Read whole: few types are asked for it."""
    contract = endpoint.contract
    if endpoint.outline is not None and not contract.type_authenticated:
        try:
            [found] = contents(contract, decode(contract, request.body))
        except UnreadableError:
            return _NO_TYPES
        content = found if isinstance(found, dict) else {}
    return contract.family(kind, first, content)
