"""Which requests are guarded, and what may follow if one of them died."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, get_args

from msgspec import Struct

from ..errors import ConfigError
from ..receive.request import Scope, local_paths

Repeat = Literal["never", "safe", "accept", "transaction"]
"""What happens with the next request of a key after its route ended without an answer that is known.

`never`: an operator decides. `transaction`: it runs again, because all that the route writes is in `event.tx`, and
was rolled back. `safe`: it runs again, because doing it twice comes to the same. `accept`: it runs again, with a
warning in the log.
"""
_ROUTE = re.compile(r"(POST|PATCH) (/(?:[A-Za-z0-9._~!$&'()+,;=:@%/-]|\{[A-Za-z_]\w*(?::path)?\})*)")
_PARAMETER = re.compile(r"\{\w+(:path)?\}")
_ONE, _MORE, _REST = "one", "more", "rest"
"""In a template: one character of a segment, any number of them, and any text."""
_SAMPLE = "\0"
"""A character that no template has: what matches it there is a variable part."""


class Route(Struct, frozen=True):
    """One guarded route."""

    name: str
    """METHOD PATH as declared: the type of its events."""
    method: str
    path: re.Pattern[str]
    repeat: Repeat

    @property
    def shape(self) -> str:
        """The same without the names of its variable parts, which may be renamed without making its keys new."""
        return _PARAMETER.sub(lambda found: f"{{{found[1] or ''}}}", self.name)


def read_routes(given: Sequence[str] | Mapping[str, Repeat], repeat: Repeat) -> tuple[Route, ...]:
    """Return the routes of a declaration, narrower ones first; raise ConfigError for what cannot be one."""
    if isinstance(given, str):
        raise ConfigError(f"routes is a list: write routes=[{given!r}]")
    policies: dict[str, Repeat] = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, repeat)
    if not policies:
        raise ConfigError('no route is named: write routes=["POST /orders"]')
    return _narrowest_first([_route(name, policy) for name, policy in policies.items()])


def _narrowest_first(routes: Sequence[Route]) -> tuple[Route, ...]:
    """Return the routes so that of two that match one path the narrower stands first, whatever the order in which
    they were written; raise ConfigError for two of which neither is narrower."""
    for one, other in combinations(routes, 2):
        if one.method != other.method or not _overlap(_template(one), _template(other)):
            continue
        if _covers(one, other) == _covers(other, one):
            raise ConfigError(
                f"{one.name} and {other.name} match the same paths, and neither is narrower: it is ambiguous which "
                'one a request is for; name one of them, or make one narrower, as "POST /orders/new" is beside '
                '"POST /orders/{id}"'
            )

    def wider(route: Route) -> int:
        return sum(other.method == route.method and _covers(other, route) for other in routes)

    return tuple(sorted(routes, key=wider, reverse=True))


def _template(route: Route) -> list[str]:
    """The path of a route: characters, and names of variable parts."""
    path, parts, last = route.name.partition(" ")[2], list[str](), 0
    for parameter in _PARAMETER.finditer(path):
        parts += [*path[last : parameter.start()], *([_REST] if parameter[1] else [_ONE, _MORE])]
        last = parameter.end()
    return [*parts, *path[last:]]


def _overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether some path matches both templates."""
    seen, left = set[tuple[int, int]](), [(0, 0)]
    while left:
        place = i, j = left.pop()
        if place in seen:
            continue
        seen.add(place)
        if i == len(one) and j == len(other):
            return True
        a, b = one[i] if i < len(one) else "", other[j] if j < len(other) else ""
        if a in (_MORE, _REST):
            left.append((i + 1, j))
        if b in (_MORE, _REST):
            left.append((i, j + 1))
        if a and b and _share(a, b):
            left.append((i + (a not in (_MORE, _REST)), j + (b not in (_MORE, _REST))))
    return False


def _share(a: str, b: str) -> bool:
    """Whether some character is both."""
    if len(a) == len(b) == 1:
        return a == b
    return _REST in (a, b) or "/" not in (a, b)


def _covers(wide: Route, narrow: Route) -> bool:
    """Whether `wide` matches every path that `narrow` does: a variable part matches any other text that fits there if
    it matches a character that no template has."""
    path = narrow.name.partition(" ")[2]

    def sample(rest: str) -> str:
        return _PARAMETER.sub(lambda found: rest if found[1] else _SAMPLE, path)

    return all(wide.path.fullmatch(sample(rest)) for rest in ("", f"{_SAMPLE}/{_SAMPLE}"))


def _route(name: object, repeat: object) -> Route:
    found = _ROUTE.fullmatch(name) if isinstance(name, str) else None
    if found is None or len(found[0]) > 200:
        raise ConfigError(
            f"{name!r} is not a route: write a method, POST or PATCH, and a path whose variable parts are in braces, "
            'such as "POST /orders/{id}/refunds"; for {id:int} write {id}, for more than a segment {rest:path}'
        )
    # Matched before the caller is known: with more variable parts, the time would grow with the square of a path.
    if found[2].count(":path}") > 1 or any(len(_PARAMETER.findall(part)) > 1 for part in found[2].split("/")):
        raise ConfigError(
            f"{name}: a long path could keep it busy for seconds: use one variable part between two slashes, and one "
            "{rest:path} at most"
        )
    if repeat not in get_args(Repeat):
        raise ConfigError(f"{name}: repeat is one of {', '.join(get_args(Repeat))}, not {repeat!r}")
    parts, last = [], 0
    for parameter in _PARAMETER.finditer(found[2]):
        parts += [re.escape(found[2][last : parameter.start()]), "(?:.*)" if parameter[1] else "(?:[^/]+)"]
        last = parameter.end()
    # Starlette's patterns end with `$`, which also matches before a line break: such a request runs the route, too.
    path = "".join([*parts, re.escape(found[2][last:]), r"\n?"])
    return Route(found[0], found[1], re.compile(path, re.DOTALL), repeat)  # type: ignore[arg-type]  # checked above


def find_route(routes: Sequence[Route], scope: Scope) -> tuple[Route, str] | None:
    """Return the route of a request, and its path or the part of it below the mount point; None without a route."""
    if scope["type"] != "http":
        return None
    method = scope["method"].upper()  # as Django reads it; some servers pass on what the client wrote
    fitting = [route for route in routes if route.method == method]
    if not fitting:
        return None
    for path in local_paths(scope):
        for route in fitting:
            if route.path.fullmatch(path):
                return route, path
    return None
