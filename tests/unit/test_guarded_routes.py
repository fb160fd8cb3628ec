"""Which declared route a guarded request is for, where several match its path."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookledger.errors import ConfigError
from hookledger.idempotency.routes import Route, _covers, _overlap, _template, find_route, read_routes

TEMPLATES = (
    *(
        "POST /orders",
        "POST /orders/new",
        "POST /orders/{id}",
        "POST /orders/{id}/refunds",
        "POST /orders/{all:path}",
    ),
    *("POST /orders/{id}:cancel", "PATCH /orders/{id}"),
)


def scope(path: str, method: str = "POST") -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": []}


def name_of(routes: tuple[Route, ...], path: str, method: str = "POST") -> str | None:
    found = find_route(routes, scope(path, method))
    return found[0].name if found else None


@pytest.mark.parametrize("order", [TEMPLATES, TEMPLATES[::-1], TEMPLATES[3:] + TEMPLATES[:3]])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/orders", "POST /orders"),
        ("/orders/new", "POST /orders/new"),
        ("/orders/news", "POST /orders/{id}"),
        ("/orders/7:cancel", "POST /orders/{id}:cancel"),
        ("/orders/new/refunds", "POST /orders/{id}/refunds"),
        ("/orders/7/8/9", "POST /orders/{all:path}"),
        ("/orders/", "POST /orders/{all:path}"),
        ("/order", None),
    ],
)
def test_the_narrowest_route_decides_in_whatever_order_they_are_written(
    order: tuple[str, ...], path: str, name: str | None
) -> None:
    assert name_of(read_routes(order, "never"), path) == name


def test_each_route_keeps_its_policy() -> None:
    routes = read_routes({"POST /orders/{id}": "transaction", "POST /orders/new": "never"}, "never")
    assert {route.name: route.repeat for route in routes} == {
        "POST /orders/new": "never",
        "POST /orders/{id}": "transaction",
    }


@pytest.mark.parametrize(
    "pair",
    [
        ("POST /orders/{id}", "POST /orders/{name}"),
        ("POST /{shop}/orders", "POST /acme/{what}"),
        ("POST /orders/new{x}", "POST /orders/{y}old"),
        ("POST /{all:path}/x", "POST /orders/{all:path}"),
        ("POST /{a:path}", "POST /{b:path}"),
    ],
)
def test_two_routes_of_which_neither_is_narrower_are_a_mistake(pair: tuple[str, str]) -> None:
    for names in permutations(pair):
        with pytest.raises(ConfigError, match="ambiguous which one a request is for; name one of them"):
            read_routes(names, "never")


@pytest.mark.parametrize(
    "pair",
    [
        ("POST /orders/{id}", "PATCH /orders/{name}"),
        ("POST /orders/{id}", "POST /orders"),
        ("POST /orders/{id}", "POST /orders/"),
        ("POST /{a}/x", "POST /{b}/y"),
        ("POST /{a}", "POST /{a}/{b}"),
    ],
)
def test_routes_that_match_no_common_path_may_stand_together(pair: tuple[str, str]) -> None:
    assert len(read_routes(pair, "never")) == 2


@pytest.mark.parametrize(
    "route", ["POST /{a}-{b}", "POST /{a}{b:path}", "POST /{a:path}/x/{b:path}", "POST /x/{a:path}/{b}{c}"]
)
def test_a_route_on_which_a_long_path_costs_much_is_a_mistake(route: str) -> None:
    """A stranger's request is matched before it is known who sends it."""
    with pytest.raises(ConfigError, match="one variable part between two slashes"):
        read_routes([route], "never")


SEGMENTS = st.lists(st.sampled_from(["", "a", "b", "ab", "{x}", "a{x}", "{x}b", "a{y}b"]), max_size=4)
REST = st.sampled_from(["", "", "{z:path}", "a{z:path}", "{z:path}b"])


@st.composite
def templates(draw: st.DrawFn) -> Route:
    segments = draw(SEGMENTS)
    if rest := draw(REST):
        segments.insert(draw(st.integers(0, len(segments))), rest)
    [route] = read_routes([f"POST /{'/'.join(segments)}"], "never")
    return route


@given(templates(), templates(), st.lists(st.text("/abc", max_size=6), max_size=40))
def test_paths_that_both_match_are_those_that_overlap_and_cover(a: Route, b: Route, paths: list[str]) -> None:
    for path in (f"/{rest}" for rest in paths):
        in_a, in_b = a.path.fullmatch(path) is not None, b.path.fullmatch(path) is not None
        assert not (in_a and in_b) or _overlap(_template(a), _template(b))
        assert not (in_a and not in_b) or not _covers(b, a)
