"""`/healthz` and `/readyz`."""

import asyncio
from pathlib import Path

import apsw
import pytest

from hookledger import Event, Inbox
from hookledger.operate.api.listener import Operator
from hookledger.operate.health import Receiver
from hookledger.receive.health import PROBE, probe_token
from tests.asgi_client import Answer, Site, ask, stripe_event
from tests.path.conftest import SECRET, MakeSite
from tests.path.served import serving
from tests.services.postgres import Postgres


async def readyz(inbox: Inbox, presented: str | None = None) -> Answer:
    """As the operator's listener asks, which may know why."""
    return await ask(inbox.asgi, "GET", "/readyz", b"", [(PROBE.decode(), presented or probe_token())])


async def test_the_public_learns_only_whether_it_is_ready(site: Site, tmp_path: Path) -> None:
    for asked in (await ask(site.inbox.asgi, "GET", "/readyz"), await readyz(site.inbox, "made-up")):
        assert (asked.status, asked.json) == (200, {"status": "ready"})
    database = apsw.Connection(str(tmp_path / "inbox.db"))
    database.execute(
        "INSERT INTO migrations VALUES (9999, 'of the future', 0); UPDATE schema_support SET oldest = 9998"
    )
    database.close()
    assert (await eventually(site.inbox, 503)).json["problem"]
    asked = await ask(site.inbox.asgi, "GET", "/readyz")
    assert (asked.status, asked.json) == (503, {"status": "not ready"})


async def test_ready(site: Site) -> None:
    assert (await ask(site.inbox.asgi, "GET", "/healthz")).status == 200
    answer = await readyz(site.inbox)
    assert (answer.status, answer.json["status"], answer.json["problem"]) == (200, "ready", None)
    assert answer.json["schema_range"][0] <= answer.json["schema"] <= answer.json["schema_range"][1]


@pytest.mark.unmigrated
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
    answer = await readyz(site.inbox)
    assert (answer.status, answer.json["schema"], answer.json["problem"]) == (200, 9999, None), "it supports us"
    database.execute("UPDATE schema_support SET oldest = 9998")
    database.close()
    answer = await eventually(site.inbox, 503)
    assert "this release needs" in answer.json["problem"]


async def test_not_ready_without_the_database(tmp_path: Path) -> None:
    inbox = Inbox(f"sqlite:///{tmp_path}/missing/inbox.db")
    assert (await readyz(inbox)).status == 503
    assert (await ask(inbox.asgi, "GET", "/healthz")).status == 200


async def test_database_that_goes_away(site_on: MakeSite, postgres_server: Postgres) -> None:
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


# ── asked by the operator's listener ──


async def told(site: Site, path: str, port: int, patience: float = 60.0) -> Answer:
    site.inbox.operator.receiver = Receiver("0.0.0.0", port, patience=patience)
    return await ask(site.inbox.operator, "GET", path)


async def test_the_operators_listener_tells_what_the_receiver_says(site: Site) -> None:
    async with serving(site) as served:
        assert (await served.ask("GET", "/nobody")).status == 404
        answer = await told(site, "/readyz", served.port)
        assert (answer.status, answer.json["problem"]) == (200, None)
        assert (await served.ask("GET", "/readyz")).json == {"status": "ready"}
        assert sum(answer.json["rejected"].values()) == 1
        assert (await told(site, "/healthz", served.port)).json == {"status": "alive"}
        assert (await told(site, "/stripe", served.port)).status == 404
        assert answer.json["workers"] == ["workers: none is alive; nothing is due"]
    assert (await told(site, "/readyz", served.port)).status == 503


async def test_the_operators_listener_notices_that_no_worker_runs(site_on: MakeSite, database_url: str) -> None:
    site = await site_on(database_url)
    source = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @source.on("*")
    async def handle(event: Event) -> None:
        del event

    async def asked() -> Answer:
        """Workers are looked at once a second at most: a new operator's listener has not looked yet."""
        operator = Operator(site.inbox)
        try:
            return await ask(operator, "GET", "/readyz")
        finally:
            await operator.stop()

    idle = await asked()
    assert (idle.status, idle.json["workers"]) == (200, ["workers: none is alive; nothing is due"])
    assert (await site.deliver(stripe_event("evt_1"))).status == 202
    nobody = await asked()
    assert (nobody.status, nobody.json["status"]) == (503, "not ready")
    assert nobody.json["problem"].startswith("workers: none is alive, and events are due")
    assert "hookledger work" in nobody.json["problem"]
    public = await ask(site.inbox.asgi, "GET", "/readyz")
    assert (public.status, public.json) == (200, {"status": "ready"}), "deliveries are taken all the same"
    async with site.inbox.opened() as store:
        await store.register("elsewhere", [("github", "*")])
        others = await asked()
        assert (others.status, "source stripe: no live worker serves it" in others.json["problem"]) == (503, True)
        await store.register("here", [("stripe", "invoice.*")])
        assert (await asked()).status == 200
        await store.leave("here")
        assert (await asked()).status == 503, "one that stopped is gone at once"
    await site.work()
    assert (await asked()).json["workers"][0] == "workers: 1 alive; nothing is due"


STRANGE = (b"", b"what?\r\n\r\n", b"HTTP/1.1 what?\r\n\r\n", b"HTTP/1.1 -5 x\r\n\r\n", b"HTTP/1.1 204 x\r\n\r\n")


@pytest.mark.parametrize("says", [None, *STRANGE, b"x" * 100_000])
async def test_a_receiver_that_is_stuck_or_another_program_is_not_ready(site: Site, says: bytes | None) -> None:
    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if says is not None:
            writer.write(says)
            writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        answer = await told(site, "/readyz", port, patience=0.2 if says is None else 60.0)
    assert (answer.status, answer.json["status"]) == (503, "not ready")
    problem = "the receiver did not answer within 0.2 s" if says is None else "the receiver does not answer"
    assert answer.json["problem"] == problem


async def eventually(inbox: Inbox, status: int) -> Answer:
    """The database is asked once a second at most."""
    async with asyncio.timeout(30):
        while (answer := await readyz(inbox)).status != status:
            await asyncio.sleep(0.1)
    return answer
