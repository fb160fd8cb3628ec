"""What docs/how-to/reconcile.md shows does what it says."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hookledger import Inbox
from hookledger.operate.audit import by
from hookledger.operate.reconcile import reconcile as operate
from hookledger.operate.reconcile.repair import repair as repair_object
from hookledger.states import State
from tests.asgi_client import Site, stripe_event

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "reconcile.md"
SUBSCRIPTION = {"data": {"object": {"id": "sub_1", "status": "trialing"}}}


class Delivery(Struct):
    guid: str
    event: str
    body: bytes
    at: datetime


class Proxy:
    async def log(self, since: datetime, until: datetime) -> Sequence[Delivery]:
        return [Delivery("g-1", "push", b'{"ref": "main"}', until - timedelta(hours=1))]


class Api:
    async def get(self, path: str) -> dict[str, str]:
        return {"id": path.rsplit("/", 1)[1], "status": "active"}


async def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRIPE_WEBHOOK_SECRET", "GITHUB_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "whsec_made_up_for_the_docs")
    names: dict[str, Any] = {"api": Api(), "our_proxy": Proxy()}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    inbox: Inbox = names["inbox"]
    inbox.database = f"sqlite:///{tmp_path}/inbox.db"
    await inbox.migrate()
    async with inbox.opened(handlers=1) as store:
        transaction = store.transaction()
        await transaction.tx.execute("CREATE TABLE subscriptions (id TEXT, status TEXT)")
        await transaction.tx.execute("INSERT INTO subscriptions VALUES ('sub_1', 'trialing')")
        await transaction.commit([])
        context = inbox.context(store)
        assert (await operate.reconcile(context, by("ada", "outage"), "github", None)).counts.imported == 1
        made = await repair_object(context, by("ada", "a wrong status"), "stripe", "sub_1")
    site = Site(inbox)
    await site.work()
    assert (await site.event(made.event.id)).event.result == "is active"
    event = stripe_event(kind="customer.subscription.updated", created=int(datetime.now(UTC).timestamp()))
    await site.deliver(json.dumps({**event, **SUBSCRIPTION}).encode())
    await site.work()
    assert await site.state("evt_1") is State.PROCESSED
    await inbox.asgi.stop()
