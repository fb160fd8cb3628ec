"""Requests that are nearly as the provider sends them: what still is one, and what is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from hookledger import ConfigError, Inbox
from hookledger.config import decode
from hookledger.errors import Malformed, Unauthentic
from hookledger.model import Item, Request
from hookledger.providers.schemes.times import seconds, written
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from tests.endpoints import configure
from tests.providers.made import FIRST, contract_of, endpoint_of, sent

NOW = 1763000000.0


def found(endpoint: Endpoint, request: Request) -> tuple[Item, ...]:
    return identify(endpoint, request, verify(endpoint, request, NOW), NOW)


def with_headers(request: Request, *headers: tuple[bytes, bytes]) -> Request:
    """With these instead of those of the same names."""
    names = {name for name, _ in headers}
    return replace(request, headers=(*(pair for pair in request.headers if pair[0] not in names), *headers))


# ── HubSpot: the request does not choose the version ─────────────────────────

VERSION = b"x-hubspot-signature-version"


@pytest.mark.parametrize(
    ("name", "said", "accepted"),
    [
        ("hubspot_v2", [b"v2"], True),
        ("hubspot_v2", [b"v1"], False),
        ("hubspot_v2", [b"v3"], False),
        ("hubspot_v2", [], False),
        ("hubspot_v2", [b"v2", b"v2"], False),
        ("hubspot_v2", [b"v1", b"v2"], False),
        ("hubspot_v1", [b"v1"], True),
        ("hubspot_v1", [], True),  # as it came once
        ("hubspot_v1", [b"v2"], False),
        ("hubspot_v1", [b""], False),
        ("hubspot_v1", [b"v1", b"v2"], False),
    ],
)
def test_hubspot_versions(name: str, said: list[bytes], accepted: bool) -> None:
    """The hash is right in each case: only what is said about it differs."""
    endpoint, request = endpoint_of(FIRST[name]), sent(FIRST[name], NOW)
    others = tuple(pair for pair in request.headers if pair[0] != VERSION)
    request = replace(request, headers=(*others, *((VERSION, one) for one in said)))
    if accepted:
        verify(endpoint, request, NOW)
        return
    with pytest.raises(Malformed) as caught:
        verify(endpoint, request, NOW)
    assert caught.value.reason == "signature_version"


def test_hubspot_one_version_is_no_proof_for_the_other() -> None:
    for name, other in (("hubspot_v1", "hubspot_v2"), ("hubspot_v2", "hubspot_v1")):
        request = sent(FIRST[name], NOW)
        with pytest.raises(Malformed):
            verify(endpoint_of(FIRST[other]), request, NOW)
        version = other.removeprefix("hubspot_").encode()
        with pytest.raises(Unauthentic, match="mismatch"):
            verify(endpoint_of(FIRST[other]), with_headers(request, (VERSION, version)), NOW)


# ── DocuSign: one header for each key ────────────────────────────────────────


def test_docusign_any_of_its_keys() -> None:
    endpoint, request = endpoint_of(FIRST["docusign"]), sent(FIRST["docusign"], NOW)
    [signature] = request.values(b"x-docusign-signature-1")
    bare = replace(request, headers=tuple(pair for pair in request.headers if b"signature" not in pair[0]))
    others = base64.b64encode(b"x" * 32)
    for names in ([2], [100], [1, 2], [1, 2, 3]):
        headers = tuple((b"x-docusign-signature-%d" % n, others) for n in names[:-1])
        last = (b"x-docusign-signature-%d" % names[-1], signature)
        verify(endpoint, replace(bare, headers=(*bare.headers, *headers, last)), NOW)
    with pytest.raises(Unauthentic, match="missing"):
        verify(endpoint, bare, NOW)
    with pytest.raises(Unauthentic, match="mismatch"):
        verify(endpoint, with_headers(bare, (b"x-docusign-signature-2", others)), NOW)


# ── Twilio Event Streams: one digest of the body, in the signed URL ──────────


def signed_url(query: str) -> tuple[Endpoint, Request]:
    """Twilio's own signature of a URL with this query."""
    example = FIRST["twilio_json"]
    url = f"{example.url}?{query}".encode()
    signature = base64.b64encode(hmac.new(example.secret.encode(), url, hashlib.sha1).digest())
    request = replace(sent(example, NOW), query=query.encode())
    return endpoint_of(example), with_headers(request, (b"x-twilio-signature", signature))


