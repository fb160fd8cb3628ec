"""`event.newer` in handlers: late events never undo newer ones, visibly, on both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any, Literal

import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from hookledger import (
    BadArguments,
    ConfigError,
    Event,
    NoTransaction,
    Op,
    Retry,
    Review,
    Skip,
    State,
    SyncEvent,
)
from hookledger.cli import cli
from hookledger.errors import BadData
from hookledger.model import Outcome
from hookledger.operate import review, search
from hookledger.operate.audit import by
from hookledger.operate.replay import replay
from hookledger.operate.replay.dry_run import DryRunReport
from hookledger.operate.replay.preview import Preview
from hookledger.operate.timeline import timeline
from hookledger.states import AttemptOutcome
from hookledger.store.history import History
from hookledger.store.postgres.transaction import LazyTransaction
from hookledger.store.sqlite.transaction import SqliteTransaction
from tests.asgi_client import Site, stripe_event
from tests.builders import Raw
from tests.contract.adapters.libraries import LIBRARIES, OURS, made
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.test_dry_run import dry_run
from tests.soak import amount

STALE = "stale for subscription sub_1: version 1731 by evt_9 was applied, this is 1720"
UPDATED = "customer.subscription.updated"


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    made_site = await site_on(database_url)
    made_site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made_site


def on_everything(site: Site, stale: Literal["skip", "review"] | None = None, batch: int = 1) -> None:
    """A handler that writes what its event says, if that is the newest; and adds a credit in any case."""

    @site.inbox.sources["stripe"].on("*", stale=stale, batch=batch)
    async def handle(event: Event) -> str:
        if await event.once("credit", event.key):
            await event.tx.execute(f"INSERT INTO done VALUES ('credit {event.key}')")
        if await event.newer("subscription", "sub_1", event.json["version"]):
            await event.tx.execute("DELETE FROM done WHERE what LIKE 'status%'")
            await event.tx.execute(f"INSERT INTO done VALUES ('status {event.key}')")
            return "applied"
        return "stale"


async def deliver(site: Site, ident: str, version: Any, kind: str = UPDATED) -> None:
    assert (await site.deliver(stripe_event(ident, kind, version=version))).status == 202


async def history(site: Site, ident: str) -> History:
    return await site.event(ident)


async def again(site: Site, ident: str) -> None:
    """Replay an event, and work."""
    async with site.inbox.operating() as context:
        await replay.replay(context, by("ada", "why"), (await search.find(context, ident)).event)
    await site.work()


# ── late events ──────────────────────────────────────────────────────────────


# proves R35, R60
async def test_a_late_event_does_not_undo_a_newer_one(site: Site) -> None:
    on_everything(site)
    for ident, version in (("evt_9", 1731), ("evt_8", 1720)):
        await deliver(site, ident, version)
        await site.work()
    assert await done(site) == ["credit evt_8", "credit evt_9", "status evt_9"], "additive effects still happen"
    late = await history(site, "evt_8")
    assert (late.event.state, late.event.result) == (State.PROCESSED, "stale")
    assert [entry.words for entry in timeline(late) if entry.kind == "guard"] == [STALE]
    await again(site, "evt_9")
    await again(site, "evt_8")
    assert await done(site) == ["credit evt_8", "credit evt_9", "status evt_9"]
    assert (await history(site, "evt_9")).event.result == "applied", "a replay of what set it is not stale"
    assert [known.answer.applied for known in (await history(site, "evt_8")).guards] == [False, False]


async def test_plain_handlers_ask_too(site: Site) -> None:
    @site.inbox.sources["stripe"].on("*")
    def handle(event: SyncEvent) -> str:
        return str(event.newer("subscription", 7, (event.json["version"], "2027-01-31")))

    for ident, version in (("evt_9", 2), ("evt_8", 1)):
        await deliver(site, ident, version)
        await site.work()
    assert [(await history(site, ident)).event.result for ident in ("evt_9", "evt_8")] == ["True", "False"]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kinds", [("created", "updated"), ("updated", "deleted"), ("created", "deleted")])
async def test_types_rank_where_the_clock_is_too_coarse(site: Site, kinds: tuple[str, str], swapped: bool) -> None:
    """Stripe's `created` has whole seconds; its contract says which types are first and last."""
    on_everything(site)
    order = reversed(kinds) if swapped else kinds
    for kind in order:
        await deliver(site, f"evt_{kind}", 1_790_000_000, f"customer.subscription.{kind}")
        await site.work()
    assert f"status evt_{kinds[1]}" in await done(site)
    lost = await history(site, f"evt_{kinds[0]}")
    [known] = lost.guards
    assert (known.answer.applied, known.guard is not None and known.guard.ties) == (not swapped, 1)
    if swapped:
        assert known.answer.words.endswith("; a tie: its type ranks before the other's")


