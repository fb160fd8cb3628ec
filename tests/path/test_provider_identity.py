"""What makes two deliveries one event, at the providers whose rules differ most; on both stores, by durable rows."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from hookledger import Event, State
from hookledger.operate.doctor.checks import examine
from hookledger.operate.doctor.finding import Finding
from hookledger.states import KeyOrigin
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import SECRET, MakeSite, done
from tests.path.served import serving, test_key

PUSH = {"ref": "refs/heads/main", "after": "0f1e2d"}
DISPATCH = {"inputs": {}, "ref": "refs/heads/main", "workflow": "deploy.yml"}


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    made = await site_on(database_url)
    for name in ("stripe", "github", "shopify"):
        made.inbox.source(name, provider=name, secrets=[SECRET])
    return made


async def test_github_a_captured_body_under_a_new_delivery_id(site: Site) -> None:
    first = await site.deliver(PUSH, source="github", ident="d-1", kind="push")
    second = await site.deliver(PUSH, source="github", ident="d-2", kind="push")
    assert second.json == {"status": "same_body", "event": first.json["event"]}
    assert await site.deliveries() == {"accepted": 1, "same_body": 1}
    [event] = await site.events()
    assert (event.key_origin, event.deliveries) == (KeyOrigin.UNSIGNED_ID, 2)
    async with site.inbox.opened() as store:
        [odd] = await store.quarantine.quarantined(source="github")
        request = await store.quarantine.request(odd.request_id)
    assert (odd.outcome, odd.event_id, odd.delivery_id) == ("same_body", event.id, "d-2")
    assert request is not None
    assert json.loads(request.body) == PUSH


async def test_github_two_identical_dispatches_are_two(site: Site) -> None:
    for ident in ("d-1", "d-2"):
        answer = await site.deliver(DISPATCH, source="github", ident=ident, kind="workflow_dispatch")
        assert answer.json["status"] == "accepted"
    assert len(await site.events()) == 2


async def test_shopify_the_topic_is_part_of_the_key(site: Site) -> None:
    """One order, rendered twice the same, under two topics; each delivered twice."""
    order = {"id": 820982911946154508, "total_price": "403.00"}
    seen = []
    for topic in ("orders/create", "orders/paid"):
        for _ in range(2):
            answer = await site.deliver(
                order, source="shopify", ident="b54557e4", kind=topic, headers=[("X-Shopify-Topic", topic)]
            )
            seen.append(answer.json["status"])
    assert Counter(seen) == {"accepted": 2, "duplicate": 2}
    assert sorted(event.type for event in await site.events()) == ["orders/create", "orders/paid"]


async def test_shopify_no_other_topic_has_the_body(site: Site) -> None:
    order, seen = {"id": 1, "total_price": "1.00"}, []
    for ident, topic in (("a", "orders/create"), ("a", "orders/paid"), ("a", "refunds/create"), ("b", "orders/paid")):
        answer = await site.deliver(
            order, source="shopify", ident=ident, kind=topic, headers=[("X-Shopify-Topic", topic)]
        )
        seen.append((answer.status, answer.json["status"]))
    assert seen == [(202, "accepted"), (202, "accepted"), (202, "same_body"), (202, "same_body")]


async def test_a_second_redaction_is_quarantined_with_an_alert(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    body, topic = {"shop_id": 1, "customer": {"id": 2}}, "customers/redact"
    headers = [("X-Shopify-Topic", topic)]
    for ident in ("a", "b", "c"):
        answer = await site.deliver(body, source="shopify", ident=ident, kind=topic, headers=headers)
    assert (answer.status, answer.json["status"]) == (202, "same_body")
    event, [action] = await settled_alert(site, answer.json["event"])
    assert (action.name, action.actor) == ("alert", "hookledger")
    assert topic in action.reason
    assert event.state is State.PENDING
    assert [record.getMessage().startswith("ALERT") for record in caplog.records].count(True) == 1
    findings = await doctor(site)
    assert "warn" in [finding.level for finding in findings if finding.about == "quarantine"]
    assert any(f.about == "source github" and "does not sign the event type" in f.says for f in findings)


async def settled_alert(site: Site, ident: str) -> tuple[Any, tuple[Any, ...]]:
    """The event and its audit, once the alert is written: that comes after the answer."""
    for _ in range(5000):
        history = await site.event(ident)
        if history.actions:
            break
        await asyncio.sleep(0.01)
    return history.event, history.actions


async def doctor(site: Site) -> list[Finding]:
    async with site.inbox.opened() as store:
        return await examine(site.inbox.context(store))


async def test_stripe_volatile_and_other_content(site: Site) -> None:
    def event(amount: int, pending: int) -> dict[str, Any]:
        return stripe_event(created=1, pending_webhooks=pending, data={"object": {"id": "in_1", "amount": amount}})

    first = await site.deliver(event(100, 3))
    assert (await site.deliver(event(100, 0))).json == {"status": "duplicate", "event": first.json["event"]}
    assert (await site.deliver(event(999, 3))).json == {"status": "conflict", "event": first.json["event"]}
    assert await site.deliveries() == {"accepted": 1, "duplicate": 1, "conflict": 1}
    assert len(await site.events()) == 1


# ── keys of the source's own ─────────────────────────────────────────────────


# proves R11
async def test_a_key_of_fields_and_a_stage(site: Site) -> None:
    site.inbox.source(
        "staged", provider="stripe", secrets=[SECRET], key=["body:type", "body:data.object.id", "text:provision"]
    )
    first = await site.deliver(stripe_event("evt_1", data={"object": {"id": "in_7"}}), source="staged")
    second = await site.deliver(stripe_event("evt_2", data={"object": {"id": "in_7"}}), source="staged")
    assert first.json["status"] == "accepted"
    assert second.json == {"status": "conflict", "event": first.json["event"]}  # the id differs, the key does not
    [event] = await site.events()
    assert (event.key, event.key_origin) == ("invoice.paid:in_7:provision", KeyOrigin.COMPOSITE)


# proves R11
async def test_a_key_by_function(site: Site) -> None:
    def key(content: dict[str, Any], headers: Any) -> Any:
        if content.get("id") == "evt_bad":
            raise KeyError("object")
        return None if content.get("id") == "evt_none" else (content["type"], headers["x-tenant"])

    site.inbox.source("mine", provider="stripe", secrets=[SECRET], key=key)
    tenant = [("X-Tenant", "acme")]
    first = await site.deliver(stripe_event("evt_1"), source="mine", headers=tenant)
    again = await site.deliver(stripe_event("evt_1"), source="mine", headers=tenant)
    assert (first.status, again.status) == (202, 200)
    none = await site.deliver(stripe_event("evt_none"), source="mine", headers=tenant)
    bad = await site.deliver(stripe_event("evt_bad"), source="mine", headers=tenant)
    origins = {str(event.id): event.key_origin for event in await site.events()}
    assert origins[first.json["event"]] is KeyOrigin.FUNCTION
    assert origins[none.json["event"]] is KeyOrigin.DIGEST
    history = await site.event(bad.json["event"])
    assert (history.event.state, history.event.reason) == (State.FAILED, "the source's key function raised KeyError")


# ── several events in one request ────────────────────────────────────────────


def batch() -> bytes:
    """500 of SendGrid's events; two repeat earlier ones, and one is no event at all."""
    events: list[Any] = [
        {
            "email": f"u{n}@example.com",
            "event": "delivered",
            "sg_event_id": f"sg-{n}",
            "sg_message_id": f"m-{n}",
            "timestamp": 1_760_000_000 + n,
        }
        for n in range(497)
    ]
    events[10:10] = [events[3]]
    events += [events[200], "not an object"]
    assert len(events) == 500
    return json.dumps(events).encode()


async def test_sendgrid_five_hundred_in_one_request(site_on: MakeSite, database_url: str, tmp_path: Any) -> None:
    key, public = test_key("sendgrid", tmp_path)
    site = await site_on(database_url)
    sendgrid = site.inbox.source(
        "sendgrid", provider="sendgrid", secrets=[public], options={"test_key": f"file:{key}"}
    )

    @sendgrid.on("delivered")
    async def note(event: Event) -> None:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.json["sg_event_id"])

    async with serving(site) as served:
        body = batch()
        first = await served.post("sendgrid", body)
        assert first.status in (200, 202)
        assert await site.deliveries() == {"accepted": 497, "duplicate": 2, "invalid": 1}
        await site.work()
        await site.work(later=3600)  # on a busy machine one of 497 may exceed SQLite's transaction limit
        assert await done(site) == sorted(f"sg-{n}" for n in range(497))
        again = await served.post("sendgrid", body)
        assert again.status == 200
        assert await site.deliveries() == {"accepted": 497, "duplicate": 502, "invalid": 1}
    async with site.inbox.opened() as store:
        counts = await store.counts()
    assert counts == {State.PROCESSED: 497, State.FAILED: 1}
    await site.work()
    assert len(await done(site)) == 497
