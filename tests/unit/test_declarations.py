"""Mistakes in what an application declares: found when its module is imported, with the place and what to write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from hookledger import ConfigError, Inbox, Source

if TYPE_CHECKING:
    from hookledger import Op

HERE = "tests/unit/test_declarations.py"


@pytest.fixture
def inbox() -> Inbox:
    return Inbox("sqlite:///never-opened.db")


@pytest.fixture
def stripe(inbox: Inbox) -> Source:
    return inbox.source("stripe", provider="stripe", secrets=["whsec_made_up"])


def line(function: Callable[..., Any]) -> str:
    """Where it is written, as the message has it."""
    return f"{HERE}:{function.__code__.co_firstlineno}"


def refused(declare: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        declare()
    return str(caught.value)


# ── parentheses ──


def test_on_without_parentheses(stripe: Source) -> None:
    async def paid(event: Any) -> None: ...

    words = refused(lambda: stripe.on(paid))  # type: ignore[call-overload]
    expected = '@stripe.on has no parentheses: write @stripe.on("invoice.paid")'
    assert words == f"paid ({line(paid)}): {expected}"


@pytest.mark.parametrize("name", ["effect", "ensure"])
def test_effects_without_parentheses(inbox: Inbox, name: str) -> None:
    async def send(op: Any, to: str) -> None: ...

    words = refused(lambda: getattr(inbox, name)(send))
    assert words.startswith(f"send ({line(send)}): @inbox.{name} has no parentheses")
    assert f"write @inbox.{name}(" in words


def test_types_that_are_no_text(stripe: Source) -> None:
    assert 'write @stripe.on("invoice.paid")' in refused(lambda: stripe.on(["a", "b"]))  # type: ignore[call-overload]
    assert 'write @stripe.on("invoice.paid")' in refused(stripe.on)
    assert stripe.name == "stripe"


# ── parameters ──


class Shop:
    async def handle(self, event: Any) -> None: ...
    async def __call__(self, event: Any) -> None: ...
    @staticmethod
    async def static(event: Any) -> None: ...
    @classmethod
    async def of_class(cls, event: Any) -> None: ...


class NoEvent:
    def __call__(self) -> None: ...


async def none() -> None: ...
async def two(event: Any, session: Any) -> None: ...
async def keyword(*, event: Any) -> None: ...
async def keyword_too(event: Any, *, session: Any) -> None: ...
def plain_none() -> None: ...


def yields(event: Any) -> Iterator[int]:
    yield 1


async def yields_async(event: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [none, two, keyword, keyword_too, plain_none])
def test_handlers_with_the_wrong_parameters(stripe: Source, function: Callable[..., Any]) -> None:
    words = refused(lambda: stripe.on("invoice.paid")(function))
    assert words.startswith(f"source 'stripe': handler {function.__name__} ({line(function)}) takes (")
    form = "def" if function is plain_none else "async def"
    assert words.endswith(f"is called with (event): write `{form} {function.__name__}(event)`")
    assert stripe._routes.handles() == []


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Shop.handle, "to declare a method, call the decorator with the method of an object"),
        (Shop, f"Shop ({HERE}:{inspect.getsourcelines(Shop)[1]}) is a class: declare a function"),
        (NoEvent(), "is called with (event): write `def NoEvent(event)`"),
        (functools.partial(two, session=1, event=2), "is called with (event)"),
        (yields, "has a yield, so calling it runs nothing: return instead"),
        (yields_async, "has a yield, so calling it runs nothing: return instead"),
        ("paid", "handler is a function, not str 'paid'"),
        (classmethod(two), "handler is a function, not classmethod"),
    ],
)
def test_what_is_no_handler(stripe: Source, function: Any, words: str) -> None:
    assert words in refused(lambda: stripe.on("invoice.paid")(function))


def with_session(handler: Callable[..., Any]) -> Callable[..., Any]:
    """As applications write them: it takes one parameter, what it wraps takes two."""

    @functools.wraps(handler)
    async def run(event: Any) -> Any:
        return await handler(event, session=None)

    return run


def passed_on(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        return handler(*args, **kwargs)

    return run


async def with_default(event: Any, session: Any = None, *, more: int = 1) -> None: ...


HONEST = [
    Shop().handle,
    Shop(),
    Shop.static,
    Shop.of_class,
    staticmethod(with_default),
    with_default,
    functools.partial(two, session=1),
    functools.partial(keyword_too, session=1),
    with_session(two),
    passed_on(with_default),
    lambda event: None,
    print,
]


@pytest.mark.parametrize("function", HONEST)
def test_honest_handlers(stripe: Source, function: Any) -> None:
    stripe.on("invoice.paid", batch=5)(function)
    stripe.repair(function)
    stripe.current(function)
    assert [one.type for one in stripe._routes.handles()] == ["hookledger.repair", "invoice.paid"]


def test_what_is_declared_of_the_truth(stripe: Source) -> None:
    current, repair = (refused(lambda: stripe.current(two)), refused(lambda: stripe.repair(none)))  # type: ignore[type-var]
    assert current.startswith(f"source 'stripe': current two ({line(two)}) takes")
    assert repair.startswith(f"source 'stripe': repair none ({line(none)}) takes")
    assert "is called with (since, until)" in refused(lambda: stripe.lister(yields_async))  # type: ignore[type-var]
    assert "has no yield" in refused(lambda: stripe.lister(two))  # type: ignore[type-var]

    @stripe.lister
    async def listed(since: datetime, until: datetime) -> AsyncIterator[Any]:
        yield since


def test_a_key_function(inbox: Inbox) -> None:
    def key(content: Any) -> str:
        return "k"

    def add() -> Source:
        return inbox.source("shop", provider="stripe", secrets=["whsec_x"], key=key)  # type: ignore[arg-type]

    assert f"source 'shop': key {key.__name__} ({line(key)}) takes" in refused(add)


# ── effects ──


def test_effects_without_a_policy(inbox: Inbox) -> None:
    effect: Any = inbox.effect
    words = refused(effect)
    assert words == (
        "@inbox.effect needs repeat=, what may be done if the outcome of a call is unknown: write "
        '@inbox.effect(repeat="keyed", window="24h"), or repeat="safe", "accept" or "never"'
    )
    assert refused(lambda: effect(timeout="5s")) == words
    assert refused(lambda: effect("safe")) == words, "by its name"
    assert inbox.effects.all() == []


@pytest.mark.parametrize("option", ["timeout", "grace", "volatile"])
def test_effects_have_no_unlimited_time(inbox: Inbox, option: str) -> None:
    """None would be read as "no limit", and is the default."""
    with pytest.raises(TypeError):
        inbox.effect(repeat="safe", **{option: None})  # type: ignore[arg-type]


def test_effects_with_an_unknown_option(inbox: Inbox) -> None:
    with pytest.raises(TypeError, match="an effect has no option window"):
        inbox.ensure(window="1h")  # type: ignore[call-arg]


def test_effects_without_the_operation(inbox: Inbox) -> None:
    async def receipt(to: str, invoice: str) -> None: ...
    async def nothing() -> None: ...

    declare: Any = inbox.effect(repeat="safe")
    words = refused(lambda: declare(receipt))
    expected = "must be the operation: write receipt(op, to, invoice); if 'to' is the operation, annotate it: to: Op"
    assert words == f"effect 'receipt': the first parameter of receipt ({line(receipt)}) {expected}"
    assert "write nothing(op)" in refused(lambda: declare(nothing))
    assert "write handle(op, self, event)" in refused(lambda: declare(Shop.handle))
    assert "has a yield" in refused(lambda: declare(yields))
    assert "is a class" in refused(lambda: inbox.ensure()(Shop))  # type: ignore[arg-type]
    assert inbox.effects.all() == []


def test_the_operation_by_any_name(inbox: Inbox) -> None:
    async def annotated(o: Op, to: str) -> None: ...
    async def ignored(_: Any, to: str) -> None: ...
    async def spelled(operation: Any, to: str) -> None: ...

    for function in (annotated, ignored, spelled):
        declare: Any = inbox.effect(repeat="safe")
        declare(function)
    assert [effect.name for effect in inbox.effects.all()] == ["annotated", "ignored", "spelled"]


def test_a_check_of_other_parameters(inbox: Inbox) -> None:
    @inbox.effect(repeat="never")
    async def charge(op: Op, account: str) -> None: ...

    async def charged(op: Any, to: str) -> bool:
        return True

    words = refused(lambda: charge.check(charged))  # type: ignore[arg-type]
    assert words.endswith("takes (op, to), not the parameters of the effect: write charged(op, account)")
    assert "write none(op, account)" in refused(lambda: charge.check(none))  # type: ignore[arg-type]