async def test_a_batch_asks_in_one_transaction(site: Site) -> None:
    on_everything(site, batch=10)
    for ident, version in (("evt_9", 1731), ("evt_8", 1720), ("evt_7", 1740)):
        await deliver(site, ident, version)
    await site.work()
    assert [what for what in await done(site) if "status" in what] == ["status evt_7"]
    assert [(await history(site, f"evt_{n}")).event.result for n in (9, 8, 7)] == ["applied", "stale", "applied"]


# ── a rule for the whole event ───────────────────────────────────────────────


@pytest.mark.parametrize("stale", ["skip", "review"])
@pytest.mark.parametrize("batch", [1, 10])
async def test_the_first_stale_guard_ends_the_handler(
    site: Site, stale: Literal["skip", "review"], batch: int
) -> None:
    on_everything(site, stale, batch)
    for ident, version in (("evt_9", 1731), ("evt_8", 1720)):
        await deliver(site, ident, version)
        if batch == 1:  # else they are handled in one transaction, and then each alone
            await site.work()
    await site.work()
    assert await done(site) == ["credit evt_9", "status evt_9"], "its credit is rolled back with everything else"
    late = await history(site, "evt_8")
    assert late.event.state is (State.SKIPPED if stale == "skip" else State.NEEDS_REVIEW)
    assert late.event.reason == STALE
    [attempt], [known] = late.attempts, late.guards
    assert (known.answer.words, known.answer.claim) == (STALE, attempt.claim), "what was not applied is on record"
    assert late.effects == ()
    async with site.inbox.opened() as store:
        assert (await store.consistency.report()).imbalances == ()


async def test_calls_that_were_made_stay_recorded(site: Site) -> None:
    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> None: ...

    @site.inbox.sources["stripe"].on("*", stale="skip")
    async def handle(event: Event) -> None:
        await event.call(charge, event.key)
        await event.newer("subscription", "sub_1", event.json["version"])

    for ident, version in (("evt_9", 1731), ("evt_8", 1720)):
        await deliver(site, ident, version)
        await site.work()
    late = await history(site, "evt_8")
    assert (late.event.state, [known.effect.state for known in late.effects]) == (State.SKIPPED, ["done"])


@pytest.mark.parametrize("stale", ["skip", "review"])
async def test_a_handler_that_catches_it_is_ended_all_the_same(site: Site, stale: Literal["skip", "review"]) -> None:
    told: list[str] = []

    @site.inbox.effect(repeat="never")
    async def charge(op: Op) -> None:
        told.append("charged")

    @site.inbox.sources["stripe"].on("*", stale=stale)
    async def handle(event: Event) -> None:
        try:
            await event.newer("subscription", "sub_1", event.json["version"])
        except (Skip, Review):
            told.append("caught")
        await event.tx.execute(f"INSERT INTO done VALUES ('{event.key}')")
        if event.json.get("calls"):
            try:
                await event.call(charge, event.key)
            except (Skip, Review):
                told.append("not called")

    await deliver(site, "evt_9", 1731)
    await site.work()
    for ident, calls in (("evt_8", False), ("evt_7", True)):
        await site.deliver(stripe_event(ident, UPDATED, version=1720, calls=calls))
        await site.work()
        late = await history(site, ident)
        assert (late.event.state, late.event.reason) == (
            State.SKIPPED if stale == "skip" else State.NEEDS_REVIEW,
            STALE,
        )
    assert (await done(site), told) == (["evt_9"], ["caught", "caught", "not called"])