def test_twilio_one_digest_of_the_body() -> None:
    body = sent(FIRST["twilio_json"], NOW).body
    right, wrong = hashlib.sha256(body).hexdigest(), hashlib.sha256(b"another").hexdigest()
    verify(*signed_url(f"a=1&bodySHA256={right}"), NOW)
    for query in (
        f"bodySHA256={right}&bodySHA256={right}",
        f"bodySHA256={wrong}&bodySHA256={right}",
        f"bodySHA256={right}&bodySHA256={wrong}",
        f"bodySHA256={right}&bodySHA25%36={right}",
        f"bodysha256={right}",
        "a=1",
    ):
        with pytest.raises(Malformed) as caught:
            verify(*signed_url(query), NOW)
        assert caught.value.reason == "body_digest_missing", query
    with pytest.raises(Unauthentic) as unauthentic:
        verify(*signed_url(f"bodySHA256={wrong}"), NOW)
    assert unauthentic.value.reason == "body_digest_mismatch"


# ── times are the same wherever the server stands ────────────────────────────


@pytest.fixture(params=["UTC0", "TST-9", "TST+8"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """East and west of Greenwich, in words that need no table of zones."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_a_signed_time_is_the_same_in_every_zone() -> None:
    for text in (b"2025-11-13T02:13:20Z", b"2025-11-13T07:43:20+05:30", b"2025-11-12T22:13:20-04:00"):
        assert seconds(text, "iso") == NOW
    assert seconds(b"2025-11-13T02:13:20.250000000Z", "iso") == NOW + 0.25
    assert written(NOW, "iso") == b"2025-11-13T02:13:20Z"
    assert seconds(b"1763000000", "s") == NOW


@pytest.mark.usefixtures("zone")
def test_the_time_of_an_event_is_the_same_in_every_zone() -> None:
    endpoint = endpoint_of(FIRST["xero"])
    body: Any = FIRST["xero"].body
    for text in ("2025-11-13T02:13:20", "2025-11-13T02:13:20Z", "2025-11-13T07:43:20+05:30"):
        event = {**body["events"][0], "eventDateUtc": text}
        request = sent(replace(FIRST["xero"], body={**body, "events": [event]}), NOW)
        [item] = found(endpoint, request)
        assert item.occurred_at == NOW, "Xero writes no zone, and means UTC"


def test_a_token_ends_when_it_says() -> None:
    contract = contract_of("google_pubsub")
    own = contract.scheme.tolerance
    assert own is not None
    assert configure("s", contract, ["https://hooks.example.com"], tolerance=own).tolerance == own
    assert configure("s", contract, ["https://hooks.example.com"], tolerance=60).tolerance == 60
    with pytest.raises(ConfigError, match="tolerance must be at most 3660 s"):
        configure("s", contract, ["https://hooks.example.com"], tolerance=own + 1)
    source = {"provider": "google_pubsub", "secrets": ["https://hooks.example.com"], "tolerance": "2h"}
    settings = decode({"sources": {"s": {**source, "options": {"email": "made-up@example.com"}}}})
    with pytest.raises(ConfigError, match="set their own expiry"):
        Inbox(settings=settings)


# ── a batch, rendered anew ───────────────────────────────────────────────────


def backwards(value: Any) -> Any:
    """The same JSON with the fields of each object in the opposite order."""
    if isinstance(value, dict):
        return {name: backwards(inner) for name, inner in reversed(value.items())}
    return [backwards(inner) for inner in value] if isinstance(value, list) else value


BATCHES = sorted(
    name
    for name, example in FIRST.items()
    if contract_of(name).items is not None and not isinstance(example.body, bytes)
)


@pytest.mark.parametrize("name", BATCHES)
def test_fields_in_another_order_are_no_other_content(name: str) -> None:
    example = FIRST[name]
    again = replace(example, body=backwards(example.body))
    assert json.dumps(again.body) != json.dumps(example.body)
    endpoint = endpoint_of(example)
    first, second = found(endpoint, sent(example, NOW)), found(endpoint, sent(again, NOW))
    assert [item.fingerprint for item in first] == [item.fingerprint for item in second]
    assert [item.identity for item in first] == [item.identity for item in second]
    assert [item.body_identity for item in first] == [item.body_identity for item in second]
