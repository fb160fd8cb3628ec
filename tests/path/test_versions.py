"""Versions from delivery to handler: workers of different versions, and a version that none of them takes."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from hookledger import Event, Inbox, Source, State, SyncEvent
from hookledger.cli import cli
from hookledger.model import Kind
from hookledger.operate import search
from hookledger.operate.doctor.checks import examine
from hookledger.operate.timeline import timeline
from hookledger.store.ops.filters import Filter
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite

OLD, NEW = "2023-10-16", "2024-06-20"
HOUR = 3600.0


def versioned(site: Site) -> Source:
    return site.inbox.source("stripe", provider="stripe", secrets=[SECRET], version="contract")


async def deliver(site: Site, *given: tuple[str, str | None]) -> None:
    """Events with these keys and versions."""
    for key, version in given:
        await site.deliver(stripe_event(key, api_version=version))


async def states(site: Site) -> dict[str, State]:
    return {row.key: row.state for row in await site.events()}


async def test_each_version_has_its_handler(site_on: MakeSite, database_url: str) -> None:
    """Async or plain, in batches and one by one; what no more exact handler takes goes to that without one."""
    site = await site_on(database_url)
    stripe = versioned(site)
    seen: list[tuple[str, str, str]] = []

    @stripe.on("invoice.paid", version="2024-*", batch=10)
    async def new(event: Event) -> None:
        seen.append(("new", event.key, event.version))

    @stripe.on("invoice.paid", version=OLD)
    def old(event: SyncEvent) -> None:
        seen.append(("old", event.key, event.version))

    @stripe.on("invoice.paid")
    async def other(event: Event) -> None:
        seen.append(("other", event.key, event.version))

    await deliver(site, ("a", OLD), ("b", NEW), ("c", "2022-08-01"), ("d", None), ("e", "2024-01-01"))
    await site.work()
    assert sorted(seen) == [
        ("new", "b", NEW),
        ("new", "e", "2024-01-01"),
        ("old", "a", OLD),
        ("other", "c", "2022-08-01"),
        ("other", "d", ""),
    ]
    assert set((await states(site)).values()) == {State.PROCESSED}


# proves R40
async def test_a_version_without_a_handler_waits_until_there_is_one(
    site_on: MakeSite, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However long: it is shown and counted, and never skipped by time. A type that no worker handles in any version
    is skipped as before."""
    site = await site_on(database_url)
    stripe = versioned(site)
    seen: list[str] = []

    @stripe.on("invoice.paid", version=OLD)
    async def old(event: Event) -> None:
        seen.append(event.key)

    await deliver(site, ("a", OLD), ("b", NEW), ("c", NEW), ("d", None))
    await site.deliver(stripe_event("e", "customer.created", api_version=OLD))
    await site.work()
    lines = [line for line in caplog.messages if line.startswith("no live worker")]
    assert lines == [
        "no live worker handles these types of source 'stripe': customer.created; they wait 60 min for one that does,"
        " then they are skipped: declare a handler, or limit the source with types=",
        "no live worker handles these versions of source 'stripe': invoice.paid without a version, invoice.paid in "
        "version 2024-06-20; they wait for one that does: declare a handler with version=, or one without it, which "
        "takes every version",
    ]
    async with site.inbox.opened() as store:
        context = site.inbox.context(store)
        await store.register("w", site.inbox.routes.handles())
        lag = {one.kind: (one.pending, one.unhandled) for one in await search.lag(context)}
        assert lag == {
            Kind("stripe", "invoice.paid", NEW): (2, "no handler of this version"),
            Kind("stripe", "invoice.paid", ""): (1, "no handler of this version"),
            Kind("stripe", "customer.created", OLD): (1, "no handler"),
        }
        found = [one.says for one in await examine(context) if one.says.startswith("no handler of this version")]
        assert found == [
            "no handler of this version: events wait until there is one, and no live worker handles them: "
            "invoice.paid in version 2024-06-20 (2), invoice.paid without a version (1)"
        ]
        reclaimer = site.inbox.lease_reclaimer(store)
        site.inbox.clock.offset += 30 * 24 * HOUR
        await store.register("w", site.inbox.routes.handles())
        assert await reclaimer.skip_unhandled() == 1
    assert await states(site) == {
        "a": State.PROCESSED,
        "b": State.PENDING,
        "c": State.PENDING,
        "d": State.PENDING,
        "e": State.SKIPPED,
    }
    stripe.on("invoice.paid", version="2024-*")(old)
    await site.work()
    assert seen == ["a", "b", "c"]


