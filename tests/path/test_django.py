"""The Django ORM in a handler: no adapter, so each write is said; reads, and writes in effects, are not."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import django
import pytest
from django.conf import settings
from django.db import connections, models

from hookledger import Event, Op, State, SyncEvent
from hookledger.observe import second_connection
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
django.setup()


class Done(models.Model):  # type: ignore[misc]  # Django has no types
    what = models.TextField(primary_key=True)

    class Meta:
        app_label, db_table, managed = "shop", "done", False


@pytest.fixture
async def site(site_on: MakeSite, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An inbox in the database that Django uses."""
    monkeypatch.setattr(second_connection, "_said", set())
    made = await site_on(postgres_url)
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


@pytest.fixture(autouse=True)
def database(postgres_url: str) -> Iterator[None]:
    parts = urlsplit(postgres_url)
    default = connections.settings["default"]
    default |= {"NAME": parts.path[1:], "HOST": parts.hostname, "PORT": parts.port, "USER": parts.username}
    default["PASSWORD"] = parts.password or ""
    yield
    connections.close_all()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in (record.getMessage() for record in caplog.records) if "Django ORM" in line]


async def run(site: Site, *kinds: str) -> None:
    for kind in kinds:
        await site.deliver(stripe_event(f"evt_{kind}", kind))
    await site.work()
    assert {row.state for row in await site.events()} == {State.PROCESSED}


def closing(function: Any) -> Any:
    """A thread's connection goes with it, or the database could not be dropped after the test."""

    def run(*args: Any) -> None:
        try:
            function(*args)
        finally:
            connections.close_all()

    return run


async def test_a_handler_that_saves(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    @site.inbox.sources["stripe"].on("a", "b")
    def paid(event: SyncEvent) -> None:
        closing(lambda: Done.objects.create(what=event.type))()

    await run(site, "a", "b")
    assert await done(site) == ["a", "b"]
    [line] = said(caplog)
    assert "test_a_handler_that_saves.<locals>.paid writes through its own Django ORM connection" in line


async def test_an_async_handler_that_saves(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    from asgiref.sync import sync_to_async

    @site.inbox.sources["stripe"].on("a")
    async def paid(event: Event) -> None:
        await Done.objects.acreate(what="async")
        await sync_to_async(connections.close_all)()

    await run(site, "a")
    assert await done(site) == ["async"]
    assert len(said(caplog)) == 1


async def test_what_is_safe(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    @site.inbox.effect(repeat="safe")
    def save(op: Op, what: str) -> None:
        closing(lambda: Done.objects.create(what=what))()

    @site.inbox.sources["stripe"].on("a")
    def paid(event: SyncEvent) -> None:
        closing(lambda: list(Done.objects.all()))()
        event.tx.execute("INSERT INTO done VALUES ('tx')")
        event.call(save, "k", "effect")

    await run(site, "a")
    assert await done(site) == ["effect", "tx"]
    assert said(caplog) == []


async def test_a_connection_that_is_opened_again_and_again(site: Site) -> None:
    """Django tells of each reconnection, and keeps the wrappers of the one before."""

    @site.inbox.sources["stripe"].on("a")
    def paid(event: SyncEvent) -> None:
        for _ in range(5):
            closing(Done.objects.count)()
        wrappers.append(len(connections["default"].execute_wrappers))

    wrappers: list[int] = []
    await run(site, "a")
    assert wrappers == [1]