async def test_the_outcome_is_written_even_if_the_answer_cannot_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Any, answer: Any) -> None:
        raise BadData("no room for it")

    for kind in (LazyTransaction, SqliteTransaction):
        monkeypatch.setattr(kind, "note_stale", broken)
    await two(site, "skip")
    late = await history(site, "evt_8")
    assert (late.event.state, late.event.reason, late.guards) == (State.SKIPPED, STALE, ())


async def test_the_outcome_of_a_stale_event_is_fenced(site: Site) -> None:
    """A worker whose event was reclaimed while its handler ran records neither the answer nor the outcome."""

    @site.inbox.sources["stripe"].on("*", stale="skip")
    async def handle(event: Event) -> None:
        try:
            await event.newer("subscription", "sub_1", event.json["version"])
        finally:
            if event.key == "evt_8" and event.attempt == 1:
                async with site.inbox.opened() as store:
                    await store.settle([outcome(event)])

    def outcome(event: Event) -> Outcome:
        return Outcome(event.id, event._claimed.claim, "reschedule", reason="taken", due_in=3600.0)

    await deliver(site, "evt_9", 1731)
    await site.work()
    await deliver(site, "evt_8", 1720)
    if site.inbox.database is not None and site.inbox.database.startswith("sqlite"):
        return  # the handler holds the only write lock
    await site.work()
    late = await history(site, "evt_8")
    assert (late.event.state, late.event.reason, late.guards) == (State.RETRYING, "taken", ())


# ── another kind of version, and what is none ────────────────────────────────


async def test_a_changed_kind_goes_to_review(site: Site) -> None:
    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        try:
            await event.newer("subscription", "sub_1", event.json["version"])
        except Review:
            await event.tx.execute("INSERT INTO done VALUES ('caught')")

    for ident, version in (("evt_9", 1731), ("evt_8", "2027-01-31T09:00:00Z")):
        await deliver(site, ident, version)
        await site.work()
    odd = await history(site, "evt_8")
    assert odd.event.state is State.NEEDS_REVIEW
    first = (await history(site, "evt_9")).event.id
    assert f"1731 by event {first} is a number, this is 2027-01-31T09:00:00Z, a time" in (odd.event.reason or "")
    assert (odd.guards, await done(site)) == ((), [])


HOSTILE: dict[str, Callable[[Event], Any]] = {
    "none": lambda event: event.newer("s", "k", event.json.get("no such field")),
    "nothing": lambda event: event.newer("s", "k", ()),
    "huge": lambda event: event.newer("s", "k", 10**5000),
    "exponent": lambda event: event.newer("s", "k", Decimal("1e999999")),
    "exponent as text": lambda event: event.newer("s", "k", "1e999999"),
    "number as text": lambda event: event.newer("s", "k", "1731"),
    "not a number": lambda event: event.newer("s", "k", float("nan")),
    "bool": lambda event: event.newer("s", "k", True),
    "deep": lambda event: event.newer("s", "k", deep()),
    "dict": lambda event: event.newer("s", "k", event.json),
    "no name": lambda event: event.newer("", "k", 1),
    "blank name": lambda event: event.newer(" ", "k", 1),
    "long name": lambda event: event.newer("s" * 256, "k", 1),
    "name is a number": lambda event: event.newer(7, "k", 1),  # type: ignore[arg-type]
    "surrogate in name": lambda event: event.newer("s\ud800", "k", 1),
    "surrogate in key": lambda event: event.newer("s", "k\udfff", 1),
    "blank key": lambda event: event.newer("s", "", 1),
    "key is none": lambda event: event.newer("s", None, 1),  # type: ignore[arg-type]
    "long key": lambda event: event.newer("s", "k" * 1025, 1),
    "huge key": lambda event: event.newer("s", 10**5000, 1),
}


def deep() -> Any:
    nested: Any = 1
    for _ in range(10_000):
        nested = (nested,)
    return nested


async def test_hostile_requests_fail_the_event_and_say_why(site: Site) -> None:
    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('rolled back')")
        await HOSTILE[event.key](event)

    for ident in HOSTILE:
        await deliver(site, ident, 0)
    await site.work()
    for row in await site.events():
        assert (row.state, row.attempts) == (State.FAILED, 1), row.key
        assert row.reason is not None
        assert row.reason.startswith(BadArguments.__name__), row.reason
        assert len(row.reason) < 300
    assert await done(site) == []


