"""A dry run of a replay on both databases: it says what a run would come to, and leaves every table as it was."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from hookledger import ConfigError, Event, Op, Permanent, Retry, Review, Skip, State, SyncEvent
from hookledger.errors import NoTransaction, WrongState
from hookledger.operate import search
from hookledger.operate.replay.dry_run import DryRunReport
from hookledger.states import EffectKind
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from tests.asgi_client import Site, stripe_event
from tests.builders import Raw
from tests.contract.adapters.libraries import LIBRARIES, OURS, TABLE, Entry, made
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.remote import deliver, finish

SQLITE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
POSTGRES_TABLES = """SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables
WHERE table_schema IN ('hookledger', 'public')"""


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    made = await site_on(database_url)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


async def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, the application's own too."""
    raw = Raw(store)
    names = await raw.run(SQLITE_TABLES if isinstance(store, SqliteStore) else POSTGRES_TABLES)
    return {name: await raw.all(name) for (name,) in names}


async def dry_run(site: Site, ident: str = "evt_1", *, keeps: bool = False) -> DryRunReport:
    """What it says; nothing is written, unless the handler `keeps` something."""
    async with site.inbox.opened(handlers=1) as store:
        history = await search.find(site.inbox.context(store), ident)
        before = await contents(store)
        assert {"done", "public.done"} & before.keys()
        report = await site.inbox.dry_run(store).run(history)
        after = await contents(store)
        for tables in (before, after):  # a number that was given out stays so: see test_current.py
            del tables["tickets" if "tickets" in tables else "hookledger.tickets"]
        assert (after == before) is not keeps
    return report


async def discarded(site: Site, ident: str = "evt_1", kind: str = "invoice.paid") -> None:
    """An event that no run has processed."""
    await deliver(site, ident, kind)
    async with site.inbox.opened() as store:
        row = (await search.find(site.inbox.context(store), ident)).event
        await store.discard(row.id, row.state, "ada", "never mind")


class Billing:
    """A handler with every kind of effect; counts its calls."""

    def __init__(self, site: Site) -> None:
        self.calls: list[str] = []
        self.credit = "credit"
        self.mail = "mail"

        @site.inbox.effect(repeat="keyed", window="1d")
        async def charge(op: Op, cents: int) -> int:
            self.calls.append(op.name)
            return cents

        @site.inbox.effect(repeat="never")
        async def mail(op: Op, to: str) -> None:
            self.calls.append(op.name)

        @site.inbox.sources["stripe"].on("invoice.paid")
        async def paid(event: Event) -> str:
            cents = await event.call(charge, event.key, cents=500)
            if await event.once(self.credit, event.key):
                await event.tx.execute("INSERT INTO done VALUES ('credit')")
            assert not await event.once(self.credit, event.key), "the second time in one run"
            await event.later(mail, f"{self.mail} {event.key}", to="ada")
            return f"charged {cents} in run {event.run}"


def answers(report: DryRunReport) -> list[tuple[str, str, str]]:
    return [(step.kind, step.name, step.answer) for step in report.steps]


async def test_done_effects_are_answered_from_the_ledger(site: Site) -> None:
    shop = Billing(site)
    await deliver(site, "evt_1", "invoice.paid")
    await finish(site)
    assert shop.calls == ["charge", "mail"]
    report = await dry_run(site)
    assert (report.state, report.run, report.handler.rpartition(".")[2]) == (State.PROCESSED, 2, "paid")
    assert (report.result, report.succeeds) == ("charged 500 in run 2", True)
    assert answers(report) == [
        ("call", "charge", "done: the recorded result"),
        ("once", "credit", "false: done before"),
        ("once", "credit", "false: done before"),
        ("later", "mail", "known, done: nothing new for the outbox"),
    ]
    assert shop.calls == ["charge", "mail"]


