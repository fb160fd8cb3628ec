"""Mistakes that users make with effects: nothing is lost for them in silence, and nothing is done twice."""

import asyncio
import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hookledger import BadArguments, Event, Happened, Op, Permanent, RetryPolicy, Seconds, Source, State
from hookledger.states import CallOutcome, EffectState
from tests.asgi_client import Site
from tests.path.conftest import SECRET, MakeSite
from tests.path.remote import deliver, effects, event, finish

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheTypeChecker

QUICK = RetryPolicy(attempts=3, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    work = {"poll": "10ms", "retry": {"initial_delay": "1ms", "max_delay": "1ms", "attempts": 3}}
    made = await site_on(database_url, {"work": work})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


def stripe(site: Site) -> Source:
    return site.inbox.sources["stripe"]


@pytest.mark.parametrize("kind", ["call", "later"])
async def test_a_plain_wrapper_around_an_async_function_is_no_deed(site: Site, kind: str) -> None:
    sent = []

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @site.inbox.effect(repeat="never", retry=QUICK)
    @traced
    async def charge(op: Op) -> None:
        sent.append(op.key)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await (event.call(charge, "k") if kind == "call" else event.later(charge, "k"))

    await deliver(site, "evt_1", "t", "k")
    await finish(site)
    [known] = (await effects(site, "evt_1")).values()
    assert (known.effect.state, sent) == (EffectState.FAILED, [])
    assert "async def" in (known.effect.error or "")


@pytest.mark.parametrize("transaction", [True, False])
async def test_an_effect_that_was_only_begun_fails_the_attempt(site: Site, transaction: bool) -> None:
    late: list[BaseException] = []

    @site.inbox.effect(repeat="safe")
    async def mail(op: Op) -> None: ...

    @stripe(site).on("*", transaction=transaction)
    async def handle(event: Event) -> None:
        async def slowly() -> None:
            await asyncio.sleep(0.05)
            try:
                await event.later(mail, "late")
            except Exception as error:
                late.append(error)
                raise

        if transaction:
            tasks.append(asyncio.create_task(event.later(mail, "k")))
            await asyncio.sleep(0)
        else:
            tasks.append(asyncio.create_task(slowly()))

    tasks: list[asyncio.Task[None]] = []
    await deliver(site, "evt_1", "t", "k")
    await finish(site)
    await asyncio.gather(*tasks, return_exceptions=True)
    found = await event(site, "evt_1")
    if transaction:
        assert found.state is State.FAILED
        assert "did not await" in (found.reason or "")
    else:
        assert "returned" in str(late[0])
    assert await effects(site, "evt_1") == {}


async def test_what_a_check_found_counts_even_if_its_result_does_not_fit(site: Site) -> None:
    calls = []

    @site.inbox.effect(repeat="never", grace=0.01, timeout=1, retry=QUICK)
    async def charge(op: Op) -> str:
        calls.append(op.call)
        raise TimeoutError

    @charge.check
    async def found(op: Op) -> bool | Happened:
        return True

    @stripe(site).on("*", retry=RetryPolicy(attempts=5, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms")))
    async def handle(event: Event) -> None:
        await event.later(charge, "later")
        await asyncio.sleep(0)

    await deliver(site, "evt_1", "t", "k")
    for _ in range(5):
        await finish(site)
        [known] = (await effects(site, "evt_1")).values()
        if known.effect.state is EffectState.DONE:
            break
        await asyncio.sleep(0.1)
    assert (known.effect.state, known.effect.result, calls) == (EffectState.DONE, None, [1])


class Odd(Exception):
    """Says when to come back in a way of its own, and cannot be shown."""

    after = timedelta(seconds=5)
    response = type("Response", (), {"status_code": 429})()

    def __str__(self) -> str:
        raise RuntimeError


async def test_the_end_of_a_call_is_recorded_whatever_it_raises(site: Site) -> None:
    @site.inbox.effect(repeat="never", retry=QUICK)
    async def charge(op: Op) -> None:
        raise Odd

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await event.later(charge, "k")

    await deliver(site, "evt_1", "t", "k")
    for _ in range(20):
        await finish(site)
        [known] = (await effects(site, "evt_1")).values()
        if known.effect.state is EffectState.FAILED:
            break
        await asyncio.sleep(0.02)
    assert known.effect.state is EffectState.FAILED
    assert [call.outcome for call in known.calls] == [CallOutcome.REFUSED] * 3
    assert "cannot be shown" in (known.effect.error or "")


async def test_a_call_that_became_a_later_is_not_lost(site: Site) -> None:
    sent = []

    @site.inbox.effect(repeat="never")
    async def mail(op: Op) -> None:
        sent.append(op.call)
        if op.call == 1:
            raise Permanent("not today")

    @stripe(site).on("first")
    async def first(event: Event) -> None:
        await event.call(mail, "k")

    @stripe(site).on("second")
    async def second(event: Event) -> None:
        await event.later(mail, "k")

    await deliver(site, "evt_1", "first", "k")
    await finish(site)
    [known] = (await effects(site, "evt_1")).values()
    assert known.effect.state is EffectState.FAILED
    await deliver(site, "evt_2", "second", "k")
    await finish(site)
    [known] = (await effects(site, "evt_1")).values()
    assert (known.effect.state, sent) == (EffectState.DONE, [1, 2])


async def test_types_are_known_one_by_one(site: Site) -> None:
    @site.inbox.effect(repeat="safe")
    async def book(op: Op, cents: int, price: "OnlyForTheTypeChecker | None" = None) -> None: ...

    with pytest.raises(BadArguments, match="int"):
        book.keep((), {"cents": "five"})
    assert book.arguments(b'{"cents":5}') == {"cents": 5, "price": None}, "recorded before there was a price"
    assert book.keep((5,), {})[1] == book.keep((5, None), {})[1]