async def test_what_looks_hostile_and_is_not(site: Site) -> None:
    """NUL in a name or key is shown as another character, and is another guard; long keys are cut only for people."""
    keys = ["k\0", "k\ufffd", "k" * 1024, "k" * 1023 + "l", "0", "-0", "' OR 1=1 --"]
    told: list[bool] = []

    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        for name in ("s\0", "s", "s" * 255):
            for key in keys:
                told.append(await event.newer(name, key, event.json["version"]))

    await deliver(site, "evt_9", 2**62)
    await site.work()
    assert told == [True] * 3 * len(keys)
    async with site.inbox.opened() as store:
        assert await Raw(store).count("guards") == await Raw(store).count("guard_answers") == 3 * len(keys)


async def test_without_a_transaction(site: Site) -> None:
    @site.inbox.sources["stripe"].on("*", transaction=False)
    async def handle(event: Event) -> None:
        await event.newer("subscription", "sub_1", 1)

    await deliver(site, "evt_9", 1)
    await site.work()
    [row] = await site.events()
    assert (row.state, NoTransaction.__name__ in (row.reason or "")) == (State.FAILED, True)
    assert "drop transaction=False" in (row.reason or "")


def test_declarations_that_cannot_work(site: Site) -> None:
    source = site.inbox.sources["stripe"]
    with pytest.raises(ConfigError, match='stale is "skip", "review" or nothing'):
        source.on("a", stale="ignore")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="needs the handler's transaction"):
        source.on("a", stale="skip", transaction=False)


async def test_a_forgotten_await(site: Site) -> None:
    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        if event.json["version"] == 1:
            event.newer("subscription", "sub_1", 1)
        elif event.newer("subscription", "sub_1", 1):
            raise AssertionError

    await deliver(site, "evt_9", 1)
    await deliver(site, "evt_8", 2)
    await site.work()
    assert [row.state for row in await site.events()] == [State.FAILED] * 2
    assert all("await" in (row.reason or "") for row in await site.events())


# ── the user's own transactions ──────────────────────────────────────────────


@pytest.mark.parametrize("library", LIBRARIES)
async def test_every_adapter(site_on: MakeSite, postgres_url: str, library: str) -> None:
    site = await site_on(postgres_url)
    source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    plain = library.endswith("-plain")

    async def write(tx: Any, key: str) -> None:
        sql = f"INSERT INTO done VALUES ('{key}')"
        await tx.execute(text(sql) if isinstance(tx, AsyncSession) else sql)

    def write_plainly(tx: Any, key: str) -> None:
        sql = f"INSERT INTO done VALUES ('{key}')"
        tx.execute(text(sql) if isinstance(tx, Session) else sql)

    def handle_plainly(event: SyncEvent[Any]) -> None:
        write_plainly(event.tx, f"before {event.key}")
        if event.newer("subscription", "sub_1", event.json["version"]):
            write_plainly(event.tx, f"status {event.key}")

    async def handle(event: Event[Any]) -> None:
        await write(event.tx, f"before {event.key}")
        if await event.newer("subscription", "sub_1", event.json["version"]):
            await write(event.tx, f"status {event.key}")

    source.on("some")(handle_plainly if plain else handle)
    source.on("all", stale="skip")(handle_plainly if plain else handle)
    async for transactions in made(library, postgres_url):
        site.inbox.transactions = () if transactions is None else (transactions,)
        for ident, kind, version in (("evt_9", "some", 1731), ("evt_8", "some", 1720), ("evt_7", "all", 1720)):
            await deliver(site, ident, version, kind)
            await site.work()
    assert await done(site) == ["before evt_8", "before evt_9", "status evt_9"]
    assert [(await history(site, f"evt_{n}")).event.state for n in (9, 8, 7)] == ["processed", "processed", "skipped"]
    assert (await history(site, "evt_7")).event.reason == STALE
    assert [known.answer.words for known in (await history(site, "evt_8")).guards] == [STALE]


# ── transactions that are in each other's way ────────────────────────────────

ROUNDS = amount(6, 30, 30)


