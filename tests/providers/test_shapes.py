"""The types that a body shows, held against the documented fields of every type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from hookledger.providers.catalogue import contracts

FIELDS = Path(__file__).parent / "fields"
VALUES = {"true": True, "false": False}


def documented(name: str) -> Iterator[tuple[list[str], list[str]]]:
    """Types with the same fields, and those."""
    types: list[str] = []
    fields: list[str] = []
    for line in (FIELDS / f"{name}.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(" "):
            fields += line.split()
            continue
        if fields:
            yield types, fields
            types, fields = [], []
        types += line.split()
    yield types, fields


def made(kind: str, fields: list[str], *, optional: bool) -> dict[str, Any]:
    """A body with these fields."""
    content: dict[str, Any] = {}
    for field in fields:
        path, _, value = field.rstrip("?").partition("=")
        if field.endswith("?") and not optional:
            continue
        *outer, last = path.split(".")
        place = content
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = VALUES.get(value, value or None)
    if "action" in content:
        content["action"] = kind.partition(".")[2]
    return content


def bodies(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for types, fields in documented(name):
        for kind in types:
            for optional in (False, True):
                yield kind, made(kind, fields, optional=optional)


def of_type(name: str, kind: str) -> set[str]:
    """How a contract may name it."""
    return {kind, kind.partition(".")[0]} if name == "github" else {kind}


@pytest.mark.parametrize("name", ["github", "shopify"])
def test_no_shape_fits_the_body_of_another_type(name: str) -> None:
    contract, seen = contracts()[name], 0
    for kind, content in bodies(name):
        for shape in contract.shown:
            if shape.fits(content):
                seen += 1
                assert of_type(name, kind) & shape.types, (kind, sorted(content), sorted(shape.types))
    assert seen > len(contract.shown)


@pytest.mark.parametrize("name", ["github", "shopify"])
def test_a_type_that_repeats_is_shown_by_each_of_its_documented_bodies(name: str) -> None:
    contract, shown = contracts()[name], set()
    for kind, content in bodies(name):
        names = of_type(name, kind)
        if names & contract.repeatable and any(names & shape.types for shape in contract.shown):
            assert contract.family(kind, kind.partition(".")[0] if name == "github" else kind, content), kind
            shown |= names & contract.repeatable
    hidden = {kind for kind in contract.repeatable if not contract.shows_any(kind)}
    assert contract.repeatable == shown | hidden


@pytest.mark.parametrize("name", ["github", "shopify"])
def test_every_documented_type_is_listed(name: str) -> None:
    for kind, _ in bodies(name):
        assert of_type(name, kind) & contracts()[name].types, kind


def resource(kind: str) -> str:
    return re.split("[/.]", kind)[0]


def test_topics_of_one_resource_share_a_body_if_and_only_if_they_have_the_same_fields() -> None:
    """Not the tags of a customer: the body has the moment at which they were added or removed."""
    contract = contracts()["shopify"]
    alike: dict[str, set[str]] = {}
    for types, fields in documented("shopify"):
        plain = [field for field in fields if not field.startswith("status=")]  # told apart by `says`
        for kind in types:
            alike.setdefault(kind, set()).add(" ".join(plain))
    for (one, fields_of_one), (other, fields_of_other) in permutations(alike.items(), 2):
        if resource(one) != resource(other) or one.startswith("customer.tags"):
            continue
        group = contract.groups.get(one)
        if one.startswith(("returns/", "inventory_transfers/")):
            assert group is None, f"{one}: its status tells it apart"
        else:
            same = bool(fields_of_one & fields_of_other)
            assert same == (group is not None and group == contract.groups.get(other)), (one, other)


@pytest.mark.parametrize("name", [name for name, contract in contracts().items() if contract.shared])
def test_a_type_shares_its_body_in_one_group(name: str) -> None:
    groups = contracts()[name].shared
    every = [kind for group in groups for kind in group.types]
    assert len(every) == len(set(every))
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        assert {said.type for said in group.says} <= group.types
