"""Downstreams in trouble: circuits, and what one of them may cost the others. On both databases."""

import asyncio
from collections.abc import Iterator

import pytest

from hookledger import Event, Op, RetryPolicy, Seconds, Source, State
from hookledger.operate import circuits
from hookledger.operate.audit import by
from hookledger.states import CircuitState, EffectState
from tests.asgi_client import Site
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.remote import Remote, Running, deliver, effects, event, eventually, outcomes
from tests.services.ports import free_port
from tests.services.sink import running_sink

QUICK = RetryPolicy(attempts=10_000, initial_delay=Seconds("20ms"), max_delay=Seconds("200ms"))


@pytest.fixture
def remote() -> Iterator[Remote]:
    with running_sink() as sink:
        yield Remote(sink)


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    work = {
        "poll": "10ms",
        "retry": {"initial_delay": "1ms", "max_delay": "1ms"},
        "circuit": {"failures": 3, "cooldown": "10s"},
    }
    made = await site_on(database_url, {"work": work})
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


def stripe(site: Site) -> Source:
    return site.inbox.sources["stripe"]


async def circuit(site: Site, downstream: str) -> CircuitState:
    async with site.inbox.opened() as store:
        found = {known.downstream: known for known in await circuits.circuits(site.inbox.context(store))}
    return found[downstream].state if downstream in found else CircuitState.CLOSED


# ── circuits ─────────────────────────────────────────────────────────────────


# proves R24
async def test_an_open_circuit_reschedules_events_without_burning_attempts(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="safe", downstream="bank")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*", retry=RetryPolicy(attempts=20, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms")))
    async def handle(event: Event) -> str:
        return await event.call(charge, event.key)

    remote.sink.always("stripe charge", "fail")
    await deliver(site, "evt_1", "t")
    await site.work()
    for _ in range(3):  # three failures in a row, each an attempt
        await site.work(later=0.1)
    assert await circuit(site, "bank") is CircuitState.OPEN
    assert len(remote.sink.requests) == 3

    # Nobody calls: whoever comes waits, and it costs nothing.
    await deliver(site, "evt_2", "t")
    for _ in range(3):
        await site.work(later=1)
    first, second = await event(site, "evt_1"), await event(site, "evt_2")
    assert len(remote.sink.requests) == 3
    assert (first.state, first.attempts) == (State.RETRYING, 3)
    assert (second.state, second.attempts) == (State.RETRYING, 0)
    assert "circuit of bank is open" in (second.reason or "")

    # After the cool-down one trial, which fails; and after twice as long one more.
    for requests, pause in ((4, 11.0), (4, 11.0), (5, 11.0)):
        await site.work(later=pause)
        assert len(remote.sink.requests) == requests
        assert await circuit(site, "bank") is CircuitState.OPEN

    # A trial that comes back closes it.
    remote.sink.always("stripe charge", None)
    for _ in range(6):
        await site.work(later=21)
    assert await circuit(site, "bank") is CircuitState.CLOSED
    assert {row.state for row in await site.events()} == {State.PROCESSED}
    assert sum(row.attempts for row in await site.events()) == 3 + 2 + 2  # what failed, the two trials, what was done
    for ident in ("evt_1", "evt_2"):
        assert len(remote.sink.performed("stripe charge", ident)) == 1


