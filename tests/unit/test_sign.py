"""What we sign, providers' own verifiers take; what providers publish, we reproduce."""

from __future__ import annotations

import base64
import time

import pytest
import standardwebhooks
import stripe

from hookledger.model import Request
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.receive.verify import verify
from tests.endpoints import configure

BODY = b'{"id": "evt_1", "type": "invoice.paid"}'
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
NOW = 1_700_000_000.5
GENERIC: dict[str, object] = {
    "header": "X-Sig",
    "alg": "sha512",
    "encoding": "base64",
    "prefix": "s=",
    "separator": ";",
    "timestamp_prefix": "t=",
    "timestamp_unit": "ms",
    "id_header": "X-Id",
    "id": "header:X-Id",
    "message": "{id}|{ts}|{body}",
}


def as_request(headers: list[tuple[str, str]], body: bytes = BODY) -> Request:
    return Request("POST", "/", b"", tuple((n.encode(), v.encode()) for n, v in headers), body)


@pytest.mark.parametrize("name", ["github", "hmac", "standard_webhooks", "stripe"])  # all of them: tests/providers
@pytest.mark.parametrize("body", [BODY, b"", b"\x00\xff", b"payload=%7B%7D"])
def test_what_is_signed_verifies(name: str, body: bytes) -> None:
    contract = find(name, GENERIC if name == "hmac" else None)
    endpoint = configure("s", contract, [SECRET])
    for secret in (SECRET, endpoint.secrets[0].key):
        headers = sign(contract, secret, body, now=NOW, event_type="push")
        assert verify(endpoint, as_request(headers, body), NOW).secret == endpoint.secrets[0].fingerprint
        assert len(dict(headers)) == len(headers)


def test_stripe_takes_our_signature() -> None:
    header = dict(sign(find("stripe"), SECRET, BODY, now=time.time()))["stripe-signature"]
    assert stripe.WebhookSignature.verify_header(BODY, header, SECRET, 300)
    text = BODY.decode()
    generated = stripe.WebhookSignature.generate_signature_header(text, SECRET, int(NOW))
    assert generated == dict(sign(find("stripe"), SECRET, BODY, now=NOW))["stripe-signature"]


def test_standard_webhooks_takes_our_signature() -> None:
    headers = dict(sign(find("standard_webhooks"), SECRET, BODY, now=time.time(), event_id="msg_1"))
    assert headers["webhook-id"] == "msg_1"
    assert standardwebhooks.Webhook(SECRET).verify(BODY, headers)["id"] == "evt_1"


def test_github_headers() -> None:
    contract = find("github")
    headers = dict(sign(contract, "a secret of mine", BODY, now=NOW, event_id="guid", event_type="issues.opened"))
    assert headers["x-github-delivery"] == "guid"
    assert headers["x-github-event"] == "issues"
    assert headers["content-type"] == "application/json"
    form = dict(sign(contract, "a secret of mine", b"payload=%7B%7D", now=NOW))
    assert form["content-type"] == "application/x-www-form-urlencoded"
    assert form["x-github-delivery"] != dict(sign(contract, "a secret", b"", now=NOW))["x-github-delivery"]
    assert "x-github-event" not in form


def test_github_published_vector() -> None:
    headers = dict(sign(find("github"), "It's a Secret to Everybody", b"Hello, World!", now=NOW))
    assert headers["x-hub-signature-256"] == (
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    )
