"""Checks whether a source's key fits its deliveries, and which rule would. Pure.

Too narrow: the same content has several keys, so that a redelivery is processed again. Too wide: several contents
have one key, so that an event counts as a duplicate and is lost.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct

from ...providers.fields import exact

DEPTH = 3
MAX_FIELDS = 300
"""Maximum number of fields read per event."""

_TRANSPORT = re.compile(
    r"accept(-.*)?|alt-used|b3|baggage|cache-control|cdn-.*|cf-.*|connection|content-.*|cookie|date|expect|fly-.*"
    r"|forwarded|host|keep-alive|newrelic|origin|pragma|priority|referer|sec-.*|sentry-trace|te|trace.*|transfer-encoding"
    r"|true-client-ip|upgrade|user-agent|via|x-amzn-.*|x-b3-.*|x-cloud-.*|x-datadog-.*|x-envoy-.*|x-forwarded-.*"
    r"|x-real-ip|x-request-id|x-request-start"
)
"""Headers that servers and proxies add, which are not part of the event."""
_PROOF = re.compile(r"signature|timestamp|transmission-(sig|time)|cert-url|auth-algo|hmac|digest")
_IDS = re.compile(r"(^|[.:_-])(id|uuid|guid|key|number|reference|sid|code)$|[a-z](Id|ID|Uuid|Key|Reference)$")
_TIMES = re.compile(r"(^|[.:_-])(created|updated|time|date|at|on|ts|timestamp|occurred)$|(At|Time|Date)$")


class Observation(Struct, frozen=True):
    """One kept event, without its body."""

    kind: str
    """Its type."""
    content: bytes
    """Digest of its content without volatile fields."""
    own: bytes
    """Its identity by the source's own rule."""
    values: Mapping[str, bytes]
    """Digest of the value of each field, by the field as settings write it."""


class Fit(Struct, frozen=True):
    """The result of one rule."""

    rule: tuple[str, ...]
    """The fields, as `key = […]` of a source takes them; empty for the source's own rule."""
    own: bool
    applies: int
    """Events that have all of these fields."""
    keys: int
    contents: int
    narrow: int
    """Contents with several keys."""
    wide: int
    """Keys with several contents."""
    missing: int
    """Events without a key by this rule."""

    @property
    def fits(self) -> bool:
        return not (self.missing or self.narrow or self.wide)


def values_of(content: object, headers: Iterable[tuple[str, str]], *, hidden: frozenset[str]) -> dict[str, bytes]:
    """Return the digest of every scalar to a depth of three, and of every header that may belong to the event.

    `hidden`: headers that belong to the signature.
    """
    found: dict[str, bytes] = {}
    for name, value in headers:
        lower = name.lower()
        if not (lower in hidden or _TRANSPORT.fullmatch(lower) or _PROOF.search(lower)):
            _add(found, f"header:{lower}", value)
    if isinstance(content, dict):
        _walk(found, content, "body:", DEPTH)
    return found


def _walk(found: dict[str, bytes], content: Mapping[str, object], before: str, depth: int) -> None:
    for name, value in content.items():
        if "." in name or not name or len(found) >= MAX_FIELDS:
            continue  # settings could not name it
        if isinstance(value, dict):
            if depth > 1:
                _walk(found, value, f"{before}{name}.", depth - 1)
        else:
            _add(found, before + name, value)


def _add(found: dict[str, bytes], field: str, value: object) -> None:
    text = exact(value)
    if text is not None:
        found.setdefault(field, blake2b(text, digest_size=12).digest())


def repeated(observations: Sequence[Observation]) -> int:
    """Count contents that arrived more than once: without one, it is not known whether a key stays the same."""
    seen: dict[Hashable, int] = defaultdict(int)
    for one in observations:
        seen[one.kind, one.content] += 1
    return sum(count > 1 for count in seen.values())


def fit(
    observations: Sequence[Observation],
    type_fields: tuple[str, ...] = (),
    *,
    known: tuple[str, ...] = (),
    best: int = 5,
) -> list[Fit]:
    """Return the source's own rule, then the best others: single fields, and the type with a field.

    `type_fields`: how settings write the type; empty if they cannot. `known`: the fields of the source's own rule.
    Fewer than two events prove nothing.
    """
    if len(observations) < 2:
        return []
    everywhere = {name for name in observations[0].values if all(name in one.values for one in observations)}
    some = {name for one in observations for name in one.values} - everywhere
    fields = sorted(everywhere | {name for name in some if name.startswith("body:")})
    others = []
    for name in (name for name in fields if name not in type_fields):
        others.append(_try(observations, (name,)))
        if type_fields:
            others.append(_try(observations, (*type_fields, name)))
    singles = {one.rule[-1]: one for one in others if len(one.rule) == 1}
    # Without need, the type is not part of the rule.
    others = [one for one in others if len(one.rule) == 1 or _faults(one) < _faults(singles[one.rule[-1]])]
    others = [one for one in others if one.applies and one.rule != known]
    return [_try(observations, ()), *sorted(others, key=_rank)[: best - 1]]


def _try(observations: Sequence[Observation], rule: tuple[str, ...]) -> Fit:
    """Try a rule: a field, after the fields of the type if it has several; empty: the source's own."""
    keys_of: dict[Hashable, set[Hashable]] = defaultdict(set)
    contents_of: dict[Hashable, set[Hashable]] = defaultdict(set)
    applies = 0
    for one in observations:
        value = one.values.get(rule[-1]) if rule else one.own
        if value is None:
            continue
        key = (one.kind, value) if len(rule) > 1 else value
        content = (one.kind, one.content)
        applies += 1
        keys_of[content].add(key)
        contents_of[key].add(content)
    return Fit(
        rule=rule,
        own=not rule,
        applies=applies,
        keys=len(contents_of),
        contents=len(keys_of),
        narrow=sum(len(keys) > 1 for keys in keys_of.values()),
        wide=sum(len(contents) > 1 for contents in contents_of.values()),
        missing=len(observations) - applies,
    )


def _faults(one: Fit) -> int:
    return one.narrow + one.wide


def _rank(one: Fit) -> tuple[object, ...]:
    """Rank rules that fit first; among them, names that look like an id, and shorter paths."""
    name = one.rule[-1]
    looks = 0 if _IDS.search(name) else 2 if _TIMES.search(name) else 1
    distance = one.missing + one.narrow + one.wide + abs(one.contents - one.keys)
    return (not one.fits, distance, looks, len(one.rule), name.count("."), name)
