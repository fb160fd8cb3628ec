"""Every provider that asks whether an endpoint is there, answered over HTTP as it wants; nothing is opened by it."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hookledger.providers.catalogue import contracts
from hookledger.providers.schemes.base import Draft
from hookledger.providers.schemes.testing_keys import new_test_key
from tests.asgi_client import Pairs, Site
from tests.path.conftest import SECRET, MakeSite
from tests.path.served import Served, serving, test_key

TOKEN = "a-verify-token-made-up-for-tests"
PAIR = "madeuppublic:madeupprivatekeyofthetests"
PLAIN = ("content-type", "text/plain; charset=utf-8")
JSON = ("content-type", "application/json")


def source(site: Site, provider: str, secret: str = SECRET, **rest: Any) -> None:
    site.inbox.source(provider, provider=provider, secrets=[secret], **rest)


async def ask(
    made: Served, provider: str, method: str, query: str = "", body: bytes = b"", headers: Pairs = ()
) -> tuple[int, bytes, dict[str, str]]:
    answer = await made.ask(method, f"/{provider}{query}", body, headers)
    return answer.status, answer.body, answer.headers


@pytest.fixture
async def site(site_on: MakeSite, sqlite_url: str) -> Site:
    return await site_on(sqlite_url)


# ── signed questions: answered only if the signature is right ────────────────


@pytest.mark.parametrize(
    ("provider", "question"),
    [
        ("slack_events", {"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595"}),
        ("zoom", {"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"}}),
        ("xero", {"events": [], "firstEventSequence": 0, "lastEventSequence": 0, "entropy": "MADEUP"}),
        ("line", {"destination": "U0", "events": []}),
    ],
)
async def test_a_signed_handshake(site: Site, provider: str, question: dict[str, Any]) -> None:
    source(site, provider)
    body = json.dumps(question).encode()
    async with serving(site) as made:
        good = await made.post(provider, body)
        bad = await made.send(provider, _broken(made.signed(provider, body)))
    assert good.status == 200
    match provider:
        case "slack_events":
            assert good.body == b"3eZbrw1aBm2rZgRNFdxV2595"
            assert good.headers["content-type"].startswith("text/plain")
        case "zoom":
            token = "qgg8vlvZRS6UYooatFL8Aw"
            mac = hmac.new(SECRET.encode(), token.encode(), hashlib.sha256).hexdigest()
            assert good.json == {"plainToken": token, "encryptedToken": mac}
        case "xero":
            assert good.body == b""
    assert bad.status in (400, 401)
    if provider == "xero":
        assert bad.status == 401
    assert await site.events() == []


def _broken(draft: Draft) -> Draft:
    """The same with a signature that does not fit."""
    return msgspec.structs.replace(draft, body=draft.body + b" ")


@pytest.mark.parametrize(
    ("provider", "question", "status", "expected"),
    [
        ("discord_interactions", {"type": 1, "id": "1"}, 200, {"type": 1}),
        ("discord_events", {"version": 1, "application_id": "1", "type": 0}, 204, None),
    ],
)
async def test_discord_asks_with_good_and_with_bad_signatures(
    site: Site, tmp_path: Any, provider: str, question: dict[str, Any], status: int, expected: Any
) -> None:
    key, public = test_key(provider, tmp_path)
    source(site, provider, public, options={"test_key": f"file:{key}"})
    body = json.dumps(question).encode()
    async with serving(site) as made:
        good = await made.post(provider, body)
        bad = await made.send(provider, _broken(made.signed(provider, body)))
        unsigned = await made.ask("POST", f"/{provider}", body, [("content-type", "application/json")])
    assert good.status == status
    assert good.body == (b"" if expected is None else json.dumps(expected, separators=(",", ":")).encode())
    assert (bad.status, unsigned.status) == (401, 401)
    assert await site.events() == []


# ── questions by GET and OPTIONS ─────────────────────────────────────────────


@pytest.mark.parametrize("name", ["meta", "meta_whatsapp", "meta_messenger"])
async def test_meta(site: Site, name: str) -> None:
    source(site, name, verify_token=TOKEN)
    async with serving(site) as made:
        query = f"?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={TOKEN}"
        status, body, headers = await ask(made, name, "GET", query)
        assert (status, body) == (200, b"1158201444")
        assert headers["content-type"] == PLAIN[1]
        assert headers["x-content-type-options"] == "nosniff"
        for wrong in (
            query.replace(TOKEN, "guessed"),
            query.partition("&hub.verify_token")[0],
            query + "&hub.verify_token=",
        ):
            status, body, _ = await ask(made, name, "GET", wrong)
            if wrong.endswith("="):
                assert (status, body) == (200, b"1158201444")  # the first of several values counts
            else:
                assert (status, b"1158201444" in body) == (403, False)
        status, _, _ = await ask(made, name, "GET", query.replace("1158201444", "%3Cscript%3E"))
        assert status == 400
        status, _, _ = await ask(made, name, "GET")
        assert status == 405
        status, _, _ = await ask(made, name, "DELETE", query)
        assert status == 405
    assert await site.events() == []


async def test_meta_without_a_token_confirms_nothing(site: Site) -> None:
    source(site, "meta")
    async with serving(site) as made:
        query = "?hub.mode=subscribe&hub.challenge=1&hub.verify_token="
        status, _, _ = await ask(made, "meta", "GET", query)
        assert status in (403, 405)
        status, _, _ = await ask(made, "meta", "GET", query + "None")
        assert status == 403


async def test_dropbox(site: Site) -> None:
    source(site, "dropbox")
    async with serving(site) as made:
        status, body, headers = await ask(made, "dropbox", "GET", "?challenge=made-up_Challenge1")
        assert (status, body) == (200, b"made-up_Challenge1")
        assert headers["content-type"].startswith("text/plain")
        assert headers["x-content-type-options"] == "nosniff"
        status, body, _ = await ask(made, "dropbox", "GET", "?challenge=<img>")
        assert (status, b"<img>" in body) == (400, False)
        status, _, _ = await ask(made, "dropbox", "GET", "?challenge=" + "a" * 2000)
        assert status == 400
        status, _, _ = await ask(made, "dropbox", "POST", "?challenge=x", b"{}")
        assert status == 401  # a delivery, and not signed


async def test_okta(site: Site) -> None:
    source(site, "okta", "an operator's own secret")
    async with serving(site) as made:
        challenge = [
            ("x-okta-verification-challenge", "madeUpChallenge-1"),
            ("authorization", "an operator's own secret"),
        ]
        status, body, _ = await ask(made, "okta", "GET", headers=challenge)
        assert (status, json.loads(body)) == (200, {"verification": "madeUpChallenge-1"})
        status, _, _ = await ask(made, "okta", "GET", headers=[*challenge, challenge[0]])
        assert status == 400
        status, _, _ = await ask(made, "okta", "GET")
        assert status == 405


@pytest.mark.parametrize("name", ["cloudevents", "cloudevents_binary", "azure_event_grid_cloudevents"])
async def test_cloudevents(site: Site, name: str) -> None:
    source(site, name, "an operator's own secret", origins=["eventemitter.example.com"])
    async with serving(site) as made:
        asking = [("webhook-request-origin", "eventemitter.example.com"), ("webhook-request-rate", "120")]
        status, body, headers = await ask(made, name, "OPTIONS", headers=asking)
        assert (status, body) == (200, b"")
        assert headers["webhook-allowed-origin"] == "eventemitter.example.com"
        assert "webhook-allowed-rate" in headers
        assert headers["allow"] == "POST"
        stranger = [("webhook-request-origin", "evil.example")]
        status, _, headers = await ask(made, name, "OPTIONS", headers=stranger)
        assert status == 403
        assert "webhook-allowed-origin" not in headers


async def test_braintree(site: Site) -> None:
    source(site, "braintree", PAIR)
    public, _, private = PAIR.partition(":")
    async with serving(site) as made:
        status, body, _ = await ask(made, "braintree", "GET", "?bt_challenge=20f9f8ed05f77439fe955c977e4c8a53")
        key = hashlib.sha1(private.encode()).digest()
        mac = hmac.new(key, b"20f9f8ed05f77439fe955c977e4c8a53", "sha1").hexdigest()
        assert (status, body.decode()) == (200, f"{public}|{mac}")
        status, _, _ = await ask(made, "braintree", "GET", "?bt_challenge=not-hex")
        assert status == 400


# ── questions that come as deliveries ────────────────────────────────────────


async def test_event_grid(site: Site) -> None:
    source(site, "azure_event_grid", "an operator's own secret")
    question = [
        {
            "id": "1",
            "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
            "data": {"validationCode": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"},
        }
    ]
    body, kind = json.dumps(question).encode(), [("aeg-event-type", "SubscriptionValidation")]
    async with serving(site) as made:
        draft = made.signed("azure_event_grid", body)
        query = "?" + draft.url.partition("?")[2]
        status, said, _ = await ask(made, "azure_event_grid", "POST", query, body, kind)
        assert (status, json.loads(said)) == (200, {"validationResponse": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"})
        status, said, _ = await ask(made, "azure_event_grid", "POST", "?code=guessed", body, kind)
        assert (status, b"512d38b6" in said) == (401, False)
    assert await site.events() == []


async def test_event_grid_with_a_token_of_entras(site: Site, tmp_path: Any) -> None:
    key = tmp_path / "entra.pem"
    key.write_bytes(new_test_key(contracts()["azure_event_grid_entra"].scheme))  # type: ignore[arg-type]
    issuer = "https://login.microsoftonline.com/made-up-tenant/v2.0"
    options = {"issuers": [issuer], "test_key": f"file:{key}"}
    source(site, "azure_event_grid_entra", "api://made-up-application", options=options)
    kind = "Microsoft.EventGrid.SubscriptionValidationEvent"
    body = json.dumps([{"id": "1", "eventType": kind, "data": {"validationCode": "512d38b6"}}]).encode()
    async with serving(site) as made:
        draft = made.signed("azure_event_grid_entra", body)
        draft = msgspec.structs.replace(draft, headers={**draft.headers, b"aeg-event-type": "SubscriptionValidation"})
        good = await made.send("azure_event_grid_entra", draft)
        assert (good.status, good.json) == (200, {"validationResponse": "512d38b6"})
        bare = {name: value for name, value in draft.headers.items() if name != b"authorization"}
        refused = await made.send("azure_event_grid_entra", msgspec.structs.replace(draft, headers=bare))
        assert (refused.status, b"512d38b6" in refused.body) == (401, False)
    assert await site.events() == []


async def test_woocommerce(site: Site) -> None:
    source(site, "woocommerce")
    form = [("content-type", "application/x-www-form-urlencoded")]
    async with serving(site) as made:
        status, _, _ = await ask(made, "woocommerce", "POST", "", b"webhook_id=17", form)
        assert status == 200
        for other in (b"webhook_id=17&id=5", b"webhook_id=x", b'{"webhook_id": 17}', b""):
            status, _, _ = await ask(made, "woocommerce", "POST", "", other, form)
            assert status == 401
    assert await site.events() == []


async def test_github_ping_is_an_event(site: Site) -> None:
    source(site, "github")
    async with serving(site) as made:
        answer = await made.post("github", b'{"zen":"made up","hook_id":1}', event_type="ping")
        assert answer.status == 202
    [event] = await site.events()
    assert event.type == "ping"


async def test_intercom_looks_whether_the_url_is_there(site: Site) -> None:
    source(site, "intercom")
    source(site, "stripe")
    async with serving(site) as made:
        status, body, _ = await ask(made, "intercom", "HEAD")
        assert (status, body) == (200, b"")
        for provider, method in (("intercom", "GET"), ("intercom", "OPTIONS"), ("stripe", "HEAD")):
            assert (await ask(made, provider, method))[0] == 405
    assert await site.events() == []


HERE = {
    *("slack_events", "zoom", "discord_interactions", "discord_events", "meta", "meta_whatsapp", "meta_messenger"),
    *("dropbox", "okta", "cloudevents", "cloudevents_binary", "azure_event_grid_cloudevents", "braintree"),
    *("azure_event_grid", "azure_event_grid_entra", "woocommerce", "intercom"),
}
"""Asked over HTTP in this file, by their names."""
ELSEWHERE = {"aws_sns"}
"""In test_published_keys.py."""


def test_every_handshake_is_asked_over_http() -> None:
    assert {name for name, contract in contracts().items() if contract.handshakes} == HERE | ELSEWHERE
    text = Path(__file__).read_text().partition("HERE = {")[0]
    assert [name for name in HERE if f'"{name}"' not in text] == []


async def test_an_unregistered_status(site: Site) -> None:
    source(site, "gocardless")
    async with serving(site) as made:
        refused = await made.send("gocardless", _broken(made.signed("gocardless", b'{"events":[]}')))
    assert (refused.status, refused.json) == (498, {"error": "signature_mismatch"})
