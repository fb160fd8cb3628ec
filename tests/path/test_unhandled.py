"""A type that no worker handles is said when a worker starts, and by `lag`: never only that it is late."""

import asyncio
import json
import logging

import pytest
from click.testing import CliRunner

from hookledger import Inbox, State
from hookledger.cli import cli, exits
from hookledger.operate import search
from hookledger.operate.doctor.checks import examine
from hookledger.operate.unhandled import UnhandledWatch
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite


@pytest.fixture
async def shop(site_on: MakeSite, database_url: str) -> Site:
    """Handles `invoice.paid` of one source, and none of the other's events."""
    made = await site_on(database_url)
    stripe = made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    made.inbox.source("github", provider="github", secrets=[SECRET])

    @stripe.on("invoice.paid")
    async def paid(event: object) -> None: ...

    return made


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return [line for line in lines if line.startswith("no live worker")]


async def register(site: Site, worker: str, *patterns: tuple[str, str]) -> None:
    async with site.inbox.opened() as store:
        await store.register(worker, patterns)


async def lag(site: Site) -> dict[str, str | None]:
    async with site.inbox.opened() as store:
        found = await search.lag(site.inbox.context(store))
        return {one.kind.type: one.unhandled for one in found}


async def test_said_when_a_worker_starts(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    await shop.deliver(stripe_event("evt_1", "invoice.paid"))
    await shop.deliver(stripe_event("evt_2", "invoice.voided"))
    await shop.deliver(stripe_event("evt_3", "customer.created"))
    await shop.work()
    types, source = said(caplog)
    assert types == (
        "no live worker handles these types of source 'stripe': customer.created, invoice.voided; they wait 60 min "
        "for one that does, then they are skipped: declare a handler, or limit the source with types="
    )
    assert source == "no live worker has a handler for source 'github': declare one"
    assert await shop.state("evt_2") is State.PENDING


async def test_also_of_what_is_settled_since_a_day(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    """What was skipped for want of a handler is not in the queue any more."""
    await shop.deliver(stripe_event("evt_2", "invoice.voided"))
    async with shop.inbox.opened() as store:
        [waiting] = await store.waiting()
        shop.inbox.clock.offset += 7200
        assert await store.skip_unhandled(waiting.kind, 3600, 10) == 1
    assert await shop.state("evt_2") is State.SKIPPED
    await shop.work()
    assert "'stripe': invoice.voided;" in said(caplog)[0]


async def test_another_worker_handles_it(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    await shop.deliver(stripe_event("evt_2", "invoice.voided"))
    await register(shop, "elsewhere", ("stripe", "invoice.*"), ("github", "push"))
    await shop.work()
    assert said(caplog) == []
    assert await lag(shop) == {"invoice.voided": None}
    await shop.work(later=120)  # not seen for longer than a lease: it is gone
    assert len(said(caplog)) == 2


async def test_what_needs_no_handler(site_on: MakeSite, sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Types that the source leaves out, a source that observes, and what another application receives."""
    site = await site_on(sqlite_url)
    inbox = Inbox(sqlite_url)
    inbox.source("elsewhere", provider="stripe", secrets=[SECRET])
    await Site(inbox).deliver(stripe_event("evt_0"), source="elsewhere")
    await inbox.asgi.stop()
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], types=["invoice.paid"])
    site.inbox.source("watched", provider="stripe", secrets=[SECRET], mode="observe")

    @stripe.on("invoice.paid")
    async def paid(event: object) -> None: ...

    await site.deliver(stripe_event("evt_1", "customer.created"))
    await site.deliver(stripe_event("evt_2", "customer.created"), source="watched")
    await site.work()
    assert said(caplog) == []


async def test_said_of_types_that_are_named(
    site_on: MakeSite, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What `types=` names exactly is expected to come, also if none has come yet."""
    site = await site_on(sqlite_url)
    types = ["invoice.paid", "invoice.voided", "customer.*"]
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET], types=types)
    site.inbox.source("other", provider="stripe", secrets=[SECRET], types=["charge.refunded", "*"])
    site.inbox.source("watched", provider="stripe", secrets=[SECRET], mode="observe", types=["invoice.paid"])

    @stripe.on("invoice.paid")
    async def paid(event: object) -> None: ...

    await site.work()
    other, own = said(caplog)
    assert "source 'other': charge.refunded;" in other
    assert "source 'stripe': invoice.voided;" in own, "a pattern names no type"
    await register(site, "elsewhere", ("stripe", "invoice.*"), ("other", "*"))
    await site.work()
    assert said(caplog) == []


async def test_doctor(shop: Site) -> None:
    await shop.deliver(stripe_event("evt_1", "invoice.paid"))
    await shop.deliver(stripe_event("evt_2", "invoice.voided"))

    async def findings() -> list[str]:
        async with shop.inbox.opened() as store:
            found = await examine(shop.inbox.context(store))
            return [one.says for one in found if one.level == "warn" and "no handler" in one.says]

    assert await findings() == [], "that no worker is alive is said already"
    await register(shop, "elsewhere", ("stripe", "invoice.paid"))
    assert await findings() == ["no handler: events wait, and no live worker handles them: invoice.voided"]
    await register(shop, "elsewhere", ("stripe", "invoice.*"))
    assert await findings() == []


async def test_said_of_types_that_come_later(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each."""
    async with shop.inbox.opened() as store:
        watch = UnhandledWatch(shop.inbox.context(store), shop.inbox.settings.work.unhandled_after)
        await watch.start()
        assert len(said(caplog)) == 1
        running = asyncio.create_task(watch.run(every=0.01))
        await shop.deliver(stripe_event("evt_1", "invoice.paid"))
        await shop.deliver(stripe_event("evt_2", "invoice.voided"))
        while not caplog.records:
            await asyncio.sleep(0.01)
        await shop.deliver(stripe_event("evt_3", "invoice.voided"))
        await shop.deliver(stripe_event("evt_4", "customer.created"))
        while "customer.created" not in caplog.text:
            await asyncio.sleep(0.01)
        running.cancel()
    first, second = said(caplog)
    assert "'stripe': invoice.voided;" in first
    assert "'stripe': customer.created;" in second


async def test_lag(shop: Site) -> None:
    await shop.deliver(stripe_event("evt_1", "invoice.paid"))
    await shop.deliver(stripe_event("evt_2", "invoice.voided"))
    assert await lag(shop) == {"invoice.paid": None, "invoice.voided": "no handler here"}
    await register(shop, "elsewhere", ("stripe", "invoice.paid"))
    assert await lag(shop) == {"invoice.paid": None, "invoice.voided": "no handler"}
    await register(shop, "elsewhere", ("github", "*"))
    assert await lag(shop) == {"invoice.paid": "no handler", "invoice.voided": "no handler"}


async def test_a_worker_that_left_handles_nothing(shop: Site) -> None:
    await shop.deliver(stripe_event("evt_2", "invoice.voided"))
    await register(shop, "elsewhere", ("stripe", "invoice.voided"))
    assert await lag(shop) == {"invoice.voided": None}
    async with shop.inbox.opened() as store:
        await store.leave("elsewhere")
    assert await lag(shop) == {"invoice.voided": "no handler here"}


async def test_lag_without_an_application(shop: Site) -> None:
    """Nothing is known then of what is handled."""
    await shop.deliver(stripe_event("evt_2", "invoice.voided"))
    async with Inbox(shop.inbox.database).opened() as store:
        [one] = await search.lag(Inbox().context(store))
    assert one.unhandled is None


def test_lag_on_the_command_line(sqlite_url: str) -> None:
    async def fill() -> None:
        inbox = Inbox(sqlite_url)
        inbox.source("stripe", provider="stripe", secrets=[SECRET])
        await inbox.migrate()
        await Site(inbox).deliver(stripe_event("evt_2", "invoice.voided"))
        await inbox.asgi.stop()
        await register(Site(inbox), "elsewhere", ("stripe", "invoice.paid"))

    asyncio.run(fill())
    shown = CliRunner().invoke(cli, ["lag", "--database", sqlite_url])
    assert shown.exit_code == exits.OK
    assert "no handler" in next(line for line in shown.stdout.splitlines() if "invoice.voided" in line)
    [one] = json.loads(CliRunner().invoke(cli, ["lag", "--json", "--database", sqlite_url]).stdout)
    assert one["unhandled"] == "no handler"