async def test_new_writes_and_outbox_entries_are_reported_and_rolled_back(site: Site) -> None:
    shop = Billing(site)
    await deliver(site, "evt_1", "invoice.paid")
    await finish(site)
    shop.credit, shop.mail = "another credit", "another mail"
    report = await dry_run(site)
    assert report.state is State.PROCESSED
    assert answers(report)[1:] == [
        ("once", "another credit", "true: new"),
        ("once", "another credit", "false: done before"),
        ("later", "mail", "new: the outbox would perform it after the commit"),
    ]
    await finish(site)
    assert (shop.calls, await done(site)) == (["charge", "mail"], ["credit"])


async def test_stops_at_a_call_without_a_result(site: Site) -> None:
    shop = Billing(site)
    await discarded(site)
    report = await dry_run(site)
    assert (report.state, report.reason, report.succeeds) == (None, "it would be called", False)
    assert answers(report) == [("call", "charge", "stopped: it would be called")]
    assert shop.calls == []


async def test_handler_cannot_continue_past_the_stop(site: Site) -> None:
    calls, reached = [], []

    @site.inbox.effect(repeat="safe")
    async def charge(op: Op) -> None:
        calls.append(op.key)

    @site.inbox.sources["stripe"].on("tries")
    async def tries(event: Event) -> str:
        try:
            await event.call(charge, event.key)
        except Exception:
            reached.append("fallback")
        reached.append("after")
        return "done"

    @site.inbox.sources["stripe"].on("swallows")
    async def swallows(event: Event) -> str:
        try:
            await event.call(charge, event.key)
        except BaseException:
            await event.later(charge, "another")
        return "done"

    @site.inbox.sources["stripe"].on("gathers")
    async def gathers(event: Event) -> str:
        async with asyncio.TaskGroup() as group:
            for key in ("a", "b"):
                group.create_task(event.call(charge, key))
        return "done"

    for kind in ("tries", "swallows", "gathers"):
        await discarded(site, kind, kind)
        report = await dry_run(site, kind)
        assert (report.state, report.reason) == (None, "it would be called")
        assert {step.kind for step in report.steps} == {EffectKind.CALL}
    assert (calls, reached) == ([], [])


@pytest.mark.parametrize(
    ("repeat", "checked", "words"),
    [
        ("never", False, "its outcome is unknown and it must not be repeated: the event would need review"),
        ("safe", False, 'its outcome is unknown: it would be called again, as repeat="safe" allows'),
        ("never", True, "its outcome is unknown: its check would run first, and decides"),
    ],
    ids=["never", "safe", "checked"],
)
async def test_unknown_outcome_follows_policy(site: Site, repeat: Any, checked: bool, words: str) -> None:
    asked = []

    @site.inbox.effect(repeat=repeat)
    async def charge(op: Op) -> None:
        asked.append("call")
        raise TimeoutError("no answer")

    if checked:

        @charge.check
        async def find(op: Op) -> bool | None:
            asked.append("check")
            return None

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        await event.call(charge, event.key)

    await deliver(site, "evt_1", "invoice.paid")
    await site.work()
    async with site.inbox.opened() as store:
        row = (await site.event("evt_1")).event
        await store.discard(row.id, row.state, "ada", "enough")
    asked.clear()
    report = await dry_run(site)
    assert report.state is None
    assert (report.reason or "").startswith(words)
    assert asked == []


async def test_open_circuit_is_waited_for(site: Site) -> None:
    Billing(site)
    await discarded(site)
    async with site.inbox.opened() as store:
        await store.circuits.trip("charge", "ada", "the bank is down")
    report = await dry_run(site)
    assert report.state is None
    assert "the event would wait: the circuit of charge is open: " in (report.reason or "")


ENDS: dict[str, tuple[Exception | None, State, str]] = {
    "skip": (Skip("a test invoice"), State.SKIPPED, "a test invoice"),
    "permanent": (Permanent("unknown plan"), State.FAILED, "unknown plan"),
    "retry": (Retry("not yet"), State.RETRYING, "Retry: not yet"),
    "review": (Review("too much"), State.NEEDS_REVIEW, "too much"),
    "bug": (KeyError("plan"), State.RETRYING, "KeyError: 'plan'"),
    "bad result": (None, State.FAILED, "a handler returns None, a string or a small dict, not int"),
}