@pytest.fixture
async def crossing(site_on: MakeSite, postgres_url: str) -> AsyncIterator[Site]:
    settings = {"work": {"poll": "10ms", "concurrency": 8, "retry": {"attempts": 1}}}
    site = await site_on(postgres_url, settings)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    async with site.inbox.opened() as store:
        [(name,)] = await Raw(store).run("SELECT quote_ident(current_database())")
        await Raw(store).run(f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'")
        yield site
        await Raw(store).run(f"ALTER DATABASE {name} RESET deadlock_timeout")


@pytest.mark.parametrize("library", [OURS, "sqlalchemy-asyncpg", "psycopg-plain"])
@pytest.mark.parametrize("victim", ["guard", "statement"])
async def test_deadlocks_cost_no_attempt(crossing: Site, postgres_url: str, library: str, victim: str) -> None:
    """Handlers that take two guards, or a guard and a row, in opposite orders; with one attempt for each event."""
    site, met = crossing, asyncio.Barrier(2)
    async with site.inbox.opened() as store:
        await Raw(store).run("CREATE TABLE public.rows (n integer PRIMARY KEY, last text)")
        await Raw(store).run("INSERT INTO public.rows VALUES (1, '')")
    source, deadlocks = site.inbox.sources["stripe"], 0
    loop = asyncio.get_running_loop()

    async def meet(event: Any) -> None:
        """Both hold their first lock before they ask for the second, in the first attempt of a pair."""
        nonlocal deadlocks
        if event._claimed.snoozes:
            deadlocks += 1
        elif event.json["pair"] is not None:
            async with asyncio.timeout(5):
                await met.wait()

    async def handle(event: Event[Any]) -> None:
        for step in event.json["steps"]:
            if step == "row":
                await event.tx.execute(update(event, event.tx))
            else:
                await event.newer("subscription", step, event.json["version"])
            if step == event.json["steps"][0]:
                await meet(event)

    def handle_plainly(event: SyncEvent[Any]) -> None:
        for step in event.json["steps"]:
            if step == "row":
                event.tx.execute(update(event, event.tx))
            else:
                event.newer("subscription", step, event.json["version"])
            if step == event.json["steps"][0]:
                asyncio.run_coroutine_threadsafe(meet(event), loop).result()

    def update(event: Any, tx: Any) -> Any:
        sql = f"UPDATE public.rows SET last = '{event.key}' WHERE n = 1"
        return text(sql) if isinstance(tx, AsyncSession | Session) else sql

    source.on("*")(handle_plainly if library.endswith("-plain") else handle)
    steps = ["a", "b"] if victim == "guard" else ["a", "row"]
    async for transactions in made(library, postgres_url):
        site.inbox.transactions = () if transactions is None else (transactions,)
        for number in range(ROUNDS):
            pair = [
                stripe_event(f"evt_{number}_{n}", "crossing", version=number * 2 + n, steps=order, pair=number)
                for n, order in enumerate((steps, steps[::-1]))
            ]
            for one in pair:
                assert (await site.deliver(one)).status == 202
            for _ in range(40):
                await site.work(later=0.0)
                if not (await counts(site)).keys() - {State.PROCESSED}:
                    break
                await asyncio.sleep(0.05)
    rows = await site.events()
    assert (await counts(site)) == {State.PROCESSED: 2 * ROUNDS}
    async with site.inbox.opened() as store:
        assert {row[0] for row in await Raw(store).run("SELECT DISTINCT attempts FROM events")} == {1}
        outcomes = await Raw(store).run("SELECT outcome, count(*) FROM attempts GROUP BY outcome")
        assert dict(outcomes).keys() <= {AttemptOutcome.PROCESSED, AttemptOutcome.WAITING}
        assert dict(outcomes)[AttemptOutcome.WAITING] == deadlocks > 0, "they did meet"
        [(version,)] = await Raw(store).run("SELECT version FROM guards WHERE key = 'a'")
        assert int(version) == 2 * ROUNDS - 1
        assert (await store.consistency.report()).imbalances == ()
    assert rows


async def counts(site: Site) -> dict[State, int]:
    async with site.inbox.opened() as store:
        return await store.counts()


async def test_a_lock_that_is_not_had_in_time_costs_no_attempt(crossing: Site) -> None:
    site, held = crossing, asyncio.Event()

    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> str:
        if event.key == "waits":
            await event.tx.execute("SET LOCAL lock_timeout = '50ms'")
            await event.newer("subscription", "sub_1", 2)
            return "had it"
        await event.newer("subscription", "sub_1", 1)
        held.set()
        async with asyncio.timeout(60):
            while not (await history(site, "waits")).attempts:
                await asyncio.sleep(0.01)
        return "released it"

    await deliver(site, "holds", 1)
    working = asyncio.create_task(site.inbox.work(drain=True))
    await held.wait()
    await deliver(site, "waits", 2)
    await working
    for _ in range(100):
        await site.work()
        if (await history(site, "waits")).event.state is State.PROCESSED:
            break
        await asyncio.sleep(0.02)
    waited = await history(site, "waits")
    assert (waited.event.state, waited.event.attempts, waited.event.result) == (State.PROCESSED, 1, "had it")
    assert {attempt.outcome for attempt in waited.attempts} == {AttemptOutcome.WAITING, AttemptOutcome.PROCESSED}
    assert "other transactions held what it needs" not in (waited.event.reason or "")


async def test_what_a_handler_decides_about_a_deadlock_counts(crossing: Site) -> None:
    site = crossing

    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        await event.newer("subscription", "sub_1", 1)
        try:
            await event.tx.execute("DO $$ BEGIN RAISE deadlock_detected; END $$")
        except Exception as error:
            if event.key == "swallows":
                return
            raise (Retry("later", after=5) if event.key == "decides" else ValueError("wrapped")) from error

    for ident in ("decides", "wraps", "swallows"):
        await deliver(site, ident, 1)
    await site.work()
    found = {row.key: (row.state, row.snoozes) for row in await site.events()}
    assert found["decides"] == (State.FAILED, 0), "its one attempt is used up"
    assert found["wraps"] == (State.RETRYING, 1)
    assert found["swallows"] == (State.FAILED, 0), "what it kept to itself is not known: only that the end failed"


async def test_a_deadlock_without_a_guard_costs_an_attempt(crossing: Site) -> None:
    @crossing.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        await event.tx.execute("DO $$ BEGIN RAISE deadlock_detected; END $$")

    await deliver(crossing, "evt_9", 1)
    await crossing.work()
    [row] = await crossing.events()
    assert (row.state, row.attempts) == (State.FAILED, 1)


# ── what people see ──────────────────────────────────────────────────────────


async def two(site: Site, stale: Literal["skip", "review"] | None = None) -> None:
    on_everything(site, stale)
    for ident, version in (("evt_9", 1731), ("evt_8", 1720)):
        await deliver(site, ident, version)
        await site.work()


def command(site: Site, *words: str) -> Any:
    done_ = CliRunner().invoke(cli, [*words, "--database", str(site.inbox.database)], catch_exceptions=False)
    assert done_.exit_code == 0, done_.output
    return json.loads(done_.stdout) if "--json" in words else " ".join(done_.stdout.split())


async def test_show_and_its_timeline(site: Site) -> None:
    await two(site)
    shown = await asyncio.to_thread(command, site, "show", "evt_8")
    assert "Guards" in shown
    assert shown.count(STALE) == 2, "in the section, and in the timeline"
    assert "1731 by evt_9" in shown
    entries = await asyncio.to_thread(command, site, "show", "evt_8", "--timeline", "--json")
    [entry] = [entry for entry in entries if entry["kind"] == "guard"]
    assert (entry["what"], entry["words"], entry["guard"]) == ("stale", STALE, "subscription:sub_1")
    values = await asyncio.to_thread(command, site, "show", "evt_9", "--json")
    [known] = values["guards"]
    assert (known["answer"]["applied"], known["guard"]["version"]) == (True, "1731")
    assert values["replay"]["guards"] == [
        {
            "name": "subscription",
            "key": "sub_1",
            "version": "1731",
            "stale": False,
            "words": "version 1731 would be applied to subscription:sub_1",
        }
    ]
    keyed = await asyncio.to_thread(command, site, "show", "evt_8", "--timeline")
    assert "subscription:sub_1" in keyed


async def previewed(site: Site, ident: str) -> Preview:
    async with site.inbox.operating() as context:
        return replay.preview(context, await search.find(context, ident))


@pytest.mark.parametrize(
    ("stale", "word"), [(None, f"{STALE}."), ("skip", 'stale="skip"'), ("review", 'stale="review"')]
)
async def test_a_preview_says_what_would_be_stale(
    site: Site, stale: Literal["skip", "review"] | None, word: str
) -> None:
    await two(site, stale)
    late = await previewed(site, "evt_8")
    assert [(one.stale, one.words) for one in late.guards] == [(True, STALE)]
    assert any(word in reason for reason in late.reasons)
    newest = await previewed(site, "evt_9")
    assert [one.stale for one in newest.guards] == [False]
    assert newest.verdict == "will do"
    await deliver(site, "evt_7", 1740)
    await site.work()
    now = await previewed(site, "evt_9")
    assert [one.stale for one in now.guards] == [True]
    assert now.fingerprint != newest.fingerprint
    assert now.verdict == "will do", "it is no obstacle"
    printed = await asyncio.to_thread(command, site, "replay", "evt_9", "--preview")
    assert "version 1740 by evt_7 was applied, this is 1731" in printed


async def test_a_preview_of_a_changed_kind(site: Site) -> None:
    await two(site)
    async with site.inbox.opened() as store:
        await Raw(store).run("UPDATE guards SET kind = 'time', version = '2027-01-31'")
    [told] = (await previewed(site, "evt_8")).guards
    assert told.words.endswith("the event would need review")


async def test_a_preview_of_an_approval_says_that_the_run_continues(site: Site) -> None:
    """As it does: `event.newer` answers no, or applies a version of another kind, and ends no approved run."""
    await two(site, "review")
    async with site.inbox.operating() as context:
        found = await search.find(context, "evt_8")
        assert found.event.state is State.NEEDS_REVIEW
        [replayed] = [reason for reason in replay.preview(context, found).reasons if STALE in reason]
        assert replayed.endswith('need review, because its handler declares stale="review", unless it is approved.')
        shown = review.preview_approval(context, found)
        [approved] = [reason for reason in shown.reasons if STALE in reason]
        assert (
            approved
            == f'{STALE}: the approved run continues all the same, though its handler declares stale="review".'
        )
        assert shown.fingerprint == replay.preview(context, found).fingerprint, "the API has one preview for both"
        await review.approve(context, by("ada", "it is right"), found.event, shown=shown)
    await site.work()
    assert (await history(site, "evt_8")).event.state is State.PROCESSED
    assert [one.answer.applied for one in (await history(site, "evt_8")).guards] == [False, False]


async def test_a_preview_of_an_approval_with_a_changed_kind(site: Site) -> None:
    await two(site)
    async with site.inbox.opened() as store:
        await Raw(store).run("UPDATE guards SET kind = 'time', version = '2027-01-31'")
        await Raw(store).run(
            "UPDATE events SET state = 'needs_review', finished_at = NULL, reason = 'why' WHERE key = 'evt_8'"
        )
    async with site.inbox.operating() as context:
        found = await search.find(context, "evt_8")
        [told] = replay.preview(context, found).guards
        assert told.words.endswith("the event would need review, unless it is approved")
        [told] = review.preview_approval(context, found).guards
        assert told.words == "version 1720 would be applied to subscription:sub_1"


@pytest.mark.parametrize("stale", [None, "skip"])
async def test_a_dry_run_answers_and_leaves_nothing(site: Site, stale: Literal["skip"] | None) -> None:
    await two(site, stale)
    report: DryRunReport = await dry_run(site, "evt_8")
    asked = [(step.kind, step.name, step.key, step.answer) for step in report.steps if step.kind == "newer"]
    assert asked == [("newer", "subscription", "sub_1", f"false: {STALE}")]
    assert (report.state, report.succeeds) == (State.SKIPPED if stale else State.PROCESSED, True)
    report = await dry_run(site, "evt_9")
    assert report.steps[-1].answer.startswith("true: applied to subscription sub_1: version 1731")


async def test_a_dry_run_meets_its_own_guard(site: Site) -> None:
    @site.inbox.sources["stripe"].on("*")
    async def handle(event: Event) -> None:
        for version in (5, 4):
            await event.newer("subscription", "sub_1", version)

    await deliver(site, "evt_9", 1)
    await site.work()
    async with site.inbox.opened() as store:
        await Raw(store).run("DELETE FROM guards")
    report = await dry_run(site, "evt_9")
    assert [step.answer.partition(":")[0] for step in report.steps] == ["true", "true"]