async def test_one_trial_at_a_time_for_all_workers(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never", downstream="bank", timeout="20s")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @site.inbox.effect(repeat="never", downstream="bank", timeout="20s")
    async def refund(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("call")
    async def call(event: Event) -> str:
        return await event.call(charge, event.key)

    @stripe(site).on("later")
    async def later(event: Event) -> None:
        await event.later(charge, event.key)
        await event.later(refund, event.key)

    remote.sink.always("stripe charge", "busy")
    for number in range(3):
        await deliver(site, f"first_{number}", "call")
    await site.work()
    assert await circuit(site, "bank") is CircuitState.OPEN
    before = len(remote.sink.requests)

    # Much is due when it may be tried again, in two workers; one call is made.
    remote.sink.always("stripe charge", "wait")
    remote.sink.always("stripe refund", "wait")
    for number in range(6):
        await deliver(site, f"call_{number}", "call")
        await deliver(site, f"later_{number}", "later")
    site.inbox.clock.offset += 11
    async with Running(site), Running(site):
        await eventually(lambda: len(remote.sink.requests) > before, "the trial")
        await asyncio.sleep(0.7)
        assert len(remote.sink.requests) == before + 1
        assert await circuit(site, "bank") is CircuitState.HALF_OPEN
        remote.sink.gate.set()

        async def closed() -> bool:
            return await circuit(site, "bank") is CircuitState.CLOSED

        await eventually(closed, "the trial closes it")
        await asyncio.sleep(0.6)  # until the other worker has heard of it
        site.inbox.clock.offset += 60

        async def over() -> bool:
            return (
                len(remote.sink.performed("stripe refund")) == 6 and len(remote.sink.performed("stripe charge")) == 15
            )

        await eventually(over, "everything is done")
    performed = [(r.effect, r.key) for r in remote.sink.requests if r.performed]
    assert len(set(performed)) == len(performed)


async def test_what_the_downstream_does_not_like_opens_nothing(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never", downstream="bank")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await event.call(charge, event.key)

    remote.sink.always("stripe charge", "reject")
    for number in range(6):
        await deliver(site, f"evt_{number}", "t")
    await site.work()
    assert len(remote.sink.requests) == 6
    assert await circuit(site, "bank") is CircuitState.CLOSED


async def test_what_is_done_needs_no_closed_circuit(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never", downstream="bank")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> str:
        return await event.call(charge, "k")

    await deliver(site, "evt_1", "t")
    await site.work()
    async with site.inbox.opened() as store:
        await circuits.trip(site.inbox.context(store), by("ada", "they asked us to stop"), "bank")
    await deliver(site, "evt_2", "t")
    await site.work()
    assert (await event(site, "evt_2")).result == "stripe charge k no. 1"
    assert len(remote.sink.requests) == 1


# ── one dead, the others well ────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["hangs", "refuses"])
async def test_a_dead_downstream_delays_no_other(
    site_on: MakeSite, database_url: str, remote: Remote, way: str
) -> None:
    """Its entries are queued first, all of them, and each of the others is called before they have had their turn."""
    # Without a circuit that opens: what refuses at once is tried again and again.
    work = {"poll": "50ms", "retry": {"initial_delay": "1ms", "max_delay": "1ms"}, "circuit": {"failures": 100_000}}
    site = await site_on(database_url, {"work": work})
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    closed = f"http://127.0.0.1:{free_port()}"
    called: list[str] = []
    planned: dict[str, int] = {}
    """How many calls came before an entry was there to be called."""

    @site.inbox.effect(repeat="safe", timeout="10m", retry=QUICK)
    async def dead(op: Op) -> str:
        called.append("dead")
        return await remote.post(op, base=None if way == "hangs" else closed)

    @site.inbox.effect(repeat="safe")
    async def well(op: Op) -> str:
        called.append(op.effect_key)
        return await remote.post(op)

    @stripe(site).on("dead")
    async def plan_dead(event: Event) -> None:
        for number in range(100):
            await event.later(dead, f"{event.key}-{number}")

    @stripe(site).on("well")
    async def plan_well(event: Event) -> None:
        await event.later(well, event.key)
        planned[event.key] = len(called)

    remote.sink.always("stripe dead", "hang")
    for number in range(10):
        await deliver(site, f"dead_{number}", "dead")
    async with Running(site):

        async def queued() -> bool:
            async with site.inbox.opened() as store:
                return (await store.counts()).get(State.PROCESSED, 0) == 10

        await eventually(queued, "1,000 effects are queued")
        await eventually(lambda: "dead" in called, "some of them are called")
        for number in range(6):
            ident = f"well_{number}"
            await deliver(site, ident, "well")
            await eventually(lambda: bool(remote.sink.performed("stripe well", ident)), "it is done")  # noqa: B023
            between = called[planned[ident] : called.index(ident)]
            assert len(between) < 1000, "it waited until all that were queued before it had been called"
        assert len(remote.sink.performed("stripe dead")) == 0
        remote.sink.gate.set()
        remote.sink.always("stripe dead", "reset")


# ── pools ────────────────────────────────────────────────────────────────────


async def test_every_handler_holds_a_transaction_and_makes_a_call(
    site_on: MakeSite,
    postgres_url: str,
    remote: Remote,
) -> None:
    site = await site_on(postgres_url, {"work": {"poll": "10ms", "concurrency": 16}})
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    inside = most = 0
    full = asyncio.Event()

    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> str:
        nonlocal most
        most = max(most, inside)
        return await remote.post(op)

    @site.inbox.effect(repeat="never")
    async def mail(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        nonlocal inside
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        inside += 1
        try:
            if inside == 16:
                full.set()
            await full.wait()  # until every slot holds a connection
            assert await event.once("credit", event.key)
            await event.call(charge, event.key)
            await event.later(mail, event.key)
        finally:
            inside -= 1

    for number in range(64):
        await deliver(site, f"evt_{number:02}", "t")
    async with asyncio.timeout(60):
        await site.work()
    assert most == 16
    assert {(row.state, row.attempts) for row in await site.events()} == {(State.PROCESSED, 1)}
    assert len(await done(site)) == len(remote.sink.received("stripe charge")) == 64
    assert len(remote.sink.received("stripe mail")) == 64
    known = await effects(site, "evt_00")
    assert {name: found.effect.state for name, found in known.items()} == dict.fromkeys(
        ("credit", "charge", "mail"), EffectState.DONE
    )
    assert outcomes(known["charge"]) == ["done"]
