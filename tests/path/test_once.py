"""Each event once, each effect once: through the intake, the store and the worker, on both databases."""

import asyncio
import json
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest

import hookledger.cli
from hookledger import Event, Retry, State
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from tests.asgi_client import Site, ask, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

DEMO = Path(hookledger.cli.__file__).with_name("demo_app.py")
INVOICE = Path(__file__).parents[2] / "examples/provisioning/invoice.json"


@pytest.fixture
async def shop(site_on: MakeSite, database_url: str) -> Site:
    site = await site_on(database_url)
    stripe = site.inbox.source("stripe", provider="stripe", secrets=[SECRET])

    @stripe.on("invoice.paid")
    async def effect(event: Event) -> str:
        await event.tx.execute("INSERT INTO done VALUES ('effect')")
        if event.attempt == 1 and event.json.get("fails_first"):
            raise Retry("not yet", after=30)
        return "credited"

    return site


# proves R8, R57
async def test_same_event_twice(shop: Site) -> None:
    first = await shop.deliver(stripe_event())
    await shop.work()
    second = await shop.deliver(stripe_event())
    await shop.work()
    assert (first.status, second.status) == (202, 200)
    assert first.json == {"status": "accepted", "event": second.json["event"]}
    history = await shop.event("evt_1")
    assert history.event.state is State.PROCESSED
    arrived = [(delivery.outcome, delivery.event_state) for delivery in history.deliveries]
    assert arrived == [("accepted", None), ("duplicate", "processed")]
    assert len(await shop.events()) == len(history.attempts) == 1
    assert await done(shop) == ["effect"]


# proves R58
async def test_same_event_concurrently(shop: Site) -> None:
    answers = await asyncio.gather(*(shop.deliver(stripe_event()) for _ in range(20)))
    await asyncio.gather(shop.work(), shop.work())
    assert sorted(answer.status for answer in answers) == [200] * 19 + [202]
    assert len({answer.json["event"] for answer in answers}) == 1
    assert len(await shop.events()) == 1
    assert await shop.deliveries() == {"accepted": 1, "duplicate": 19}
    assert await done(shop) == ["effect"]


# proves R62
async def test_duplicate_of_failed_work_is_acked_and_the_retry_continues(shop: Site) -> None:
    event = stripe_event(fails_first=True)
    await shop.deliver(event)
    await shop.work()
    assert (await shop.state("evt_1"), await done(shop)) == (State.RETRYING, [])
    assert (await shop.deliver(event)).status == 200
    await shop.work(later=31)
    history = await shop.event("evt_1")
    assert [a.outcome for a in history.attempts] == ["retrying", "processed"]
    assert await done(shop) == ["effect"]


# proves R1, R61
async def test_forged_signature_on_valid_json(shop: Site) -> None:
    answer = await shop.deliver(stripe_event(), secret="whsec_of_somebody_else")
    assert (answer.status, answer.json) == (401, {"error": "signature_mismatch"})
    await shop.work()
    assert (await shop.events(), await shop.deliveries(), await done(shop)) == ([], {}, [])


# proves R2
@pytest.mark.parametrize(("seconds", "reason"), [(-301, "timestamp_stale"), (360, "timestamp_future")])
async def test_signed_at_another_time(shop: Site, seconds: int, reason: str) -> None:
    # The future one is a minute beyond the limit: a busy machine may take seconds between signing and asking.
    body = json.dumps(stripe_event()).encode()
    headers = sign(find("stripe"), SECRET, body, now=time.time() + seconds)
    answer = await ask(shop.inbox.asgi, "POST", "/stripe", body, headers)
    assert (answer.status, answer.json) == (401, {"error": reason})
    assert await shop.events() == []


# ── the demo's application ──


@pytest.fixture
def provisioning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Its module, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", SECRET)
    spec = spec_from_file_location("demo_app", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_demo_older_after_newer_is_no_downgrade(provisioning: ModuleType) -> None:
    site = Site(provisioning.inbox)
    await site.inbox.migrate()
    invoice: dict[str, Any] = json.loads(INVOICE.read_text())
    newer = stripe_event("evt_new", "customer.subscription.updated", created=invoice["created"] + 60)
    newer["data"]["object"] = {"id": "sub_1", "status": "canceled"}
    older = {**newer, "id": "evt_old", "created": invoice["created"] + 30}
    older["data"] = {"object": {"id": "sub_1", "status": "past_due"}}
    try:
        for event in (newer, older, invoice, invoice):
            assert (await site.deliver(event)).status < 300
            await site.work()
    finally:
        await site.inbox.asgi.stop()
    tables = apsw.Connection(provisioning.DATABASE)
    assert tables.execute("SELECT * FROM subscriptions").fetchall() == [("sub_1", "canceled")]
    assert tables.execute("SELECT * FROM accounts").fetchall() == [("cus_1", 4900)]  # additive: late, and once
    assert tables.execute("SELECT * FROM mails").fetchall() == [("cus_1", "Receipt for in_1")]


async def test_demo_replay_doubles_neither_credit_nor_receipt(provisioning: ModuleType) -> None:
    site = Site(provisioning.inbox)
    await site.inbox.migrate()
    invoice: dict[str, Any] = json.loads(INVOICE.read_text())
    try:
        for event in (invoice, {**invoice, "id": "evt_of_the_same_invoice"}):
            assert (await site.deliver(event)).status == 202
            await site.work()
        for row in await site.events():
            async with site.inbox.opened() as store:
                await store.replay(row.id, row.state, "ada", "again", seen=row.claim)
            await site.work()
        assert [(row.state, row.run) for row in await site.events()] == [(State.PROCESSED, 2)] * 2
    finally:
        await site.inbox.asgi.stop()
    tables = apsw.Connection(provisioning.DATABASE)
    assert tables.execute("SELECT * FROM accounts").fetchall() == [("cus_1", 4900)]
    assert tables.execute("SELECT * FROM mails").fetchall() == [("cus_1", "Receipt for in_1")]