def end(way: str) -> int:
    error = ENDS[way][0]
    if error is not None:
        raise error
    return 7


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("way", ENDS)
async def test_what_would_become_of_the_event(site: Site, way: str, plain: bool) -> None:
    _, state, reason = ENDS[way]

    @site.inbox.sources["stripe"].on("async", batch=10)
    async def handle(event: Event) -> Any:
        await event.tx.execute("INSERT INTO done VALUES ('row')")
        return end(way)

    @site.inbox.sources["stripe"].on("plain")
    def handle_plain(event: SyncEvent) -> Any:
        event.tx.execute("INSERT INTO done VALUES ('row')")
        return end(way)

    await discarded(site, kind="plain" if plain else "async")
    report = await dry_run(site)
    assert report.state is state
    assert reason in (report.reason or "")
    assert report.succeeds is (state is State.SKIPPED)
    assert (report.error is None) is (state is State.SKIPPED)
    if way == "bug":
        assert "test_dry_run.py" in (report.error or ""), "the user's code"


async def test_plain_function_gets_answers_and_is_stopped(site: Site) -> None:
    reached = []

    @site.inbox.effect(repeat="safe")
    async def charge(op: Op) -> str:
        return "paid"

    @site.inbox.sources["stripe"].on("invoice.paid")
    def paid(event: SyncEvent) -> str:
        event.renew()
        assert event.call(charge, "known") == "paid"
        if event.run > 1:
            try:
                event.call(charge, "new")
            except Exception:
                reached.append("fallback")
        return "done"

    await deliver(site, "evt_1", "invoice.paid")
    await site.work()
    report = await dry_run(site)
    assert (report.state, report.reason, reached) == (None, "it would be called", [])
    assert [step.key for step in report.steps] == ["known", "new"]


async def test_a_worker_may_process_the_event_during_its_dry_run(site: Site) -> None:
    running, processed = asyncio.Event(), asyncio.Event()
    dry = False

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> str:
        if dry:
            running.set()
            await processed.wait()
        if await event.once("credit", f"{event.key} {event.run}"):
            await event.tx.execute(f"INSERT INTO done VALUES ('run {event.run}')")
        return "paid"

    await deliver(site, "evt_1", "invoice.paid")
    await site.work()
    dry = True
    async with site.inbox.opened(handlers=1) as store:
        history = await search.find(site.inbox.context(store), "evt_1")
        report = asyncio.create_task(site.inbox.dry_run(store).run(history))
        await asyncio.wait_for(running.wait(), 60)
        dry = False
        row = history.event
        await store.replay(row.id, row.state, "bob", "now", seen=row.claim)
        await site.work()
        assert (await site.event("evt_1")).event.run == 2
        assert await done(site) == ["run 1", "run 2"]
        processed.set()
        found = await asyncio.wait_for(report, 60)
    assert (found.state, found.run) == (State.PROCESSED, 2)
    assert await done(site) == ["run 1", "run 2"]
    assert (await site.event("evt_1")).event.state is State.PROCESSED


async def test_renew_is_harmless_and_current_is_fetched(site: Site) -> None:
    asked = []

    @site.inbox.sources["stripe"].current
    async def fetch(event: Any) -> str:
        asked.append(event.run)
        return "active"

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> str:
        await event.renew()
        return f"{await event.current()}, attempt {event.attempt}, {event.json['id']}"

    await discarded(site)
    report = await dry_run(site)
    assert (report.state, report.result, asked) == (State.PROCESSED, "active, attempt 1, evt_1", [2])


async def test_changed_arguments_need_review(site: Site) -> None:
    price = 500

    @site.inbox.effect(repeat="safe")
    async def charge(op: Op, cents: int) -> None: ...

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        await event.call(charge, event.key, cents=price)

    await deliver(site, "evt_1", "invoice.paid")
    await site.work()
    price = 600
    report = await dry_run(site)
    assert report.state is State.NEEDS_REVIEW
    assert "was asked for before with other arguments" in (report.reason or "")


