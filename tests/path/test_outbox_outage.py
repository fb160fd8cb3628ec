"""The database goes away while calls overrun their time-outs: each effect still ends as its policy says."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest

from hookledger import Event, Op, Refused, RetryPolicy, Seconds
from hookledger.states import EffectState, State
from hookledger.store.sqlite.store import SqliteStore
from tests.asgi_client import Site
from tests.path.conftest import SECRET, MakeSite
from tests.path.remote import Running, deliver, eventually
from tests.services.postgres import Postgres
from tests.soak import amount

pytestmark = pytest.mark.soak
OUTAGES = amount(1, 2, 5)
EACH = 4
"""Effects of each kind for each outage."""
ENDS = ("done", "refused", "unknown")
POLICIES: dict[Literal["safe", "keyed", "accept", "never"], dict[str, Any]] = {
    "safe": {},
    "keyed": {"window": "1h", "serial": "lane"},
    "accept": {},
    "never": {},
}
QUICK = RetryPolicy(attempts=50, initial_delay=Seconds("20ms"), max_delay=Seconds("20ms"))

Outage = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Outage]:
    """Each store in turn, and how it is made unavailable: PostgreSQL is stopped, SQLite locked by somebody else."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres_server")

        @contextlib.asynccontextmanager
        async def stopped() -> AsyncIterator[None]:
            await asyncio.to_thread(server.stop, "fast")
            yield
            await asyncio.to_thread(server.start)

        return server.create_database("outage"), stopped

    path = tmp_path / "inbox.db"
    defaults = SqliteStore.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "wait", 0.1)

    @contextlib.asynccontextmanager
    async def locked() -> AsyncIterator[None]:
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(10_000)
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
        connection.close()

    return f"sqlite:///{path}", locked


class Overrun:
    """Effects whose first call takes longer than its time-out, and ends soon after in one of three ways."""

    def __init__(self, site: Site) -> None:
        self.begun = 0
        self.calls: Counter[str] = Counter()
        self.declared = {policy: self._declare(site, policy, more) for policy, more in POLICIES.items()}

        @site.inbox.sources["stripe"].on("*")
        async def plan(event: Event) -> None:
            policy, end, lane = event.json["data"]["object"]["id"].split(":")
            await event.later(self.declared[policy], event.key, end, f"{end}-{lane}")

    def _declare(self, site: Site, policy: Any, more: dict[str, Any]) -> Any:
        @site.inbox.effect(repeat=policy, name=policy, timeout="1s", grace="2s", retry=QUICK, **more)
        async def effect(op: Op, end: str, lane: str) -> str:
            self.calls[op.effect_key] += 1
            if self.calls[op.effect_key] == 1:
                self.begun += 1
                await asyncio.sleep(1.5)
                if end == "refused":
                    raise Refused("closed")
                if end == "unknown":
                    raise ConnectionResetError
            return end

        return effect


async def stuck(site: Site) -> Counter[str]:
    """Effects that nothing and nobody goes on with, and whose policy says otherwise."""
    found: Counter[str] = Counter()
    async with site.inbox.opened() as store:
        for row in await store.search.events(limit=500):
            history = await store.history(row.id)
            assert history is not None
            [known] = history.effects
            effect, end = known.effect, known.effect.arguments.decode()
            wanted = EffectState.DONE
            if effect.name == "never" and '"unknown"' in end:
                wanted = EffectState.UNKNOWN  # a person decides
            if effect.state is not wanted:
                waits = "due" if effect.due_at else "leased" if effect.leased_until else "stuck"
                found[f"{effect.name} {effect.state} {waits}"] += 1
            if wanted is EffectState.DONE and effect.state is wanted:
                after = await store.history(row.id)  # read since the effect was: until then it may have been unknown
                assert after is not None
                assert (after.event.state, after.event.attention) == (State.PROCESSED, False), effect
    return found


async def test_both_ends_of_an_overrun_call_fall_into_an_outage(
    site_on: MakeSite, database: tuple[str, Outage], caplog: pytest.LogCaptureFixture
) -> None:
    url, outage = database
    work = {
        "poll": "10ms",
        "lease": "5s",
        "outbox": {"concurrency": 1000, "poll": "10ms"},
        "circuit": {"failures": 100_000},
        "retry": {"initial_delay": "10ms", "max_delay": "10ms"},
    }
    site = await site_on(url, {"work": work})
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    overrun = Overrun(site)
    wanted = 0
    async with Running(site):
        for number in range(OUTAGES):
            for policy in POLICIES:
                for end in ENDS:
                    for n in range(EACH):
                        await deliver(site, f"evt_{number}_{policy}_{end}_{n}", "t", f"{policy}:{end}:{number}-{n}")
                        wanted += 1
            await eventually(lambda: overrun.begun == wanted, "every call is under way")  # noqa: B023
            await asyncio.sleep(0.5)
            async with outage():
                await asyncio.sleep(1.2)

        async def over() -> bool:
            return not await stuck(site)

        try:
            await eventually(over, "all is over", 60.0)
        except TimeoutError:
            pytest.fail(f"of {wanted}: {dict(await stuck(site))}")
    ours = [record for record in caplog.records if record.name.startswith("hookledger")]
    failed = [record.message for record in ours if record.exc_info]
    # A handler waits 0.1 s for SQLite's lock, which calls that begin beside it may have: it is tried again.
    assert not [message for message in failed if message != "handler failed"], "an outage is no internal error"
    for key, times in overrun.calls.items():
        if "_never_" in key:
            assert times == (2 if "_refused_" in key else 1), key
