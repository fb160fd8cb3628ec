"""One busy source does not starve the others: with real workers, on each store."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from hookledger import Event, Inbox, State
from hookledger.cli import cli, exits
from hookledger.contrib.psycopg import AsyncConnections
from hookledger.model import Arrival, Pattern
from hookledger.operate import pauses, search
from hookledger.operate.audit import by
from hookledger.operate.doctor.checks import examine
from hookledger.store.ops.filters import Filter
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.store import SqliteStore
from hookledger.work.loop import Worker
from tests import soak
from tests.asgi_client import Site
from tests.builders import Raw, delivered
from tests.path.conftest import SECRET, MakeSite

BACKLOG = soak.amount(5_000, 20_000, 200_000)


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    """With sources `a`, `b` and `c` and no handlers."""
    made = await site_on(database_url)
    for name in "abc":
        made.inbox.source(name, provider="stripe", secrets=[SECRET])
    return made


async def fill(store: Store, source: str, count: int, *types: str) -> None:
    """Record so many events, of each of these types in turn."""
    types = types or ("t",)
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        await store.record(
            [delivered(f"{source}_{n}", b"{}", source=source, type=types[n % len(types)]) for n in numbers]
        )


@asynccontextmanager
async def working(inbox: Inbox, **options: Any) -> AsyncIterator[Worker]:
    """A worker beside the test, stopped at its end."""
    started: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(inbox.work(started=started.set_result, **options))
    worker = await started
    try:
        yield worker
    finally:
        worker.stop()
        await task


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


# proves R72
@pytest.mark.soak
async def test_an_event_overtakes_the_backlog_of_another_source(site: Site) -> None:
    """Processed before the next hundred of a source that has thousands waiting; five times."""
    done: list[str] = []

    @site.inbox.sources["a"].on("*")
    @site.inbox.sources["b"].on("*")
    async def handle(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ('x')")
        done.append(event.key)

    async with site.inbox.opened() as store:
        await fill(store, "a", BACKLOG)
        async with working(site.inbox):
            for n in range(5):
                await until(lambda n=n: len(done) >= 300 * n + 200)
                await store.record([delivered(f"b_{n}", source="b")])
                before = len(done)
                await until(lambda n=n: f"b_{n}" in done)
                assert done.index(f"b_{n}") - before < 100
                assert BACKLOG - len(done) > 100, "or it proves nothing"


# proves R72
async def test_an_event_overtakes_the_backlog_of_another_entity(site_on: MakeSite, database_url: str) -> None:
    """Of the same type, where events are ordered: an entity has one event at a time that may be claimed."""
    site = await site_on(database_url)
    source = site.inbox.source("a", provider="stripe", secrets=[SECRET])
    done: list[str] = []

    @source.on("*")
    async def handle(event: Event) -> None:
        done.append(event.key)

    def of(entity: str, key: str) -> Arrival:
        return delivered(key, key.encode(), source="a", type="t", entity=entity, ordered=True, order_at=1.0)

    async with site.inbox.opened() as store:
        await store.record([of("busy", f"busy_{n}") for n in range(500)])
        async with working(site.inbox):
            for n in range(3):
                await until(lambda n=n: len(done) >= 50 * n + 10)
                await store.record([of(f"other_{n}", f"other_{n}")])
                before = len(done)
                await until(lambda n=n: f"other_{n}" in done)
                assert done.index(f"other_{n}") - before < 40
            assert len(done) < 400, "or it proves nothing"


async def test_weights(site_on: MakeSite, database_url: str) -> None:
    """Three of one for one of the other, as long as both have events due."""
    site = await site_on(database_url)
    done: list[str] = []
    for name, weight in (("a", 3), ("b", 1)):
        source = site.inbox.source(name, provider="stripe", secrets=[SECRET], weight=weight)

        @source.on("*")
        async def handle(event: Event) -> None:
            done.append(event.source)

    async with site.inbox.opened() as store:
        await fill(store, "b", 400)
        await fill(store, "a", 1200)
    await site.work()
    assert 540 < Counter(done[:800])["a"] < 660
    assert Counter(done) == {"a": 1200, "b": 400}


async def test_a_source_with_a_thousand_types_keeps_none_out(site: Site) -> None:
    """Neither the event of another source, which came last, nor any of its own types."""
    done: list[str] = []

    @site.inbox.sources["a"].on("*")
    @site.inbox.sources["b"].on("*")
    async def handle(event: Event) -> None:
        done.append(f"{event.source} {event.type}")

    async with site.inbox.opened() as store:
        await fill(store, "a", 3000, *(f"t{n:03}" for n in range(1000)))
        await fill(store, "b", 1)
    await site.work()
    assert "b t" in done[:100]
    assert len(set(done[:2700])) == 1001, "each type has its turn"
    assert len(done) == 3001


@pytest.mark.parametrize("idle", [False, True], ids=["one source", "an idle one too"])
async def test_claims_are_few_and_looks_too(site: Site, monkeypatch: pytest.MonkeyPatch, idle: bool) -> None:
    """Each costs a round trip, on SQLite a commit. Only a source that may have got something needs more looks."""
    calls: Counter[str] = Counter()
    kind = PostgresStore if "postgres" in (site.inbox.database or "") else SqliteStore

    def count(name: str) -> None:
        original = getattr(kind, name)

        async def counted(self: Store, *args: Any) -> Any:
            calls[name] += 1
            return await original(self, *args)

        monkeypatch.setattr(kind, name, counted)

    for name in "ab" if idle else "a":

        @site.inbox.sources[name].on("*")
        async def handle(event: Event) -> None: ...

    async with site.inbox.opened() as store:
        await fill(store, "a", 2000)
    count("waiting")
    count("claim_shares")
    await site.work()
    assert calls["claim_shares"] <= 2000 / 16
    assert calls["waiting"] <= (2000 / 16 if idle else 60)


# ── limits of a source ──


class Gauge:
    """How many handlers of each source run, and the most that ever did."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, source: str) -> AsyncIterator[None]:
        self.running[source] += 1
        self.most[source] = max(self.most[source], self.running[source])
        await asyncio.sleep(0.002)
        yield
        self.running[source] -= 1


