"""What rehearsals say, on a real PostgreSQL, by a worker beside the test; and who rehearses."""

from __future__ import annotations

import asyncio

import pytest

from hookledger import ConfigError, Event, Permanent, Retry, Review, Skip, State
from hookledger.errors import WrongState
from hookledger.identities import operation_key
from hookledger.rehearsals import Ended, StepFate, Write
from hookledger.states import EffectKind, RehearsalState
from tests.contract.conftest import postgres_url, shared_postgres_url  # noqa: F401 - a database, emptied for each test
from tests.path.conftest import SECRET, MakeSite
from tests.path.rehearsing import CREDIT, Shop, labels, make_shop, writes  # noqa: F401 - a fixture
from tests.path.remote import Running, deliver, eventually, finish

# ── what it says ──


async def test_a_processed_event_once_more(shop: Shop) -> None:  # proves R45
    seen: list[tuple[bool, int, int]] = []

    @shop.on()
    async def handle(event: Event) -> str:
        seen.append((event.rehearsal, event.run, event.attempt))
        result = await event.call(shop.charge, event.key, cents=5)
        if await event.once("credit", event.key):
            await event.tx.execute(CREDIT)
        await event.tx.execute("INSERT INTO other.log SELECT 'x' FROM generate_series(1, 3)")
        await event.later(shop.mail, event.key, to="ada")
        await event.renew()
        return result

    await shop.processed()
    found = await shop.rehearse()
    assert found.result is not None
    assert (found.state, found.ended) == (RehearsalState.DONE, Ended.PROCESSED)
    assert found.words == "it would be processed: stripe charge evt no. 1", "the recorded result was given"
    assert labels(found) == [("charge:evt", "done"), ("credit:evt", "done"), ("mail:evt", "done")]
    assert writes(found) == (Write("other.log", 3),)
    assert seen == [(False, 1, 1), (True, 2, 1)]
    history = await shop.site.event("evt")
    assert [(a.name, a.actor, a.reason, a.from_state, a.to_state) for a in history.actions] == [
        ("rehearse", "ada", "why", "processed", "processed")
    ]
    assert history.actions[0].subject == f"rehearsal {found.id}"
    assert (history.event.run, history.event.claim) == (1, (await shop.site.event("evt")).event.claim)


async def test_it_stops_at_the_first_effect_without_an_answer(shop: Shop) -> None:  # proves R45
    broken = True

    @shop.on()
    async def handle(event: Event) -> None:
        if broken and not event.rehearsal:
            raise Permanent("the handler is wrong")
        if await event.once("credit", event.key):
            await event.tx.execute(CREDIT)
        assert not await event.once("credit", event.key), "in the same run it is not the first time any more"
        await event.later(shop.mail, event.key, to="ada")
        await event.later(shop.mail, event.key, to="ada")
        try:
            await event.call(shop.charge, event.key, cents=5)
        except Exception:
            pytest.fail("it went on after the stop")
        await event.tx.execute("DELETE FROM accounts")

    await shop.processed()
    found = await shop.rehearse()
    assert found.ended is Ended.STOPPED
    assert found.words == "charge:evt would be called now, for the first time"
    assert labels(found) == [
        ("credit:evt", "happens"),
        ("credit:evt", "done"),
        ("mail:evt", "planned"),
        ("mail:evt", "stays"),
        ("charge:evt", "called"),
    ]
    assert writes(found) == (Write("accounts", updated=1), Write("audit", 1)), "the trigger's row is counted"
    assert found.result is not None
    identity = shop.charge.identity("stripe", "evt")
    stop = found.result.steps[-1]
    assert (stop.kind, stop.idempotency_key) == (EffectKind.CALL, operation_key(identity, 1))
    assert stop.arguments_digest == shop.charge.keep((), {"cents": 5})[1].hex()


async def test_an_effect_that_is_to_be_repeated(shop: Shop) -> None:  # proves R45, R47
    @shop.on()
    async def handle(event: Event) -> None:
        if await event.once("credit", event.key):
            await event.tx.execute(CREDIT)
        await event.later(shop.mail, event.key, to="ada")
        await event.call(shop.charge, event.key, cents=5)

    await shop.processed()
    found = await shop.rehearse(repeat=["credit", "mail", "charge"])
    assert labels(found) == [("credit:evt", "happens"), ("mail:evt", "planned"), ("charge:evt", "called")]
    assert found.result is not None
    keys = [step.idempotency_key for step in found.result.steps]
    assert keys[1:] == [operation_key(e.identity("stripe", "evt"), 2) for e in (shop.mail, shop.charge)]
    assert writes(found) == (Write("accounts", updated=1), Write("audit", 1))
    assert labels(await shop.rehearse(repeat=["credit"])) == [
        ("credit:evt", "happens"), ("mail:evt", "done"), ("charge:evt", "done")
    ]  # fmt: skip