async def test_handler_that_cancels_itself_is_reported(site: Site) -> None:
    @site.inbox.sources["stripe"].on("invoice.paid")
    async def paid(event: Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    await discarded(site)
    report = await dry_run(site)
    assert (report.state, report.succeeds) == (State.RETRYING, False)
    assert report.reason is not None
    assert "the handler's own code cancelled it" in report.reason


async def test_time_out_is_reported(site: Site) -> None:
    over = threading.Event()

    @site.inbox.sources["stripe"].on("async", timeout=0.2)
    async def slow(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('row')")
        await asyncio.sleep(60)

    @site.inbox.sources["stripe"].on("plain", timeout=0.2)
    def slow_plain(event: SyncEvent) -> None:
        event.tx.execute("INSERT INTO done VALUES ('row')")
        over.wait(60)

    try:
        for kind in ("async", "plain"):
            await discarded(site, kind, kind)
            report = await dry_run(site, kind)
            assert (report.state, "TimeoutError" in (report.reason or "")) == (State.RETRYING, True)
    finally:
        over.set()


async def test_impossible_dry_runs_are_refused(site: Site) -> None:
    ran = []

    @site.inbox.sources["stripe"].on("invoice.paid", transaction=False)
    async def long(event: Event) -> None:
        ran.append(event.key)

    @site.inbox.sources["stripe"].on("invoice.sent")
    async def sent(event: Event) -> None:
        ran.append(event.key)

    await discarded(site, "evt_1", "invoice.paid")
    with pytest.raises(NoTransaction, match="has transaction=False: its writes cannot be rolled back"):
        await dry_run(site, "evt_1")
    await discarded(site, "evt_2", "invoice.made")
    with pytest.raises(ConfigError, match=r"no handler of this application handles 'invoice\.made' of 'stripe'"):
        await dry_run(site, "evt_2")
    await deliver(site, "evt_3", "invoice.sent")
    with pytest.raises(WrongState, match="the event is pending"):
        await dry_run(site, "evt_3")
    await discarded(site, "evt_4", "invoice.sent")
    async with site.inbox.opened() as store:
        row = (await site.event("evt_4")).event
        await store.erasure.erase(row.id, row.state, row.claim, "ada", "asked", key_too=False, whole_request=True)
    with pytest.raises(WrongState, match="there is nothing to process"):
        await dry_run(site, "evt_4")
    assert ran == []


async def test_sqlite_lock_is_limited(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url, {"work": {"poll": "10ms", "transaction_limit": "200ms"}})
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    held, recorded = asyncio.Event(), asyncio.Event()

    @site.inbox.effect(repeat="safe")
    async def charge(op: Op) -> None: ...

    @stripe.on("slow")
    async def slow(event: Event) -> None:
        await event.once("credit", event.key)
        held.set()
        await recorded.wait()
        await event.tx.execute("INSERT INTO done VALUES ('row')")

    @stripe.on("calls")
    async def calls(event: Event) -> None:
        await event.once("credit", event.key)
        await event.call(charge, event.key)

    await discarded(site, "evt_1", "slow")
    await discarded(site, "evt_2", "calls")

    async def arrive() -> None:
        await held.wait()
        assert (await site.deliver(stripe_event("evt_3", "slow"))).status == 202, "while the handler runs"
        recorded.set()

    async with site.inbox.opened(handlers=1) as store, asyncio.TaskGroup() as group:
        group.create_task(arrive())
        history = await search.find(site.inbox.context(store), "evt_1")
        report = await site.inbox.dry_run(store).run(history)
    assert (report.state, "transaction_limit" in (report.reason or "")) == (State.RETRYING, True)
    report = await dry_run(site, "evt_2")
    assert "would hold SQLite's write lock" in (report.reason or "")
    assert await done(site) == []


# ── the application's own library ──


@pytest.fixture(params=[f"sqlite-{OURS}", *(f"postgres-{name}" for name in LIBRARIES)])
async def library(request: pytest.FixtureRequest, site_on: MakeSite) -> AsyncIterator[Site]:
    store, _, name = request.param.partition("-")
    url = request.getfixturevalue(f"{store}_url")
    site = await site_on(url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    async for transactions in made(name, url):
        site.inbox.transactions = () if transactions is None else (transactions,)
        yield site


def declare(site: Site, *statements: str) -> None:
    """A handler that asks for effects and runs these, as its library has it."""

    @site.inbox.effect(repeat="safe")
    async def mail(op: Op) -> None: ...

    plain = any(transactions.plain for transactions in site.inbox.transactions)
    on = site.inbox.sources["stripe"].on("invoice.paid")

    async def handle(event: Event[Any]) -> None:
        assert await event.once("credit", event.key)
        await event.later(mail, event.key)
        for sql in statements:
            await event.tx.execute(text(sql) if isinstance(event.tx, AsyncSession) else sql)

    def handle_plain(event: SyncEvent[Any]) -> None:
        assert event.once("credit", event.key)
        event.later(mail, event.key)
        for sql in statements:
            event.tx.execute(text(sql) if isinstance(event.tx, Session) else sql)

    on(handle_plain if plain else handle)


async def test_every_library_rolls_back(library: Site) -> None:
    declare(library, "INSERT INTO done VALUES ('row')")
    await discarded(library)
    for _ in range(3):  # a connection that was not given back would be missed
        report = await dry_run(library)
        assert (report.state, report.alert) == (State.PROCESSED, None)


async def test_handler_that_commits_is_reported(library: Site) -> None:
    declare(library, "INSERT INTO done VALUES ('row')", "COMMIT")
    await discarded(library)
    report = await dry_run(library, keeps=True)
    assert (report.state, report.succeeds) == (State.NEEDS_REVIEW, False)
    assert "writes that it committed are not rolled back" in (report.alert or "")
    assert await done(library) == ["row"]
    assert (await library.event("evt_1")).effects == (), "nothing that a run would skip, or the outbox perform"


@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK AND CHAIN", "ROLLBACK; BEGIN"])
async def test_handler_that_ends_its_transaction_is_reported(site_on: MakeSite, postgres_url: str, end: str) -> None:
    """Whatever it begins instead is rolled back too, but what it committed in between could not be."""
    site = await site_on(postgres_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    declare(site, end, "INSERT INTO done VALUES ('row')", *(["COMMIT"] if end != "ROLLBACK" else []))
    await discarded(site)
    report = await dry_run(site, keeps=True)
    assert (report.state, report.succeeds) == (State.NEEDS_REVIEW, False)
    assert "writes that it committed are not rolled back" in (report.alert or "")
    assert await done(site) == ["row"]


async def test_constraints_that_wait_for_the_commit_are_checked(site_on: MakeSite, postgres_url: str) -> None:
    site = await site_on(postgres_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    unique = "CREATE TABLE public.deferred (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    async with site.inbox.opened() as store:
        await Raw(store).run(unique)
    declare(site, "INSERT INTO deferred VALUES (1), (1)")
    await discarded(site)
    report = await dry_run(site)
    assert (report.state, "UniqueViolation" in (report.reason or "")) == (State.RETRYING, True)


async def test_pending_objects_of_a_session_are_flushed(site_on: MakeSite, postgres_url: str) -> None:
    site = await site_on(postgres_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    async with site.inbox.opened() as store:
        await Raw(store).run(TABLE)
        await Raw(store).run("INSERT INTO public.ledger VALUES ('credit')")

    @stripe.on("invoice.paid")
    async def paid(event: Event[AsyncSession]) -> None:
        event.tx.add(Entry(entry="credit"))

    await discarded(site)
    async for transactions in made("sqlalchemy-asyncpg", postgres_url):
        assert transactions is not None
        site.inbox.transactions = (transactions,)
        report = await dry_run(site)
        assert (report.state, "IntegrityError" in (report.reason or "")) == (State.RETRYING, True)
