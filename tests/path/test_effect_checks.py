"""A check that cannot tell is asked again, by the outbox and by handlers alike, and not for ever."""

from collections.abc import Callable
from typing import Any

import pytest

from hookledger import Event, Happened, Op, RetryPolicy, Seconds, State
from hookledger.operate.audit import by
from hookledger.operate.effects import resolve
from hookledger.states import EffectState
from tests.asgi_client import Site
from tests.path.conftest import SECRET, MakeSite
from tests.path.remote import deliver, effects, event, finish, outcomes

KINDS = pytest.mark.parametrize("kind", ["call", "later"])
HOUR = RetryPolicy(attempts=20, initial_delay=Seconds("1s"), max_delay=Seconds("10m"), max_age=Seconds("1h"))


class Asking:
    """An effect whose call times out, and whose check answers from a script."""

    def __init__(self, site: Site, kind: str, answer: Callable[[int], bool | None], **policy: Any) -> None:
        self.asked = self.calls = 0

        @site.inbox.effect(timeout="1s", grace="1s", retry=HOUR, **policy)
        async def charge(op: Op) -> str:
            self.calls += 1
            if self.calls == 1:
                raise TimeoutError
            return "done"

        @charge.check
        async def look(op: Op) -> Happened | bool | None:
            self.asked += 1
            found = answer(self.asked)
            return Happened("found") if found else found

        @site.inbox.sources["stripe"].on("*", retry=HOUR)
        async def handle(event: Event) -> None:
            await (event.call(charge, "k") if kind == "call" else event.later(charge, "k"))


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    made = await site_on(database_url, {"work": {"poll": "10ms", "circuit": {"failures": 1000}}})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


@KINDS
@pytest.mark.parametrize("happened", [True, False])
async def test_a_check_that_can_tell_later_decides(site: Site, kind: str, happened: bool) -> None:
    asking = Asking(site, kind, lambda nth: None if nth < 4 else happened, repeat="never")
    await deliver(site, "evt_1", "t")
    await finish(site, most=60)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.state, row.attention, known.effect.state) == (State.PROCESSED, False, EffectState.DONE)
    assert (asking.asked, asking.calls) == (4, 1 if happened else 2)
    assert row.attempts <= 3, "to wait for an answer uses no attempts up"


@KINDS
@pytest.mark.parametrize("minutes", [50, 70])
async def test_an_event_that_is_older_than_its_effect(site: Site, kind: str, minutes: int) -> None:
    """No worker ran for most of the hour that the event has, or for longer: a person decides all the same."""
    asking = Asking(site, kind, lambda _: None, repeat="never")
    await deliver(site, "evt_1", "t")
    site.inbox.clock.offset += minutes * 60
    await finish(site, step=240.0, most=40)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    state = State.NEEDS_REVIEW if kind == "call" else State.PROCESSED
    assert (row.state, row.attention, known.effect.state) == (state, True, EffectState.UNKNOWN)
    assert (asking.calls, outcomes(known)) == (1, ["unknown"])
    if kind == "call":
        assert (row.reason or "").startswith("effect charge 'k' may have happened")
        async with site.inbox.opened() as store:  # and what is told of the effect sends the event round again
            await resolve(site.inbox.context(store), by("ada", "asked the bank"), known.effect, "happened", "done")
        await finish(site)
        assert (await event(site, "evt_1")).state is State.PROCESSED


@KINDS
@pytest.mark.parametrize("policy", [{"repeat": "never"}, {"repeat": "keyed", "window": "5s"}])
async def test_a_check_that_can_never_tell_ends_with_an_operator(
    site: Site, kind: str, policy: dict[str, Any]
) -> None:
    asking = Asking(site, kind, lambda _: None, **policy)
    await deliver(site, "evt_1", "t")
    await finish(site, step=240.0, most=40)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    state = State.NEEDS_REVIEW if kind == "call" else State.PROCESSED
    assert (row.state, row.attention, known.effect.state) == (state, True, EffectState.UNKNOWN)
    assert outcomes(known) == ["unknown"]
    assert 5 <= asking.asked <= 20, "seldom and seldomer, and no longer than its retry policy says"
