"""`/healthz` and `/readyz`."""

from pathlib import Path

import apsw

from hookledger import Inbox
from tests.asgi_client import Answer, Site, ask
from tests.path.conftest import SECRET


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
