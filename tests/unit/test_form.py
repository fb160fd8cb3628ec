"""The form of an effect's result: what a person types for a value of its type."""

import datetime
import enum
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from hookledger import Op
from hookledger.effects.example import example
from hookledger.effects.model import Effect
from hookledger.effects.policy import Policy
from hookledger.states import Repeat


class Colour(enum.Enum):
    RED = "red"


class Charge(msgspec.Struct):
    id: str
    cents: int
    parent: "Charge | None"
    note: str = ""


class Tagged(msgspec.Struct, tag="t", rename="camel"):
    made_at: datetime.datetime


class Endless(msgspec.Struct):
    inner: "Endless"


@dataclass
class Account:
    charges: list[Charge]
    colours: dict[str, Colour]


class Pair(NamedTuple):
    id: UUID
    amount: Decimal


class Partial(TypedDict, total=False):
    kind: Literal["a", "b"]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (str, "text"),
        (int, 0),
        (list[int], [0]),
        (tuple[int, str], [0, "text"]),
        (dict[str, bool], {"text": True}),
        (Charge, {"id": "text", "cents": 0, "parent": None}),
        (Tagged, {"type": "t", "madeAt": "2027-01-31T09:00:00Z"}),
        (Account, {"charges": [{"id": "text", "cents": 0, "parent": None}], "colours": {"text": "red"}}),
        (Pair, ["00000000-0000-0000-0000-000000000000", "0.00"]),
        (Partial, {"kind": "a"}),
        (int | str, 0),
    ],
)
def test_a_form_is_a_value_of_its_type(kind: Any, shown: Any) -> None:
    assert example(kind) == shown
    msgspec.json.decode(json.dumps(shown), type=kind)


def test_a_type_that_contains_itself_ends() -> None:
    assert len(json.dumps(example(Endless))) < 100


def made(returns: Any) -> Effect[Any, Any]:
    def charge(op: Op, cents: int) -> Any: ...

    charge.__annotations__["return"] = returns
    return Effect(charge, "charge", Policy(Repeat.NEVER))


@pytest.mark.parametrize(
    ("returns", "form", "needed"),
    [(str, '"text"', True), (None, "null", False), (str | None, '"text"', False), (Any, "null", False)],
)
def test_a_result_that_can_be_left_out_is_not_needed(returns: Any, form: str, needed: bool) -> None:
    assert (made(returns).form, made(returns).needs_result) == (form, needed)
