"""What an effect may be declared as, and what the ledger keeps of it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct

from hookledger import BadArguments, BadResult, ConfigError, Effect, Inbox, Op, RetryPolicy
from hookledger.effects.model import Performance, effect_key
from hookledger.ids import new_id


class Line(Struct):
    item: str
    price: Decimal


def declared(inbox: Inbox | None = None, **options: Any) -> Effect[[str, Decimal], Line]:
    @(inbox or Inbox()).effect(**{"repeat": "safe", **options})
    async def book(op: Op, item: str, price: Decimal = Decimal(1)) -> Line:
        return Line(item, price)

    return book


def test_arguments_come_back_as_the_parameters_have_them() -> None:
    effect = declared()
    kept, digest, lane = effect.keep(("screw",), {"price": Decimal("1.50")})
    assert effect.arguments(kept) == {"item": "screw", "price": Decimal("1.50")}
    assert lane is None
    assert effect.keep((), {"price": Decimal("1.50"), "item": "screw"})[:2] == (kept, digest)
    assert effect.keep(("screw",), {"price": Decimal("1.51")})[1] != digest
    assert effect.keep(("screw",), {}) == effect.keep(("screw", Decimal(1)), {}), "defaults are part of it"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (("a", Decimal(1), "b"), {}),
        (("a",), {"prize": 1}),
        ((1,), {}),
        (("a", object()), {}),
        (("x" * 70_000,), {}),
    ],
    ids=["missing", "too many", "unknown", "wrong type", "no JSON", "too large"],
)
def test_arguments_that_cannot_be_stored_fail_immediately(args: Any, kwargs: Any) -> None:
    with pytest.raises(BadArguments, match="book"):
        declared().keep(args, kwargs)


def test_volatile_parameters_do_not_identify() -> None:
    effect = declared(volatile=["price"])
    assert effect.keep(("a", Decimal(1)), {})[1] == effect.keep(("a", Decimal(2)), {})[1]
    assert effect.keep(("a", Decimal(1)), {})[0] != effect.keep(("a", Decimal(2)), {})[0]


def test_results_come_back_typed_and_are_small() -> None:
    effect = declared()
    assert effect.result(effect.keep_result(Line("a", Decimal(2)))) == Line("a", Decimal(2))
    for bad in ("text", object(), Line("x" * 70_000, Decimal(1))):
        with pytest.raises(BadResult, match="book"):
            effect.keep_result(bad)
    with pytest.raises(BadResult):
        effect.result(None)


# proves R30
def test_one_key_for_each_effect_and_generation() -> None:
    effect, other = declared(), declared(name="other")
    event = new_id()

    def op(identity: bytes, generation: int = 1, number: int = 1) -> Op:
        return Op(Performance(identity, "shop", "book", "1", event, b"{}", generation, number))

    ours = effect.identity("shop", "1")
    keys = [
        op(ours).key,
        op(ours, generation=2).key,
        op(effect.identity("shop", "2")).key,
        op(effect.identity("other shop", "1")).key,
        op(other.identity("shop", "1")).key,
    ]
    assert len(set(keys)) == 5
    assert op(ours, number=7).key == keys[0], "the same for every call"
    assert len(keys[0]) == 43
    assert op(ours).uuid == op(ours, number=2).uuid != op(ours, generation=2).uuid
    assert op(ours).uuid.version == 4


def test_shared_effects_have_one_key_for_all_sources() -> None:
    effect = declared(shared=True)
    assert effect.identity("a", "1") == effect.identity("b", "1")


@pytest.mark.parametrize("key", ["", " ", True, None, 1.5, b"x", "x" * 1025, "\ud800"])
def test_keys_that_are_none(key: Any) -> None:
    with pytest.raises(BadArguments):
        effect_key(key)


def test_keys_that_are() -> None:
    assert effect_key(7) == "7"
    assert effect_key(UUID(int=1)) == str(UUID(int=1))
    assert effect_key("in_1") == "in_1"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repeat": "sometimes"}, "repeat is one of"),
        ({"repeat": "keyed"}, "window"),
        ({"repeat": "safe", "window": "1h"}, "window"),
        ({"repeat": "keyed", "window": "5s"}, "must be longer than timeout="),
        ({"timeout": 0}, "timeout="),
        ({"serial": "account"}, "no parameter 'account'"),
        ({"volatile": ["account"]}, "no parameter 'account'"),
        ({"name": "x" * 256}, "255"),
    ],
)
def test_declarations_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        declared(**options)


def test_functions_that_cannot_be_effects() -> None:
    inbox = Inbox()
    with pytest.raises(ConfigError, match="op"):

        @inbox.effect(repeat="safe")  # type: ignore[arg-type]
        async def nothing() -> None: ...

    with pytest.raises(ConfigError, match="names each"):

        @inbox.effect(repeat="safe")
        async def anything(op: Op, *args: str) -> None: ...

    with pytest.raises(ConfigError, match="JSON"):

        @inbox.effect(repeat="safe")
        async def unkept(op: Op, inbox: type[Any] | list[Any]) -> Inbox: ...  # type: ignore[empty-body]


def test_two_effects_of_one_name_and_two_checks() -> None:
    inbox = Inbox()
    effect = declared(inbox)
    with pytest.raises(ConfigError, match="two effects"):
        declared(inbox)

    @effect.check
    async def found(op: Op, item: str, price: Decimal = Decimal(1)) -> bool:
        return True

    with pytest.raises(ConfigError, match="two checks"):
        effect.check(found)
    with pytest.raises(ConfigError, match="parameters of the effect"):
        declared(inbox, name="third").check(lambda op, item: True)  # type: ignore[arg-type]


def test_ensure_needs_a_check() -> None:
    inbox = Inbox()

    @inbox.ensure()
    async def plan(op: Op, workspace: str) -> None: ...

    with pytest.raises(ConfigError, match=r"@plan\.check"):
        inbox.effects.verify()
    plan.check(lambda op, workspace: True)
    inbox.effects.verify()


# proves R31
def test_what_may_be_repeated_after_an_unknown_outcome() -> None:
    def policy(**options: Any) -> Any:
        return declared(**options).policy

    assert policy(repeat="safe").may_repeat(1e9)
    assert policy(repeat="accept").may_repeat(1e9)
    assert not policy(repeat="never").may_repeat(None)
    keyed = policy(repeat="keyed", window="1h", timeout="10s")
    assert keyed.may_repeat(None)
    assert keyed.may_repeat(3584)
    assert not keyed.may_repeat(3586), "it must reach the remote within the window, however late it is begun"
    assert policy(retry=RetryPolicy(attempts=3)).retry.attempts == 3
