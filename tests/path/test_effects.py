"""Effects through the whole path: intake, handler, ledger, outbox and a remote that counts, on both databases."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import apsw
import asyncpg
import pytest

from hookledger import (
    BadArguments,
    ClaimLost,
    ConfigError,
    Event,
    NoTransaction,
    Op,
    Refused,
    Retry,
    RetryPolicy,
    Seconds,
    Source,
    State,
    SyncEvent,
    UnknownOutcome,
)
from hookledger.operate.audit import by
from hookledger.operate.effects import resolve
from hookledger.states import CallOutcome, EffectState
from tests.asgi_client import Site
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.remote import Remote, Running, deliver, effects, event, eventually, finish, outcomes
from tests.services.ports import free_port
from tests.services.sink import running_sink

QUICK = RetryPolicy(attempts=50, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))


@pytest.fixture
def remote() -> Iterator[Remote]:
    with running_sink() as sink:
        yield Remote(sink)


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    """With sources `stripe` and `other` and no handlers, on each store in turn."""
    work = {"poll": "10ms", "retry": {"initial_delay": "1ms", "max_delay": "1ms"}, "circuit": {"failures": 100_000}}
    made = await site_on(database_url, {"work": work})
    for name in ("stripe", "other"):
        made.inbox.source(name, provider="stripe", secrets=[SECRET])
    return made


def stripe(site: Site) -> Source:
    return site.inbox.sources["stripe"]


def key_of(event: Event | SyncEvent) -> str:
    key: str = event.json["data"]["object"]["id"]
    return key


def is_postgres(site: Site) -> bool:
    return (site.inbox.database or "").startswith("postgres")


# ── keys ─────────────────────────────────────────────────────────────────────

ODD_KEYS = ["a", "ab", "b", "bc", "", "a:b", " a", "ä", "K", "k", "x" * 300 + "1", "x" * 300 + "2"]


async def test_the_sink_never_sees_two_keys_for_one_effect_nor_one_for_two(site: Site, remote: Remote) -> None:
    chance = random.Random(3)
    sink = remote.sink

    def declare(name: str) -> Any:
        @site.inbox.effect(repeat="keyed", window="1d", name=name, retry=QUICK)
        async def effect(op: Op, key: str) -> str:
            return await remote.post(op, key)

        return effect

    # Names and keys that run into one another when they are put together carelessly.
    declared = [declare(name) for name in ("a", "ab", "a:b")]
    for source, effect in itertools.product(("stripe", "other"), declared):
        sink.deduplicates.add(f"{source} {effect.name}")
        for key in ODD_KEYS:
            sink.will(f"{source} {effect.name}", key, *chance.choices(("perform", "busy", "perform and reset"), k=2))

    async def handle(event: Event) -> None:
        key = key_of(event)
        for effect in declared[:2]:
            if key:
                await event.call(effect, key, key)
        if event.attempt == 1 and event.key.endswith("3"):
            raise Retry("once more")
        if key:
            await event.later(declared[2], key, key)

    for configured in site.inbox.sources.values():
        configured.on("*")(handle)
    # Each key in several events of each source, each event delivered twice.
    sent = list(enumerate(itertools.product(ODD_KEYS, ("stripe", "other"), range(2)))) * 2
    await asyncio.gather(*(deliver(site, f"evt_{n}", "t", key, source=source) for n, (key, source, _) in sent))
    await finish(site)

    assert {row.state for row in await site.events()} == {State.PROCESSED}
    seen = {(r.operation, r.effect, r.key) for r in sink.requests}
    wanted = {
        (f"{source} {effect.name}", key)
        for source, effect, key in itertools.product(("stripe", "other"), declared, ODD_KEYS)
        if key
    }
    assert {(effect, key) for _, effect, key in seen} == wanted
    assert len({operation for operation, _, _ in seen}) == len(seen) == len(wanted)
    performed = Counter((r.effect, r.key) for r in sink.requests if r.performed)
    assert set(performed.values()) == {1}
    assert len(sink.requests) > len(wanted), "nothing was repeated: the test shows less than it should"


# proves R17
async def test_sources_do_not_meet_unless_the_effect_is_shared(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never")
    async def own(op: Op) -> str:
        return await remote.post(op)

    @site.inbox.effect(repeat="never", shared=True)
    async def common(op: Op) -> str:
        return await remote.post(op)

    once: list[bool] = []

    async def handle(event: Event) -> None:
        await event.call(own, "order-1001")
        await event.call(common, "order-1001")
        once.append(await event.once("credit", "order-1001"))

    for name, source in site.inbox.sources.items():
        source.on("*")(handle)
        await deliver(site, f"evt_{name}", "t", source=name)
    await finish(site)
    assert {row.state for row in await site.events()} == {State.PROCESSED}
    assert len(remote.sink.received("stripe own")) == len(remote.sink.received("other own")) == 1
    shared = remote.sink.received("stripe common") + remote.sink.received("other common")
    assert len(shared) == 1
    assert len({request.operation for request in remote.sink.requests}) == 3
    assert once == [True, True]


# ── what is kept ─────────────────────────────────────────────────────────────


async def test_rolled_back_and_committed(site: Site, remote: Remote) -> None:
    results: list[str] = []

    @site.inbox.effect(repeat="never")
    async def charge(op: Op, cents: int) -> str:
        return await remote.post(op)

    @site.inbox.effect(repeat="never")
    def mail(op: Op) -> str:
        return remote.post_plainly(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        results.append(await event.call(charge, "k", cents=5))
        if await event.once("credit", "k"):
            await event.tx.execute("INSERT INTO done VALUES ('credited')")
        await event.later(mail, "k")
        if event.attempt == 1:
            raise Retry("not yet", after=30)

    await deliver(site, "evt_1", "t")
    await site.work()
    assert (await event(site, "evt_1")).state is State.RETRYING
    kept = await effects(site, "evt_1")
    assert set(kept) == {"charge"}
    assert (kept["charge"].effect.state, outcomes(kept["charge"])) == (EffectState.DONE, ["done"])
    assert await done(site) == []
    assert remote.sink.received("stripe mail") == []

    await finish(site)
    assert (await event(site, "evt_1")).state is State.PROCESSED
    kept = await effects(site, "evt_1")
    assert {name: known.effect.state for name, known in kept.items()} == dict.fromkeys(
        ("charge", "credit", "mail"), EffectState.DONE
    )
    assert await done(site) == ["credited"]
    # The second run got what the first call returned, without calling.
    assert results == ["stripe charge k no. 1"] * 2
    assert len(remote.sink.received("stripe charge")) == len(remote.sink.received("stripe mail")) == 1


# proves R28
async def test_once_is_true_once_for_every_event_of_the_source(site: Site) -> None:
    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        if await event.once("credit", "in_1"):
            await event.tx.execute("INSERT INTO done VALUES ('credited')")
        assert not await event.once("credit", "in_1")

    for number in range(20):
        await deliver(site, f"evt_{number}", "t")
    await asyncio.gather(site.work(), site.work())
    await finish(site)
    assert {row.state for row in await site.events()} == {State.PROCESSED}
    assert await done(site) == ["credited"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_two_concurrent_calls_under_one_key(site: Site, remote: Remote, workers: int) -> None:
    results: list[str] = []

    @site.inbox.effect(repeat="never", timeout="20s")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        results.append(await event.call(charge, "k"))

    remote.sink.will("stripe charge", "k", "wait")
    for number in range(8):
        await deliver(site, f"evt_{number}", "t")
    working = [asyncio.create_task(site.work()) for _ in range(workers)]
    await eventually(lambda: len(remote.sink.requests) == 1, "one calls")
    await asyncio.sleep(0.3)
    remote.sink.gate.set()
    await asyncio.gather(*working)
    assert results == ["stripe charge k no. 1"] * 8
    assert len(remote.sink.requests) == 1
    assert {(row.state, row.attempts) for row in await site.events()} == {(State.PROCESSED, 1)}


async def test_who_waits_too_long_for_another_comes_back_without_burning_an_attempt(
    site: Site, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hookledger.effects.caller.PATIENCE", 0.2)

    @site.inbox.effect(repeat="never", timeout="20s")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> str:
        return await event.call(charge, "k")

    remote.sink.will("stripe charge", "k", "wait")
    for ident in ("evt_1", "evt_2"):
        await deliver(site, ident, "t")
    working = asyncio.create_task(site.work())
    await eventually(lambda: len(remote.sink.requests) == 1, "one calls")

    async def waits() -> bool:
        return any(row.snoozes for row in await site.events())

    await eventually(waits, "the other gives up for now")
    remote.sink.gate.set()
    await working
    await finish(site)
    rows = await site.events()
    assert {(row.state, row.attempts, row.result) for row in rows} == {(State.PROCESSED, 1, "stripe charge k no. 1")}
    assert len(remote.sink.requests) == 1


async def test_call_and_later_of_one_effect_meet(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("later")
    async def plan(event: Event) -> None:
        await event.later(charge, key_of(event))

    @stripe(site).on("call")
    async def call(event: Event) -> str:
        return await event.call(charge, key_of(event))

    await deliver(site, "evt_1", "later", "a")
    await deliver(site, "evt_2", "call", "b")
    await finish(site)
    await deliver(site, "evt_3", "call", "a")
    await deliver(site, "evt_4", "later", "b")
    await deliver(site, "evt_5", "call", "c")
    await deliver(site, "evt_6", "later", "c")
    await finish(site)
    assert {row.state for row in await site.events()} == {State.PROCESSED}
    assert (await event(site, "evt_3")).result == "stripe charge a no. 1"
    for key in "abc":
        assert len(remote.sink.received("stripe charge", key)) == 1


# ── mistakes of handlers ─────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["call", "later"])
async def test_changed_arguments_need_an_operator(site: Site, remote: Remote, kind: str) -> None:
    @site.inbox.effect(repeat="keyed", window="1d", volatile=["note"])
    async def charge(op: Op, cents: int, note: str = "") -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await event.tx.fetchval("SELECT 1") if is_postgres(site) else None
        cents = 6 if event.key == "evt_changed" else 5
        if kind == "call":
            await event.call(charge, "k", cents, event.key)
        else:
            await event.later(charge, "k", cents, note=event.key)
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)

    for ident in ("evt_1", "evt_2", "evt_changed"):
        await deliver(site, ident, "t")
        await site.work()
    assert [(await event(site, ident)).state for ident in ("evt_1", "evt_2")] == [State.PROCESSED] * 2
    changed = await event(site, "evt_changed")
    assert changed.state is State.NEEDS_REVIEW
    assert "other arguments" in (changed.reason or "")
    assert await done(site) == ["evt_1", "evt_2"]
    assert len(remote.sink.requests) == 1


async def forgets_once(event: Event, effect: Any) -> None:
    if event.once("credit", "k"):
        await event.tx.execute("INSERT INTO done VALUES ('credited')")


async def forgets_later(event: Event, effect: Any) -> None:
    await event.tx.execute("INSERT INTO done VALUES ('written')")
    event.later(effect, "k")  # type: ignore[unused-coroutine]


async def forgets_call(event: Event, effect: Any) -> None:
    await event.tx.execute("INSERT INTO done VALUES ('written')")
    event.call(effect, "k")  # type: ignore[unused-coroutine]


async def forgets_one_of_two(event: Event, effect: Any) -> None:
    await event.later(effect, "k")
    event.later(effect, "k2")  # type: ignore[unused-coroutine]


async def forgets_to_write(event: Event, effect: Any) -> None:
    await event.later(effect, "k")
    event.tx.execute("INSERT INTO done VALUES ('written')")  # type: ignore[unused-coroutine]


async def forgets_one_write_of_two(event: Event, effect: Any) -> None:
    await event.tx.execute("INSERT INTO done VALUES ('written')")
    task = asyncio.create_task(event.tx.execute("INSERT INTO done VALUES ('too late')"))
    task.add_done_callback(lambda task: task.cancelled() or task.exception())


async def forgets_to_read(event: Event, effect: Any) -> None:
    if event.tx.fetchval("SELECT 1 FROM done WHERE key = 'k'"):
        await event.later(effect, "k")


async def forgets_and_swallows(event: Event, effect: Any) -> None:
    try:
        await forgets_once(event, effect)
    except Exception:
        await event.tx.execute("INSERT INTO done VALUES ('written')")


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (forgets_once, "await event.once"),
        (forgets_later, "did not await event.later"),
        (forgets_call, "did not await event.call"),
        (forgets_one_of_two, "did not await event.later"),
        (forgets_to_write, "did not await event.tx.execute"),
        (forgets_one_write_of_two, "did not await event.tx.execute"),
        (forgets_to_read, "await event.tx.fetchval"),
        (forgets_and_swallows, "did not await event.once"),
    ],
)
async def test_a_forgotten_await_fails_loudly_and_does_nothing(
    site: Site, remote: Remote, mistake: Any, words: str
) -> None:
    @site.inbox.effect(repeat="safe")
    async def mail(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await mistake(event, mail)

    await deliver(site, "evt_1", "t")
    await site.work(later=1)
    history = await site.event("evt_1")
    assert (history.event.state, len(history.attempts)) == (State.FAILED, 1)
    assert words in (history.event.reason or "")
    assert (history.effects, await done(site), remote.sink.requests) == ((), [], [])


async def test_a_call_in_an_open_sqlite_transaction_is_refused(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="safe")
    async def mail(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('written')")
        await event.call(mail, "k")

    await deliver(site, "evt_1", "t")
    await site.work()
    row = await event(site, "evt_1")
    if is_postgres(site):
        assert (row.state, await done(site), len(remote.sink.requests)) == (State.PROCESSED, ["written"], 1)
        return
    assert row.state is State.FAILED
    assert "before the first statement" in (row.reason or "")
    assert (await done(site), remote.sink.requests, await effects(site, "evt_1")) == ([], [], {})


async def test_what_is_no_effect_and_what_is_no_key(site: Site, remote: Remote) -> None:
    caught: list[type[Exception]] = []

    @site.inbox.effect(repeat="safe")
    async def mail(op: Op, to: str) -> str:
        return await remote.post(op)

    async def function(op: Op, to: str) -> None: ...

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        for effect, key, to in ((function, "k", "a"), (mail, True, "a"), (mail, " ", "a"), (mail, "k", 5)):
            for ask in (event.call, event.later):
                try:
                    await ask(effect, key, to)  # type: ignore[arg-type]
                except BadArguments as error:
                    caught.append(type(error))

    await deliver(site, "evt_1", "t")
    await site.work()
    assert len(caught) == 8
    assert await effects(site, "evt_1") == {}


# ── long handlers ────────────────────────────────────────────────────────────


# proves R21, R25
async def test_without_a_transaction(site: Site, remote: Remote) -> None:
    refused: list[str] = []

    @site.inbox.effect(repeat="never")
    async def step(op: Op) -> str:
        return await remote.post(op)

    @site.inbox.effect(repeat="never")
    async def mail(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*", transaction=False)
    async def handle(event: Event) -> str:
        for use in (lambda: event.tx.execute("SELECT 1"), lambda: event.once("credit", "k")):
            try:
                await use()
            except NoTransaction as error:
                refused.append(str(error))
        result = await event.call(step, "k")
        await event.renew()
        await event.later(mail, "k")
        assert remote.sink.received("stripe mail") == []
        if event.attempt == 1:
            raise Retry("once more", after=30)
        return result

    await deliver(site, "evt_1", "t")
    await site.work()
    assert (await event(site, "evt_1")).state is State.RETRYING
    assert set(await effects(site, "evt_1")) == {"step"}
    await finish(site)
    row = await event(site, "evt_1")
    assert (row.state, row.result) == (State.PROCESSED, "stripe step k no. 1")
    assert len(refused) == 4
    assert "transaction=False" in refused[0]
    assert "transaction=False" in refused[1]
    assert [(r.effect, r.performed) for r in remote.sink.requests] == [("stripe step", True), ("stripe mail", True)]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_renew_tells_who_has_lost_the_claim(site: Site, remote: Remote, plain: bool) -> None:
    told: list[type[BaseException]] = []

    @site.inbox.effect(repeat="never")
    async def mail(op: Op) -> str:
        return await remote.post(op)

    on = stripe(site).on("*", transaction=False)
    if plain:

        @on
        def plainly(event: SyncEvent) -> None:
            event.renew()
            event.later(mail, "k")
            asyncio.run(steal(site))
            try:
                event.renew()
            except ClaimLost as error:
                told.append(type(error))

    else:

        @on
        async def handle(event: Event) -> None:
            await event.renew()
            await event.later(mail, "k")
            await steal(site)
            try:
                await event.renew()
            except ClaimLost as error:
                told.append(type(error))

    await deliver(site, "evt_1", "t")
    await site.work()
    assert told == [ClaimLost]
    # It went on all the same: nothing of that is kept.
    assert (await event(site, "evt_1")).state is State.PROCESSING
    assert (await effects(site, "evt_1"), remote.sink.requests) == ({}, [])


async def steal(site: Site) -> None:
    """Another worker has the event now."""
    url = site.inbox.database or ""
    change = "UPDATE {h}events SET claim = claim + 1, worker = 'thief'"
    if is_postgres(site):
        connection = await asyncpg.connect(url)
        await connection.execute(change.replace("{h}", "hookledger."))
        await connection.close()
    else:
        thief = apsw.Connection(url.removeprefix("sqlite:///"))
        thief.set_busy_timeout(5_000)
        thief.execute(change.replace("{h}", ""))
        thief.close()


# ── plain functions ──────────────────────────────────────────────────────────


async def test_plain_handlers_and_plain_effects(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="keyed", window="1d")
    def charge(op: Op, cents: int) -> str:
        assert UUID(str(op.uuid)).version == 4
        return remote.post_plainly(op)

    @site.inbox.effect(repeat="never")
    async def mail(op: Op, to: str) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    def plainly(event: SyncEvent) -> str:
        result = event.call(charge, "k", cents=5)
        if event.once("credit", "k"):
            event.tx.execute("INSERT INTO done VALUES ('credited')")
        event.later(mail, "k", "a@example.test")
        if event.attempt == 1:
            raise Retry("once more")
        return result

    for ident in ("evt_1", "evt_2"):
        await deliver(site, ident, "t")
        await finish(site)
    assert {(row.state, row.result) for row in await site.events()} == {(State.PROCESSED, "stripe charge k no. 1")}
    assert await done(site) == ["credited"]
    assert [r.effect for r in remote.sink.requests] == ["stripe charge", "stripe mail"]


# ── order ────────────────────────────────────────────────────────────────────


# proves R36
async def test_serial_effects_are_done_in_order_for_each_entity(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="keyed", window="1d", serial="customer", retry=QUICK)
    async def tell(op: Op, customer: str, number: int) -> str:
        await asyncio.sleep(random.random() * 0.02)
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        for number in range(4):
            customer = key_of(event)
            await event.later(tell, f"{customer}-{event.key}-{number}", customer, number)

    remote.sink.deduplicates.add("stripe tell")
    order: dict[str, list[str]] = {"anna": [], "bert": [], "carl": []}
    for number in range(4):
        for customer, wanted in order.items():
            ident = f"evt_{customer}{number}"
            wanted += [f"{customer}-{ident}-{n}" for n in range(4)]
            await deliver(site, ident, "t", customer)
            await site.inbox.work(drain=True) if number == 0 else None
    # Some are refused, some end with nobody knowing; whoever comes after waits.
    remote.sink.will("stripe tell", "anna-evt_anna1-1", "busy", "busy")
    remote.sink.will("stripe tell", "anna-evt_anna2-0", "perform and reset")
    remote.sink.will("stripe tell", "bert-evt_bert1-0", "reset", "busy")
    await finish(site)
    for customer, wanted in order.items():
        got = [r.key for r in remote.sink.requests if r.performed and r.key.startswith(customer)]
        by_event = [list(group) for _, group in itertools.groupby(got, key=lambda key: key.split("-")[1])]
        # Within an event in the order asked for, and no event's effects between another's.
        assert sorted(got) == sorted(wanted)
        assert [group for group in by_event if group != sorted(group)] == []
        assert len(by_event) == 4


async def test_one_that_waits_for_an_operator_stops_its_own_entity_only(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never", serial="customer")
    async def tell(op: Op, customer: str) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await event.later(tell, event.key, key_of(event))

    remote.sink.will("stripe tell", "evt_1", "perform and reset")
    for number, customer in enumerate(("anna", "anna", "bert"), 1):
        await deliver(site, f"evt_{number}", "t", customer)
        await site.work()
    assert [(r.key) for r in remote.sink.requests] == ["evt_1", "evt_3"]
    assert (await event(site, "evt_1")).attention
    known = (await effects(site, "evt_1"))["tell"].effect
    async with site.inbox.opened() as store:
        await resolve(site.inbox.context(store), by("ada", "it is there"), known, "happened", "by hand")
    await finish(site)
    assert [(r.key) for r in remote.sink.requests] == ["evt_1", "evt_3", "evt_2"]
    assert not any(row.attention for row in await site.events())


# ── unknown outcomes ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["call", "later"])
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_answer_after_the_time_out_is_recorded(site: Site, remote: Remote, kind: str, plain: bool) -> None:
    declaring = site.inbox.effect(repeat="never", timeout="200ms", grace="5s", name="charge")
    if plain:

        @declaring
        def plainly(op: Op) -> str:
            return remote.post_plainly(op)

        effect: Any = plainly
    else:

        @declaring
        async def charge(op: Op) -> str:
            return await remote.post(op)

        effect = charge

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        if kind == "call":
            await event.tx.execute("INSERT INTO done VALUES ($1)", await event.call(effect, "k"))
        else:
            await event.later(effect, "k")

    remote.sink.will("stripe charge", "k", "wait")
    await deliver(site, "evt_1", "t")
    async with Running(site):

        async def state_is(state: EffectState) -> bool:
            known = await effects(site, "evt_1")
            return "charge" in known and known["charge"].effect.state is state

        await eventually(lambda: state_is(EffectState.UNKNOWN), "the time-out")
        remote.sink.gate.set()
        await eventually(lambda: state_is(EffectState.DONE), "the answer")
    await finish(site)
    known = (await effects(site, "evt_1"))["charge"]
    assert (outcomes(known), known.effect.alert) == (["done"], None)
    # An event that waited for a person goes on by itself, with the result that came late.
    row = await event(site, "evt_1")
    assert (row.state, row.attention) == (State.PROCESSED, False)
    assert await done(site) == (["stripe charge k no. 1"] if kind == "call" else [])
    assert len(remote.sink.requests) == 1


async def test_a_check_is_not_asked_while_the_remote_may_still_be_at_it(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never", timeout="200ms", grace="60s")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @charge.check
    async def look(op: Op) -> bool:
        return await asyncio.to_thread(remote.look_up, op)

    @stripe(site).on("*")
    async def handle(event: Event) -> str | None:
        if event.key != "evt_hasty":
            return await event.call(charge, "k")
        for _ in range(3):  # a handler that does not take unknown for an answer
            try:
                return await event.call(charge, "k")
            except UnknownOutcome:
                continue
        raise Retry("no luck")

    async def unknown() -> bool:
        known = await effects(site, "evt_1")
        return "charge" in known and known["charge"].effect.state is EffectState.UNKNOWN

    # The remote is slow: it performs after the time-out, within the grace.
    remote.sink.will("stripe charge", "k", "wait")
    await deliver(site, "evt_1", "t")
    async with Running(site):
        await eventually(lambda: len(remote.sink.requests) == 1, "the call is on its way")
        await eventually(unknown, "the time-out")
        await deliver(site, "evt_2", "t")  # of the same effect, just when nobody knows
        await deliver(site, "evt_hasty", "t")
        await asyncio.sleep(0.4)
        remote.sink.gate.set()
        await eventually(lambda: len(remote.sink.performed("stripe charge")) == 1, "the remote performs it")

        async def known() -> bool:
            return (await effects(site, "evt_1"))["charge"].effect.state is EffectState.DONE

        await eventually(known, "its answer is recorded")
        site.inbox.clock.offset += 61

        async def over() -> bool:
            return {row.state for row in await site.events()} == {State.PROCESSED}

        await eventually(over, "all is done")
    assert len(remote.sink.performed("stripe charge")) == 1


@pytest.mark.parametrize("kind", ["call", "later"])
async def test_a_right_to_call_that_is_too_old_is_not_used(
    site: Site, remote: Remote, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @site.inbox.effect(repeat="never", timeout="600ms", grace="100ms", retry=QUICK)
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        if kind == "call":
            await event.call(charge, "k")
        else:
            await event.later(charge, "k")

    async with site.inbox.opened() as store:
        ledger = type(store.ledger)
    name = "start" if kind == "call" else "claim"
    real = getattr(ledger, name)
    slow = [0.9]

    async def stall(self: Any, *args: Any) -> Any:
        """The event's lease is a minute, and is kept; the effect's is over when its start is heard of."""
        found = await real(self, *args)
        if found and slow:
            await asyncio.sleep(slow.pop())
        return found

    monkeypatch.setattr(ledger, name, stall)
    await deliver(site, "evt_1", "t")
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.state, row.attempts) == (State.PROCESSED, 1)
    *too_old, last = outcomes(known)
    assert (set(too_old), last) == ({"refused"}, "done")  # a busy machine may be too late several times
    assert len(remote.sink.requests) == 1


async def test_an_effect_that_ends_the_process_is_unknown_and_the_worker_lives(site: Site) -> None:
    @site.inbox.effect(repeat="never")
    async def leaves(op: Op) -> None:
        raise SystemExit(3)

    @site.inbox.effect(repeat="never")
    def leaves_plainly(op: Op) -> None:
        raise SystemExit(3)

    @site.inbox.effect(repeat="never")
    async def cancels(op: Op) -> None:
        raise asyncio.CancelledError

    declared = {effect.name: effect for effect in (leaves, leaves_plainly, cancels)}

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await event.call(declared[event.key], "k")

    for name in declared:
        await deliver(site, name, "t")
    await site.work()
    for name in declared:
        known = (await effects(site, name))[name]
        assert (known.effect.state, outcomes(known)) == (EffectState.UNKNOWN, ["unknown"])
        row = await event(site, name)
        assert (row.state, row.attention) == (State.NEEDS_REVIEW, True)


async def test_a_result_that_cannot_be_kept_does_not_undo_the_call(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="safe")
    async def charge(op: Op) -> Any:
        await remote.post(op)
        return object()

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await event.call(charge, "k")

    for ident in ("evt_1", "evt_2"):
        await deliver(site, ident, "t")
        await finish(site)
        row = await event(site, ident)
        assert row.state is State.FAILED
        assert "result" in (row.reason or "")
    assert len(remote.sink.requests) == 1
    assert (await effects(site, "evt_1"))["charge"].effect.state is EffectState.DONE


@pytest.mark.parametrize("kind", ["call", "later"])
async def test_the_author_says_that_it_did_not_happen(site: Site, remote: Remote, kind: str) -> None:
    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> str:
        if op.call < 3:
            raise Refused("the till is closed", after=1)
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> None:
        await (event.call(charge, "k") if kind == "call" else event.later(charge, "k"))

    await deliver(site, "evt_1", "t")
    await finish(site)
    assert outcomes((await effects(site, "evt_1"))["charge"]) == ["refused", "refused", "done"]
    assert (await event(site, "evt_1")).state is State.PROCESSED
    assert len(remote.sink.requests) == 1


async def test_connection_refused_as_urllib_reports_it(site: Site, remote: Remote) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"

    @site.inbox.effect(repeat="never")
    def charge(op: Op) -> str:
        return remote.post_plainly(op, base=nobody if op.call == 1 else None)

    @stripe(site).on("*")
    async def handle(event: Event) -> str:
        return await event.call(charge, "k")

    await deliver(site, "evt_1", "t")
    await finish(site)
    assert outcomes((await effects(site, "evt_1"))["charge"]) == ["refused", "done"]
    assert (await event(site, "evt_1")).state is State.PROCESSED


# ── a person ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["call", "later"])
@pytest.mark.parametrize("happened", [True, False])
async def test_an_operator_decides(site: Site, remote: Remote, kind: str, happened: bool) -> None:
    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> str | None:
        if kind == "call":
            return await event.call(charge, "k")
        await event.later(charge, "k")
        return None

    remote.sink.will("stripe charge", "k", "perform and reset" if happened else "reset")
    await deliver(site, "evt_1", "t")
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.state, row.attention) == (State.NEEDS_REVIEW if kind == "call" else State.PROCESSED, True)
    assert (known.effect.state, outcomes(known)) == (EffectState.UNKNOWN, [CallOutcome.UNKNOWN])
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        result = "found by hand" if happened else None
        decision: Any = "happened" if happened else "did_not_happen"
        await resolve(context, by("ada", "looked it up"), known.effect, decision, result)
    await finish(site)
    history = await site.event("evt_1")
    assert (history.event.state, history.event.attention) == (State.PROCESSED, False)
    assert len(remote.sink.requests) == (1 if happened else 2)
    assert len({request.operation for request in remote.sink.requests}) == 1
    assert len(remote.sink.performed("stripe charge")) == 1
    if kind == "call":
        assert history.event.result == (result or "stripe charge k no. 1")
    told = [(a.name, a.actor, a.reason, a.subject) for a in history.actions if a.subject]
    assert told == [("resolve", "ada", "looked it up", "charge:k")]


async def test_a_person_who_forgot_the_result_can_give_it(site: Site, remote: Remote) -> None:
    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> str:
        return await remote.post(op)

    @stripe(site).on("*")
    async def handle(event: Event) -> str:
        return await event.call(charge, "k")

    remote.sink.will("stripe charge", "k", "perform and reset")
    await deliver(site, "evt_1", "t")
    await site.work()
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        with pytest.raises(ConfigError, match="needs the result of the call that happened"):
            await resolve(
                context, by("ada", "looked it up"), (await effects(site, "evt_1"))["charge"].effect, "happened"
            )
    assert (await event(site, "evt_1")).state is State.NEEDS_REVIEW
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        await resolve(
            context, by("ada", "the receipt"), (await effects(site, "evt_1"))["charge"].effect, "happened", "ch_1"
        )
    await finish(site)
    row = await event(site, "evt_1")
    assert (row.state, row.result) == (State.PROCESSED, "ch_1")
    assert len(remote.sink.requests) == 1