# proves R72
async def test_no_more_handlers_of_a_source_run_than_it_allows(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    gauge = Gauge()
    for name, limit in (("a", 2), ("b", None)):
        source = site.inbox.source(name, provider="stripe", secrets=[SECRET], max_running=limit)

        @source.on("*")
        async def handle(event: Event) -> None:
            async with gauge.one(event.source):
                pass

        @source.on("batched", batch=7)
        async def handle_several(event: Event) -> None:
            async with gauge.one(event.source):
                pass

    async with site.inbox.opened() as store:
        await fill(store, "a", 150, "t", "batched")
        await fill(store, "b", 150, "t", "batched")
    await site.work()
    assert gauge.most["a"] == 2
    assert gauge.most["b"] > 4
    async with site.inbox.opened() as store:
        assert await store.counts() == {State.PROCESSED: 300}


async def test_a_source_at_its_limit_keeps_no_slot_and_no_claim_of_others(
    site_on: MakeSite, database_url: str
) -> None:
    """Its handlers hang, and another source's backlog is processed. What it claimed and did not start is released."""
    site = await site_on(database_url, {"work": {"poll": "10ms", "shutdown_timeout": "100ms"}})
    slow = site.inbox.source("a", provider="stripe", secrets=[SECRET], max_running=3)
    quick = site.inbox.source("b", provider="stripe", secrets=[SECRET])
    started: list[str] = []
    done: list[str] = []

    @slow.on("*")
    async def hang(event: Event) -> None:
        started.append(event.key)
        await asyncio.Event().wait()

    @quick.on("*")
    async def handle(event: Event) -> None:
        done.append(event.key)

    async with site.inbox.opened() as store:
        await fill(store, "a", 200)
        await fill(store, "b", 300)
        async with working(site.inbox):
            await until(lambda: len(done) == 300)
        assert len(started) == 3
        assert await store.counts() == {State.PENDING: 197, State.RETRYING: 3, State.PROCESSED: 300}
        rows = await store.search.events(Filter("a", states=(State.PENDING,)), limit=500)
        assert {row.attempts for row in rows} == {0}


async def test_a_limit_within_the_limit_of_a_pool(site_on: MakeSite, postgres_url: str) -> None:
    """Two of one source and four connections: the other source gets at most four, and two if the first has two."""
    site = await site_on(postgres_url)
    gauge = Gauge()
    for name, limit in (("a", 2), ("b", None)):
        source = site.inbox.source(name, provider="stripe", secrets=[SECRET], max_running=limit)

        @source.on("*")
        async def handle(event: Event[AsyncConnection[Any]]) -> None:
            async with gauge.one(event.source), gauge.one("both"):
                await event.tx.execute("SELECT 1")

    async with site.inbox.opened() as store:
        await fill(store, "a", 60)
        await fill(store, "b", 60)
    async with AsyncConnectionPool(postgres_url, min_size=4, max_size=4, timeout=5.0) as pool:
        await pool.wait(60)
        site.inbox.transactions = (AsyncConnections(pool),)
        await site.work()
    assert gauge.most == {"a": 2, "b": gauge.most["b"], "both": 4}
    assert {(row.state, row.attempts) for row in await site.events()} == {(State.PROCESSED, 1)}


# ── pauses, poison ──


async def test_a_pause_of_the_busy_source_frees_the_worker(site: Site) -> None:
    done: list[str] = []

    @site.inbox.sources["a"].on("*")
    @site.inbox.sources["b"].on("*")
    async def handle(event: Event) -> None:
        done.append(event.source)

    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        await fill(store, "a", 600)
        await fill(store, "b", 50)
        await pauses.pause(context, by("ada", "broken"), "a")
        await site.work()
        assert done == ["b"] * 50
        await pauses.resume(context, by("ada", "works"), "a")
        await site.work()
        assert Counter(done) == {"a": 600, "b": 50}


async def test_poison_events_take_turns_with_the_others(site: Site) -> None:
    """An event that crashed its workers runs alone; between two of them others run, and each source has its turn."""
    order: list[str] = []
    running: set[str] = set()
    beside: list[set[str]] = []

    @site.inbox.sources["a"].on("*")
    @site.inbox.sources["b"].on("*")
    @site.inbox.sources["c"].on("*")
    async def handle(event: Event) -> None:
        running.add(event.key)
        order.append(event.key)
        await asyncio.sleep(0.002)
        if running & poison and len(running) > 1:
            beside.append(set(running))
        running.discard(event.key)

    poison = {*(f"a_{n}" for n in range(5)), "b_0"}
    async with site.inbox.opened() as store:
        await fill(store, "a", 5)
        await fill(store, "b", 1)
        await Raw(store).run("UPDATE events SET crashes = 2")
        await fill(store, "c", 3)
    await site.work()
    assert beside == []
    alone = [key for key in order if key in poison]
    assert alone.index("b_0") == 1, "the other source's turn"
    assert order.index("c_0") < order.index(alone[1]), "not behind every poison event"
    assert len(order) == 9


# ── dedicated workers ──


async def test_a_dedicated_worker_leaves_the_rest_to_others(site: Site) -> None:
    done: list[str] = []

    @site.inbox.sources["a"].on("*")
    @site.inbox.sources["b"].on("*")
    async def handle(event: Event) -> None:
        done.append(f"{event.source} {event.type}")

    async with site.inbox.opened() as store:
        for name in "ab":
            await fill(store, name, 30, "invoice.paid", "invoice.made", "charge")
        await site.inbox.work(drain=True, sources=["b"], types=["invoice.*"])
        assert Counter(done) == {"b invoice.paid": 10, "b invoice.made": 10}
        [worker] = await store.workers()
        assert worker.handles == (Pattern("b", "invoice.*"),)
        await site.inbox.work(drain=True, types=["charge"])
        assert set(done) == {"b invoice.paid", "b invoice.made", "a charge", "b charge"}
        await site.work()
    assert len(done) == 60


async def test_doctor_and_lag_see_what_dedicated_workers_leave(site: Site) -> None:
    for name in "ab":

        @site.inbox.sources[name].on("*")
        async def handle(event: Event) -> None: ...

    async with site.inbox.opened() as store:
        await fill(store, "a", 1)
        context = site.inbox.context(store)

        async def findings(worker: Worker) -> list[str]:
            while worker.name not in {one.id for one in await store.workers()}:
                await asyncio.sleep(0.01)
            return [one.says for one in await examine(context) if one.about == "source a" and one.level != "ok"]

        async with working(site.inbox, sources=["b"]) as worker:
            [says] = await findings(worker)
            assert says.startswith("no live worker serves it, and events are due")
            assert [one.unhandled for one in await search.lag(context)] == ["no handler"]
            async with working(site.inbox, sources=["a"], types=["u*"]) as another:
                assert await findings(another) == ["no handler: events wait, and no live worker handles them: t"]
            async with working(site.inbox, sources=["a"]) as another:
                assert await findings(another) == []


async def test_what_another_worker_is_dedicated_to_is_not_skipped(site: Site) -> None:
    """Nor what this application handles, though its worker is dedicated to something else."""

    @site.inbox.sources["a"].on("*")
    async def handle(event: Event) -> None: ...

    @site.inbox.sources["b"].on("*")
    async def handle_other(event: Event) -> None: ...

    other = Inbox(site.inbox.database, clock=site.inbox.clock)
    async with site.inbox.opened() as store:
        for name in "abc":
            await fill(store, name, 1)
        site.inbox.clock.offset += 7200
        await store.register("dedicated", site.inbox.routes.only(["b"], []).handles())
        assert await site.inbox.lease_reclaimer(store).skip_unhandled() == 1
        assert await other.lease_reclaimer(store).skip_unhandled() == 1
        states = {row.source: row.state for row in await store.search.events()}
    assert states == {"a": State.SKIPPED, "b": State.PENDING, "c": State.SKIPPED}


@pytest.fixture
def own_signals() -> Iterator[None]:
    """A worker in this process handles the signals that end it, and would do so after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_work_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_signals: None) -> None:
    """It says what it works on, and that nothing matches."""
    (tmp_path / "dedicated_shop.py").write_text(  # imported here: no other test has a module of this name
        "from hookledger import Inbox\n"
        f"inbox = Inbox('sqlite:///{tmp_path}/shop.db')\n"
        f"shop = inbox.source('shop', provider='stripe', secrets=['{SECRET}'])\n"
        f"other = inbox.source('other', provider='stripe', secrets=['{SECRET}'])\n"
        "@other.on('*')\n@shop.on('invoice.*')\nasync def handle(event): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    runner, app = CliRunner(), ["--app", "dedicated_shop:inbox"]
    assert runner.invoke(cli, ["migrate", *app]).exit_code == exits.OK
    worked = runner.invoke(cli, ["work", "--drain", "--source", "shop", "--type", "invoice.paid", *app])
    assert worked.exit_code == exits.OK, worked.output
    assert "Working on shop: invoice.paid; 16 concurrently." in worked.stderr
    wrong = runner.invoke(cli, ["work", "--drain", "--source", "shop", "--type", "charge.*", *app])
    assert (
        "cannot be dedicated to source 'shop': no handler matches; the handlers are: other: *, shop: invoice.*"
        in (str(wrong.exception))
    )
