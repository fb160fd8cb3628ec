"""What the intake takes, keeps and refuses, and how it answers."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from hookledger import ConfigError, Event, SecretSettings, State
from hookledger.model import unpack_headers
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.states import KeyOrigin
from tests.asgi_client import Answer, Site, ask, stripe_event
from tests.path.conftest import SECRET, MakeSite, done

PUSH = {"ref": "refs/heads/main", "after": "0f1e2d"}
DISPATCH = {"inputs": {}, "ref": "refs/heads/main", "workflow": "deploy.yml"}


# ── what is kept ──


# proves R9
async def test_unreadable_body_is_acked_and_dead_lettered(site: Site) -> None:
    body = b'\xff\x00{"id": "evt_1", broken'
    answer = await site.deliver(body)
    assert (answer.status, answer.json["status"]) == (202, "invalid")
    history = await site.event(answer.json["event"])
    assert (history.event.state, history.event.reason) == (State.FAILED, "the body is not JSON")
    assert history.request is not None
    assert history.request.body == body
    again = await site.deliver(body)
    assert (again.status, again.json["event"]) == (200, answer.json["event"])


@pytest.mark.parametrize("hidden", [True, False], ids=["beside what is read at intake", "in what is read"])
async def test_integer_beyond_pythons_limit_ends_in_one_verdict(site: Site, hidden: bool) -> None:
    @site.inbox.sources["stripe"].on("invoice.paid")
    async def charge(event: Event) -> str:
        return str(event.json)

    long = b"1" * 5000
    place = b'"id":"evt_1","n":%b' if hidden else b'"id":%b'
    answer = await site.deliver(b'{%b,"type":"invoice.paid"}' % (place % long))
    assert answer.status == 202
    await site.work()
    history = await site.event(answer.json["event"])
    assert (history.event.state, len(history.attempts)) == (State.FAILED, int(hidden))
    assert "an integer has over 4,300 digits" in str(history.event.reason)
    honest = await site.deliver(b'{"id":"evt_2","n":%b,"type":"invoice.paid"}' % (b"1" * 4300))
    await site.work()
    assert await site.state(honest.json["event"]) == State.PROCESSED


# proves R7
async def test_what_is_stored(site: Site) -> None:
    presented = [("Authorization", "Bearer hunter2"), ("Cookie", "s=hunter2"), ("X-Request-Id", "r-1")]
    answer = await site.deliver(stripe_event(created=1_760_000_000), headers=presented)
    history = await site.event(answer.json["event"])
    event, request = history.event, history.request
    assert request is not None
    assert (event.provider_id, event.object_id, event.type) == ("evt_1", "in_1", "invoice.paid")
    assert (event.key, event.key_origin) == ("evt_1", KeyOrigin.SIGNED_ID)
    assert event.occurred_at is not None
    assert event.occurred_at.timestamp() == 1_760_000_000
    assert request.scheme == "hmac-sha256"
    assert request.secret == site.inbox.sources["stripe"].endpoint.secrets[0].fingerprint
    assert request.signed_at is not None
    assert abs(request.signed_at.timestamp() - time.time()) < 60
    assert request.remote == "192.0.2.1"
    kept = dict(unpack_headers(request.headers))
    assert kept["x-request-id"] == "r-1"
    assert not {"authorization", "cookie"} & kept.keys()
    assert b"hunter2" not in request.headers


async def test_github_same_body_under_a_new_delivery_id(site: Site) -> None:
    first = await site.deliver(PUSH, source="github", ident="d-1", kind="push")
    second = await site.deliver(PUSH, source="github", ident="d-2", kind="push")
    assert (first.status, second.status) == (202, 202)
    assert second.json == {"status": "same_body", "event": first.json["event"]}
    assert await site.deliveries() == {"accepted": 1, "same_body": 1}
    assert [d.kept for d in (await site.event(first.json["event"])).deliveries] == [True, True]
    third = await site.deliver(PUSH, source="github", ident="d-2", kind="push")
    assert (third.status, third.json["status"]) == (200, "duplicate")
    assert len(await site.events()) == 1


async def test_github_identical_dispatches_are_two_intents(site: Site) -> None:
    for ident in ("d-1", "d-2"):
        answer = await site.deliver(DISPATCH, source="github", ident=ident, kind="workflow_dispatch")
        assert answer.json["status"] == "accepted"
    assert len(await site.events()) == 2


async def test_conflict_keeps_the_first_and_the_bytes_of_both(site: Site) -> None:
    first = await site.deliver(stripe_event(created=1, data={"object": {"id": "in_1", "amount": 100}}))
    other = await site.deliver(stripe_event(created=1, data={"object": {"id": "in_1", "amount": 999}}))
    assert other.json == {"status": "conflict", "event": first.json["event"]}
    history = await site.event("evt_1")
    assert history.request is not None
    assert b"100" in history.request.body
    assert [(d.outcome, d.kept) for d in history.deliveries] == [("accepted", True), ("conflict", True)]


async def test_volatile_field_makes_no_conflict(site: Site) -> None:
    await site.deliver(stripe_event(created=1, pending_webhooks=2))
    again = await site.deliver(stripe_event(created=1, pending_webhooks=1))
    assert (again.status, again.json["status"]) == (200, "duplicate")


# ── rules of the source ──


# proves R4
async def test_types_that_are_not_allowed(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    site.inbox.source("a", provider="stripe", secrets=[SECRET], types=["invoice.*"])
    site.inbox.source("b", provider="stripe", secrets=[SECRET], types=["invoice.paid"], other_types="reject")
    skipped = await site.deliver(stripe_event(kind="charge.failed"), source="a")
    refused = await site.deliver(stripe_event(kind="charge.failed"), source="b")
    assert (skipped.status, refused.status) == (202, 422)
    assert refused.json == {"error": "type_rejected"}
    assert (await site.deliver(stripe_event("evt_2"), source="a")).status == 202
    assert (await site.deliver(stripe_event("evt_2"), source="b")).status == 202
    found = {(event.source, event.key): event.state for event in await site.events()}
    pending = State.PENDING
    assert found == {("a", "evt_1"): State.SKIPPED, ("a", "evt_2"): pending, ("b", "evt_2"): pending}


# proves R9, R12
async def test_key_that_is_demanded(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    site.inbox.source("strict", provider="stripe", secrets=[SECRET], key_required=True)
    site.inbox.source("usual", provider="stripe", secrets=[SECRET])
    for body in (b'{"type": "invoice.paid"}', b"unreadable"):
        answer = await site.deliver(body, source="strict")
        assert (answer.status, answer.json) == (422, {"error": "key_missing"})
    assert await site.events() == []
    assert (await site.deliver({"type": "invoice.paid"}, source="usual")).status == 202
    [event] = await site.events()
    assert event.key_origin is KeyOrigin.DIGEST


# proves R3
async def test_secrets_are_rotated_without_a_gap(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    soon = site.inbox.clock.now() + timedelta(seconds=60)
    source = site.inbox.source(
        "live", provider="stripe", secrets=["new-secret", SecretSettings("old-secret", expires=soon)]
    )
    site.inbox.source("test", provider="stripe", secrets=["test-secret"])

    async def status(ident: str, secret: str) -> int:
        return (await site.deliver(stripe_event(ident), source="live", secret=secret)).status

    assert [await status("evt_1", "new-secret"), await status("evt_2", "old-secret")] == [202, 202]
    assert await status("evt_3", "test-secret") == 401  # another endpoint's
    used = [(await site.event(key)).request for key in ("evt_1", "evt_2")]
    assert [request.secret for request in used if request] == [
        secret.fingerprint for secret in source.endpoint.secrets
    ]
    site.inbox.clock.offset += 61
    answer = await site.deliver(stripe_event("evt_3"), source="live", secret="old-secret")
    assert (answer.status, answer.json) == (401, {"error": "secret_expired"})
    assert await status("evt_3", "new-secret") == 202


async def test_mounted_in_another_application(site: Site) -> None:
    body = b'{"id": "evt_1", "type": "invoice.paid"}'
    headers = sign(find("stripe"), SECRET, body, now=time.time())
    assert (await ask(site.inbox.asgi, "POST", "/stripe", body, headers, root="/hooks")).status == 202
    assert (await ask(site.inbox.asgi, "GET", "/readyz", root="/hooks")).status == 200


@pytest.mark.parametrize("name", ["healthz", "readyz", "", "a/b", "x" * 65, "stripe"])
async def test_names_that_no_source_can_have(site: Site, name: str) -> None:
    with pytest.raises(ConfigError):
        site.inbox.source(name, provider="stripe", secrets=[SECRET])


# ── limits ──


async def refused(site: Site, *request: Any, **more: Any) -> Answer:
    """A request that must leave nothing behind."""
    answer = await ask(site.inbox.asgi, *request, **more)
    assert (await site.events(), await site.deliveries()) == ([], {})
    return answer


async def test_unknown_path_and_wrong_method(site: Site) -> None:
    assert (await refused(site, "POST", "/nobody", b"{}")).status == 404
    answer = await refused(site, "GET", "/stripe")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


# proves R10
@pytest.mark.parametrize("body", [b"x" * 2_000_000, [b"x" * 400_000] * 5], ids=["whole", "chunked"])
async def test_body_over_the_limit(site: Site, body: Any) -> None:
    answer = await refused(site, "POST", "/stripe", body)
    assert (answer.status, answer.json) == (413, {"error": "body_too_large"})


async def test_body_in_parts_is_put_together(site: Site) -> None:
    parts = [b'{"id": "evt_1", ', b'"type":', b' "invoice.paid"}']
    headers = sign(find("stripe"), SECRET, b"".join(parts), now=time.time())
    answer = await ask(site.inbox.asgi, "POST", "/stripe", parts, headers)
    assert answer.status == 202
    kept = (await site.event(answer.json["event"])).request
    assert kept is not None
    assert kept.body == b"".join(parts)


async def test_other_limits(site: Site) -> None:
    many = [(f"X-{number}", "x") for number in range(65)]
    assert (await refused(site, "POST", "/stripe", b"{}", many)).status == 400
    assert (await refused(site, "POST", "/stripe", b"{}", [("X-Long", "x" * 20_000)])).status == 400
    assert (await refused(site, "POST", "/stripe", b"{}", [("Content-Encoding", "gzip")])).status == 415


async def test_body_that_does_not_come(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url, {"intake": {"limits": {"seconds": "50ms"}}})
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    sent: list[Any] = []
    begun = False

    async def receive() -> dict[str, Any]:
        nonlocal begun
        if begun:
            await asyncio.sleep(60)
        begun = True
        return {"type": "http.request", "body": b"{", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/stripe", "headers": []}
    await site.inbox.asgi(scope, receive, send)
    assert sent[0]["status"] == 408


# proves R10
async def test_full_queue(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url, {"intake": {"queue": 2, "batch": 1}})
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    await site.deliver(stripe_event())
    answers = await asyncio.gather(*(site.deliver(stripe_event(f"evt_{n}")) for n in range(10, 30)))
    full = [answer for answer in answers if answer.status == 503]
    assert full
    assert all(int(answer.headers["retry-after"]) > 0 for answer in full)
    taken = sum(answer.status == 202 for answer in answers)
    assert taken + len(full) == 20
    assert len(await site.events()) == 1 + taken


# proves R8
async def test_database_that_is_not_there(site_on: MakeSite, sqlite_url: str) -> None:
    site = await site_on(sqlite_url)
    site.inbox.database = "sqlite:////nowhere/at/all.db"
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    answer = await site.deliver(stripe_event())
    assert (answer.status, "retry-after" in answer.headers) == (503, True)


# proves R6
async def test_ack_does_not_wait_for_the_handler(site: Site) -> None:
    running, acked = asyncio.Event(), asyncio.Event()

    @site.inbox.sources["stripe"].on("invoice.paid")
    async def slow(event: Event) -> None:
        running.set()
        await acked.wait()
        await event.tx.execute("INSERT INTO done VALUES ('slow')")

    await site.deliver(stripe_event())
    worker = asyncio.create_task(site.work())
    await asyncio.wait_for(running.wait(), 60)
    assert (await asyncio.wait_for(site.deliver(stripe_event("evt_2")), 60)).status == 202
    assert await done(site) == []
    acked.set()
    await worker
