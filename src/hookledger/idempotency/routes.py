"""Which requests are guarded, and what may follow if one of them died."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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


class Route(Struct, frozen=True):
    """One guarded route."""

    name: str
    """METHOD PATH as declared: the type of its events."""
    method: str
    path: re.Pattern[str]
    repeat: Repeat


def read_routes(given: Sequence[str] | Mapping[str, Repeat], repeat: Repeat) -> tuple[Route, ...]:
    """Return the routes of a declaration; raise ConfigError for what cannot be one."""
    if isinstance(given, str):
        raise ConfigError(f"routes is a list: write routes=[{given!r}]")
    policies: dict[str, Repeat] = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, repeat)
    if not policies:
        raise ConfigError('no route is named: write routes=["POST /orders"]')
    return tuple(_route(name, policy) for name, policy in policies.items())


def _route(name: object, repeat: object) -> Route:
    found = _ROUTE.fullmatch(name) if isinstance(name, str) else None
    if found is None or len(found[0]) > 200:
        raise ConfigError(
            f"{name!r} is not a route: write a method, POST or PATCH, and a path whose variable parts are in braces, "
            'such as "POST /orders/{id}/refunds"'
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
