"""`/healthz` and `/readyz`."""

import asyncio
from pathlib import Path

import apsw

from hookledger import Inbox
from tests.asgi_client import Answer, Site, ask, stripe_event
from tests.path.conftest import SECRET, MakeSite
from tests.services.postgres import Postgres


async def readyz(inbox: Inbox) -> Answer:
    return await ask(inbox.asgi, "GET", "/readyz")


async def test_ready(site: Site) -> None:
    assert (await ask(site.inbox.asgi, "GET", "/healthz")).status == 200
    answer = await readyz(site.inbox)
    assert (answer.status, answer.json["status"], answer.json["problem"]) == (200, "ready", None)
    assert answer.json["schema_range"][0] <= answer.json["schema"] <= answer.json["schema_range"][1]


async def test_not_ready_before_migrate(database_url: str) -> None:
    inbox = Inbox(database_url)
    inbox.source("stripe", provider="stripe", secrets=[SECRET])
    try:
        assert (await ask(inbox.asgi, "GET", "/healthz")).status == 200
        answer = await readyz(inbox)
        assert (answer.status, answer.json["status"]) == (503, "not ready")
        assert "hookledger migrate" in answer.json["problem"]
    finally:
        await inbox.asgi.stop()


async def test_not_ready_with_a_schema_of_the_future(site: Site, tmp_path: Path) -> None:  # DESIGN rule 25
    database = apsw.Connection(str(tmp_path / "inbox.db"))
    database.execute("INSERT INTO migrations VALUES (9999, 'of the future', 0)")
    database.close()
    answer = await readyz(site.inbox)
    assert (answer.status, answer.json["schema"]) == (503, 9999)
    assert "this release needs" in answer.json["problem"]


async def test_not_ready_without_the_database(tmp_path: Path) -> None:
    inbox = Inbox(f"sqlite:///{tmp_path}/missing/inbox.db")
    assert (await readyz(inbox)).status == 503
    assert (await ask(inbox.asgi, "GET", "/healthz")).status == 200


async def test_database_that_goes_away(site_on: MakeSite, postgres_server: Postgres) -> None:  # proves R8
    site = await site_on(postgres_server.create_database("away"))
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    assert (await site.deliver(stripe_event())).status == 202
    await asyncio.to_thread(postgres_server.stop, "immediate")
    answer = await site.deliver(stripe_event("evt_2"))
    assert (answer.status, "retry-after" in answer.headers) == (503, True)
    answer = await eventually(site.inbox, 503)
    assert (answer.json["database_writable"], bool(answer.json["problem"])) == (False, True)
    assert (await ask(site.inbox.asgi, "GET", "/healthz")).status == 200
    await asyncio.to_thread(postgres_server.start)
    await eventually(site.inbox, 200)
    assert (await site.deliver(stripe_event("evt_2"))).status == 202
    assert {event.key for event in await site.events()} == {"evt_1", "evt_2"}


async def eventually(inbox: Inbox, status: int) -> Answer:
    """The database is asked once a second at most."""
    async with asyncio.timeout(30):
        while (answer := await readyz(inbox)).status != status:
            await asyncio.sleep(0.1)
    return answer
