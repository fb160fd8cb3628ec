"""A shop whose replays are rehearsed: real remotes, tables of its own, and proof that nothing is left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from hookledger import Op
from hookledger.rehearsals import Rehearsal, Write
from hookledger.source import Registration
from tests.asgi_client import Site
from tests.contract.conftest import postgres_url, shared_postgres_url  # noqa: F401 - a database, emptied for each test
from tests.path.conftest import SECRET, MakeSite
from tests.path.remote import Remote, Running, deliver, finish
from tests.services.sink import Sink, running_sink

TABLES = """
CREATE TABLE accounts (id text PRIMARY KEY, credit integer NOT NULL);
CREATE TABLE audit (line text);
CREATE TABLE later_checked (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED);
DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TABLE other.log (line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END $$;
CREATE TRIGGER noted AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO accounts VALUES ('acme', 1), ('idle', 1);
"""
CREDIT = "UPDATE accounts SET credit = credit + 1 WHERE id = 'acme'"
OURS = ("rehearsals", "actions", "workers", "migrations", "probe")
"""Tables that a rehearsal, or a worker beside it, may write."""


class Shop:
    """A site with real remotes, whose one handler each test declares."""

    def __init__(self, site: Site, url: str, sink: Sink) -> None:
        self.site = site
        self.url = url
        self.sink = sink
        remote = Remote(sink)

        @site.inbox.effect(repeat="keyed", window="1d")
        async def charge(op: Op, cents: int) -> str:
            return await remote.post(op)

        @site.inbox.effect(repeat="never")
        async def mail(op: Op, to: str) -> None:
            await remote.post(op)

        self.charge, self.mail = charge, mail

    def on(self, kind: str = "a", **options: Any) -> Registration:
        return self.site.inbox.sources["stripe"].on(kind, **{"rehearsable": True, **options})

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return [tuple(row) for row in await connection.fetch(statements[-1])]
        finally:
            await connection.close()

    async def dump(self) -> dict[str, list[str]]:
        """Everything in the database that a rehearsal must leave alone."""
        tables = await self.sql(
            "SELECT schemaname || '.' || tablename FROM pg_tables "
            "WHERE schemaname IN ('public', 'other', 'hookledger') ORDER BY 1"
        )
        names = [name for (name,) in tables if name.partition(".")[2] not in OURS]
        return {name: sorted(row[0] for row in await self.sql(f"SELECT t::text FROM {name} AS t")) for name in names}

    async def ask(self, ident: str = "evt", repeat: Sequence[str] = (), **options: Any) -> Rehearsal:
        """Without a worker; one must be running."""
        async with self.site.inbox.opened() as store:
            history = await self.site.inbox.insight(store).event(ident)
            return await self.site.inbox.actions(store, "ada").rehearse(history.event, "why", repeat, **options)

    async def rehearse(self, ident: str = "evt", repeat: Sequence[str] = ()) -> Rehearsal:
        """With a worker, and proof that nothing is left and nothing was called."""
        before, calls = await self.dump(), len(self.sink.requests)
        async with Running(self.site):
            found = await self.ask(ident, repeat)
        assert await self.dump() == before
        assert len(self.sink.requests) == calls
        return found

    async def processed(self, ident: str = "evt", kind: str = "a") -> None:
        await deliver(self.site, ident, kind)
        await finish(self.site)


def labels(found: Rehearsal) -> list[tuple[str, str]]:
    assert found.result is not None
    return [(step.label, step.fate.value) for step in found.result.steps]


def writes(found: Rehearsal) -> tuple[Write, ...] | None:
    assert found.result is not None
    return found.result.writes


@pytest.fixture(name="shop")
async def make_shop(site_on: MakeSite, postgres_url: str) -> AsyncIterator[Shop]:  # noqa: F811
    site = await site_on(postgres_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    with running_sink() as sink:
        shop = Shop(site, postgres_url, sink)
        await shop.sql(TABLES, "SELECT 1")
        yield shop