async def test_a_version_is_shown_and_found(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    versioned(site)
    await deliver(site, ("a", OLD), ("b", NEW), ("c", None))
    history = await site.event("b")
    assert history.event.version == NEW
    assert [entry.words for entry in timeline(history) if entry.kind == "delivery"] == [f"version {NEW}"]
    async with site.inbox.opened() as store:
        for wanted, keys in ((NEW, ["b"]), ("2023-*", ["a"]), ("*", ["b", "a"])):
            rows = await store.search.events(Filter(source="stripe", version=wanted))
            assert [row.key for row in rows] == keys

    async def run(*args: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, cli, [*args, "--database", database_url])
        assert done.exit_code == 0, done.output
        return done.stdout

    listed = json.loads(await run("events", "--version", "2024-*", "--json"))
    assert [row["key"] for row in listed] == ["b"]
    assert _line(await run("show", "b"), "version") == ["version", NEW]
    lag = await run("lag")
    assert "version" in lag.splitlines()[0]
    assert sum(NEW in line for line in lag.splitlines()) == 1


def _line(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(name))


async def test_a_receiver_needs_no_application(site_on: MakeSite, database_url: str) -> None:
    """The rule is one of the source, in the file; workers with the handlers of two versions run side by side."""
    receiver = await site_on(database_url)
    versioned(receiver)
    await deliver(receiver, ("a", OLD), ("b", NEW))
    seen: list[tuple[str, str]] = []

    def worker(version: str) -> Inbox:
        inbox = Inbox(database_url)
        source = inbox.source("stripe", provider="stripe", secrets=[SECRET], version="contract")

        @source.on("invoice.paid", version=version)
        async def paid(event: Event) -> None:
            seen.append((version, event.key))

        return inbox

    await worker("2024-*").work(drain=True)
    assert seen == [("2024-*", "b")]
    await worker(OLD).work(drain=True)
    assert seen == [("2024-*", "b"), (OLD, "a")]


async def test_a_replay_and_a_poison_event_keep_their_handler(site_on: MakeSite, database_url: str) -> None:
    """A preview and a replay find the handler of the version."""
    site = await site_on(database_url)
    stripe = versioned(site)
    seen: list[str] = []

    @stripe.on("invoice.paid", version=OLD, replay="converges")
    async def old(event: Event) -> None:
        seen.append("old")

    @stripe.on("invoice.paid", version=NEW)
    async def new(event: Event) -> None:
        seen.append("new")

    await deliver(site, ("a", OLD))
    await site.work()
    row = (await site.event("a")).event
    async with site.inbox.opened() as store:
        await store.replay(row.id, row.state, "ada", "again")
    await site.work()
    assert seen == ["old", "old"]


async def test_stages_of_a_version(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    stripe = versioned(site)
    seen: list[tuple[str, str | None, str]] = []

    async def note(event: Event) -> None:
        seen.append((event.key, event.stage, event.version))

    stripe.on("invoice.paid", stage="crm")(note)
    stripe.on("invoice.paid", stage="mail", version="2024-*")(note)
    await deliver(site, ("a", OLD), ("b", NEW))
    await site.work()
    assert sorted(seen, key=str) == [("a", "crm", OLD), ("b", "crm", NEW), ("b", "mail", NEW)]


def test_a_worker_says_which_versions_it_takes() -> None:
    inbox = Inbox()
    source = inbox.source("stripe", provider="stripe", secrets=[SECRET], version="contract")

    @source.on("invoice.paid", version="2024-*")
    async def paid(event: Event) -> None: ...

    assert [str(one) for one in inbox.routes.handles()] == ["invoice.paid in version 2024-*"]