async def test_other_arguments_need_review(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        await event.call(shop.charge, event.key, cents=6 if event.rehearsal else 5)

    await shop.processed()
    found = await shop.rehearse()
    assert (found.ended, labels(found)) == (Ended.NEEDS_REVIEW, [("charge:evt", "undecided")])
    assert "other arguments" in found.words


async def test_an_unknown_outcome(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        await event.call(shop.mail, event.key, to="ada")

    shop.sink.will("stripe mail", "evt", "perform and fail")
    await shop.processed()
    assert (await shop.site.event("evt")).event.state is State.NEEDS_REVIEW
    found = await shop.rehearse()
    assert (found.ended, labels(found)) == (Ended.STOPPED, [("mail:evt", "undecided")])
    assert "must not be repeated" in found.words


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (Skip("nothing to do"), Ended.SKIPPED),
        (Permanent("no such account"), Ended.WOULD_FAIL),
        (Retry("later"), Ended.WOULD_RETRY),
        (Review("look"), Ended.NEEDS_REVIEW),
        (ConnectionError("down"), Ended.WOULD_RETRY),
    ],
)
async def test_what_a_handler_raises(shop: Shop, error: Exception, ended: Ended) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None:
        await event.tx.execute(CREDIT)
        if event.rehearsal:
            raise error

    await shop.processed()
    found = await shop.rehearse()
    assert found.ended is ended
    assert str(error) in found.words
    assert writes(found) == (Write("accounts", updated=1), Write("audit", 1))


async def test_only_this_transaction_is_counted(shop: Shop) -> None:  # proves R45
    """The server adds up what a connection did since it last told: earlier handlers of the same one are left out."""

    @shop.on()
    async def handle(event: Event) -> None:
        await event.tx.execute(CREDIT)

    await shop.processed()
    async with Running(shop.site):
        for number in range(5):
            await deliver(shop.site, f"more_{number}", "a")
        found = [await shop.ask() for _ in range(3)]
    assert {writes(one) for one in found} == {(Write("accounts", updated=1), Write("audit", 1))}


async def test_a_step_of_each_fate_is_told(shop: Shop) -> None:  # proves R45
    """What the outbox has, and what waits for an open circuit."""

    @shop.on()
    async def handle(event: Event) -> None:
        await event.later(shop.mail, event.key, to="ada")
        if event.rehearsal:
            await event.call(shop.charge, event.key, cents=5)

    shop.sink.will("stripe mail", "evt", "reject")
    await shop.processed()
    async with shop.site.inbox.opened() as store:
        await shop.site.inbox.actions(store, "ada").trip("charge", "down")
    found = await shop.rehearse()
    assert labels(found) == [("mail:evt", "stays"), ("charge:evt", StepFate.WAITS)]
    assert "circuit of charge is open" in found.words


# ── who rehearses ──


async def test_nobody_is_there(shop: Shop) -> None:  # proves R45
    ran = []

    @shop.on()
    async def handle(event: Event) -> None:
        ran.append(event.rehearsal)

    await shop.processed()
    found = await shop.ask(patience=0.3)
    assert (found.state, found.ended) == (RehearsalState.EXPIRED, Ended.REFUSED)
    assert found.words == "no worker that can rehearse it is alive"
    async with Running(shop.site):
        assert (await shop.ask()).ended is Ended.PROCESSED
    assert ran == [False, True], "what has expired is never run"


async def test_a_worker_that_is_stopped_says_so(shop: Shop) -> None:  # proves R45
    there = asyncio.Event()

    @shop.on()
    async def handle(event: Event) -> None:
        await event.tx.execute(CREDIT)
        if event.rehearsal:
            there.set()
            await asyncio.sleep(60)

    await shop.processed()
    before = await shop.dump()
    async with Running(shop.site):
        asked = asyncio.create_task(shop.ask())
        await there.wait()
    found = await asked
    assert (found.state, found.ended) == (RehearsalState.FAILED, Ended.REFUSED)
    assert "stopped" in found.words

    async def nothing_is_left() -> bool:
        return await shop.sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'") == [(0,)]

    await eventually(nothing_is_left, "a transaction")
    assert await shop.dump() == before


async def test_what_cannot_be_rehearsed(shop: Shop, site_on: MakeSite, sqlite_url: str) -> None:  # proves R45
    @shop.on(rehearsable=False)
    async def handle(event: Event) -> None: ...

    await shop.processed()
    with pytest.raises(ConfigError, match="is not declared with rehearsable=True"):
        await shop.ask()
    for options, words in (({"transaction": False}, "nothing could be undone"), ({"batch": 2}, "run on one event")):
        with pytest.raises(ConfigError, match=words):
            shop.on("b", **options)
    site = await site_on(sqlite_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    site.inbox.sources["stripe"].on("a", rehearsable=True)(handle)
    with pytest.raises(ConfigError, match=r"declared rehearsable: a rehearsal needs PostgreSQL"):
        await site.work()


async def test_an_event_that_cannot_be_replayed(shop: Shop) -> None:  # proves R45
    @shop.on()
    async def handle(event: Event) -> None: ...

    await deliver(shop.site, "evt", "a")
    with pytest.raises(WrongState, match="is pending"):
        await shop.ask()
    await finish(shop.site)
    before = await shop.sql("SELECT count(*) FROM hookledger.rehearsals")
    with pytest.raises(Exception, match="no effect 'mail'"):
        await shop.ask(repeat=["mail"])
    assert await shop.sql("SELECT count(*) FROM hookledger.rehearsals") == before
