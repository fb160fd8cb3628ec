"""Compares an event with a delivery of the same key, field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from msgspec import Struct

from ...errors import ConfigError, UnreadableError
from ...store.history import RequestRow
from ..examine import Examiner

MOST = 20
"""Maximum number of fields listed."""
LONGEST = 60
"""Maximum number of characters of a value."""

Path = tuple[str | int, ...]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Change(Struct, frozen=True):
    """One field. Values are JSON; long ones are shortened."""

    path: str
    event: str | None
    """Value in the event; None: absent."""
    delivery: str | None
    """Value in the delivery; None: absent."""

    @property
    def words(self) -> str:
        if self.event is None:
            return f"{self.path}: added {self.delivery}"
        if self.delivery is None:
            return f"{self.path}: removed {self.event}"
        return f"{self.path}: {self.event} → {self.delivery}"


class Difference(Struct, frozen=True):
    """How a delivery differs from its event."""

    changes: tuple[Change, ...] = ()
    """The first differing fields, in the event's order."""
    more: int = 0
    """Number of other differing fields."""
    untold: str | None = None
    """Why they cannot be compared; None if they can."""

    def first(self, number: int = MOST) -> list[str]:
        """Return the first fields as text, and how many others differ."""
        if self.untold is not None:
            return [self.untold]
        shown = [change.words for change in self.changes[:number]]
        more = self.more + len(self.changes) - len(shown)
        return [*shown, *([f"and {more:,} more"] if more else [])] or ["no field: only the bytes differ"]


class Conflict(Struct, frozen=True):
    """A delivery of an event with other content than the event has."""

    delivery: str
    """REQUEST:ITEM."""
    received_at: datetime
    difference: Difference


def differ(
    sources: Examiner, event: tuple[RequestRow | None, int], delivery: tuple[RequestRow | None, int]
) -> Difference:
    """Compare two kept contents, each given by its request and place. None: the request is not kept."""
    contents = []
    for name, (request, place) in (("event", event), ("delivery", delivery)):
        if request is None or request.emptied_at is not None:
            return Difference(untold=f"the body of the {name} is not kept: pruned or erased")
        try:
            contents.append(sources.content(request, place))
            contract = sources.endpoint(request.source).contract
        except (UnreadableError, IndexError):
            return Difference(untold=f"the body of the {name} cannot be read: --body prints it")
        except ConfigError as error:
            return Difference(untold=str(error))
    volatile = {field.path for field in contract.volatile}
    return compare(*contents, volatile=frozenset(volatile))


def compare(event: object, delivery: object, *, volatile: frozenset[tuple[str, ...]] = frozenset()) -> Difference:
    """Compare field by field; volatile fields are ignored."""
    found = _changes((), event, delivery, volatile)
    return Difference(tuple(islice(found, MOST)), sum(1 for _ in found))


def _changes(path: Path, event: object, delivery: object, volatile: frozenset[tuple[str, ...]]) -> Iterator[Change]:
    if path in volatile:
        return
    if isinstance(event, dict) and isinstance(delivery, dict):
        for name in [*event, *(name for name in delivery if name not in event)]:
            yield from _changes((*path, name), event.get(name, _ABSENT), delivery.get(name, _ABSENT), volatile)
    elif isinstance(event, list) and isinstance(delivery, list):
        for place in range(max(len(event), len(delivery))):
            was, now = (side[place] if place < len(side) else _ABSENT for side in (event, delivery))
            yield from _changes((*path, place), was, now, volatile)
    elif type(event) is type(delivery) and event == delivery:
        return
    elif (before := _text(event)) != (after := _text(delivery)):
        yield Change(_written(path), _shortened(before), _shortened(after))


_ABSENT = object()


def _text(value: object) -> str | None:
    """Return a value as JSON, so that 1, 1.0 and true differ."""
    if value is _ABSENT:
        return None
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _written(path: Path) -> str:
    """Return a path such as data.items[3].id; unusual names are quoted."""
    written = ""
    for part in path:
        if isinstance(part, str) and _PLAIN.fullmatch(part) and len(part) <= LONGEST:
            written += f".{part}" if written else part
        else:
            written += f"[{_shortened(_text(part))}]"
    return written or "the whole body"
