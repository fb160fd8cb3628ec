"""100,000 requests that differ from an authentic one in a single byte: none is accepted that says anything else.

Each byte of the body, of the query where the URL is signed, and of every header that the proof is made of. Where a
mutated request is accepted, one of the reasons below must hold, and must be the one listed for its contract.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from hookledger.errors import Rejected, UnreadableError
from hookledger.model import Request
from hookledger.providers import forms
from hookledger.providers.catalogue import contracts
from hookledger.providers.schemes import adyen, sns
from hookledger.providers.schemes.base import KeyNeeded
from hookledger.providers.tolerant import decode_json
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.verify import verify
from tests.providers.made import FIRST, endpoint_of, sent

NOW = 1763000000.0
TOTAL = 100_000
NAMES = sorted(contracts())
EACH = -(-TOTAL // len(NAMES))


def proof_headers(endpoint: Endpoint, request: Request) -> list[bytes]:
    """The headers that the scheme names: signature, time, id, credential. Named, not found out by trying."""
    scheme, named = endpoint.contract.scheme, set()
    for field in ("header", "id_header", "version_header"):
        named |= {getattr(scheme, field, None) or b""}
    timestamp = getattr(scheme, "timestamp", None)
    named |= {(timestamp and timestamp.header) or b""}
    if getattr(scheme, "kind", "") == "paypal":
        named |= {b"paypal-transmission-id", b"paypal-transmission-time", b"paypal-transmission-sig"}
        named |= {b"paypal-cert-url", b"paypal-auth-algo"}
    present = [name for name, value in request.headers if value]
    if getattr(scheme, "numbered", False):
        named |= {name for name in present if name.startswith(b"x-docusign-signature-")}
    return [name for name in present if name in named]


def accepted(endpoint: Endpoint, request: Request) -> bool:
    try:
        verify(endpoint, request, NOW)
    except (Rejected, KeyNeeded):  # another key would have to be fetched: nothing is believed by that
        return False
    return True


def mutants(endpoint: Endpoint, request: Request, count: int, rng: random.Random) -> list[tuple[str, Request]]:
    """(place, request), each with one byte changed."""
    places: list[tuple[str, bytes, Callable[[bytes], Request]]] = [
        ("body", request.body, lambda raw: replace(request, body=raw))
    ]
    if endpoint.contract.needs_public_url or endpoint.contract.scheme.secret_parameters:
        places.append(("query", request.query, lambda raw: replace(request, query=raw)))
    for name in proof_headers(endpoint, request):
        value = next(v for n, v in request.headers if n == name)

        places.append((f"header {name.decode()}", value, partial(_with_header, request, name)))
    everywhere = [(place, raw, at, put) for place, raw, put in places for at in range(len(raw))]
    made = []
    for _ in range(count):
        place, raw, at, put = rng.choice(everywhere)
        other = rng.choice([byte for byte in range(256) if byte != raw[at]])
        made.append((place, put(raw[:at] + bytes([other]) + raw[at + 1 :])))
    return made


def _with_header(request: Request, name: bytes, value: bytes) -> Request:
    return replace(request, headers=tuple((n, value if n == name else v) for n, v in request.headers))


# ── why a mutated request may be accepted ────────────────────────────────────

UNCOVERED = "the proof does not cover the body"
FIELDS = "the proof covers named fields of the body only"
SAME_FORM = "it decodes to the same form"
CASE = "the name of an authentication scheme has no case"
HEX = "the signature is written in other letters of the same hex"


def reason(endpoint: Endpoint, before: Request, place: str, after: Request) -> str | None:
    scheme = endpoint.contract.scheme
    if place == "body":
        if scheme.coverage in ("nothing", "fields") and not _same_signed_fields(endpoint, before.body, after.body):
            return None
        if scheme.coverage != "body":
            return UNCOVERED if scheme.coverage == "nothing" else FIELDS
        if endpoint.contract.content != "json" and _same_form(before.body, after.body, endpoint):
            return SAME_FORM
    if place == "query" and _pairs(before.query) == _pairs(after.query):
        return SAME_FORM
    if place.startswith("header ") and getattr(scheme, "encoding", "") == "hex":
        header = place.removeprefix("header ").encode()
        if (before.value(header) or b"").lower() == (after.value(header) or b"").lower():
            return HEX
    if place == "header authorization" and _lowered(before) == _lowered(after):
        return CASE
    return None


SIGNED_FIELDS: dict[str, list[tuple[str, ...]]] = {
    "adyen_classic": [("notificationItems", "*", "NotificationRequestItem", *path) for path in adyen.SIGNED]
    + [("notificationItems", "*", "NotificationRequestItem", "additionalData", "hmacSignature")],
    "aws_sns": [(name,) for name in (*sns.FIELDS, "Signature", "SignatureVersion", "SigningCertURL")],
    "mailgun": [("signature", name) for name in ("timestamp", "token", "signature")],
}
"""What of a body is signed, or is the signature, where the rest is not."""


def _same_signed_fields(endpoint: Endpoint, before: bytes, after: bytes) -> bool:
    ways = SIGNED_FIELDS.get(endpoint.contract.name, [])
    return [_at(before, way) for way in ways] == [_at(after, way) for way in ways]


def _at(raw: bytes, way: tuple[str, ...]) -> object:
    try:
        value = decode_json(raw)
    except UnreadableError:
        return None
    for name in way:
        if name == "*":
            value = value[0] if isinstance(value, list) and value else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _pairs(raw: bytes) -> list[tuple[bytes, bytes]] | None:
    try:
        return sorted(forms.pairs(raw))
    except ValueError:
        return None


def _same_form(before: bytes, after: bytes, endpoint: Endpoint) -> bool:
    if endpoint.contract.content == "braintree":  # only these two fields are read
        names = (b"bt_payload", b"bt_signature")
        return [p for p in _pairs(before) or [] if p[0] in names] == [p for p in _pairs(after) or [] if p[0] in names]
    return _pairs(before) == _pairs(after)


def _lowered(request: Request) -> tuple[bytes, bytes]:
    scheme, _, rest = (request.value(b"authorization") or b"").partition(b" ")
    return scheme.lower(), rest


LISTED: dict[str, set[str]] = {
    **{
        name: {UNCOVERED}
        for name in (
            "auth0_events",  # a presented secret, for these and those without a remark
            "auth0_logs",
            "azure_event_grid",
            "azure_event_grid_cloudevents",
            "azure_event_grid_entra",  # a token that says who sends, and nothing of what
            "chargebee_key",
            "gitlab",
            "google_pubsub",  # likewise
            "jira_app",  # likewise
            "mailgun",  # a time and a token are signed
            "mollie_classic",
            "okta",
            "telegram",
        )
    },
    "adyen_classic": {FIELDS},
    "aws_sns": {FIELDS},
    "braintree": {SAME_FORM},
    "chargebee": {UNCOVERED, CASE},
    "cloudevents": {UNCOVERED, CASE},
    "cloudevents_binary": {UNCOVERED, CASE},
    "discord_events": {HEX},
    "discord_interactions": {HEX},
    "postmark": {UNCOVERED, CASE},
    "postmark_inbound": {UNCOVERED, CASE},
    "twilio": {SAME_FORM},
    "twilio_json": {SAME_FORM},
    "twilio_voice": {SAME_FORM},
}
"""Of which contracts mutated requests are accepted at all, and why. PayPal's checksum finds every single byte."""


def test_every_contract_has_an_example() -> None:
    assert set(FIRST) == set(NAMES)


# proves R1
@pytest.mark.parametrize("name", NAMES)
def test_no_byte_can_be_changed(name: str) -> None:
    example = FIRST[name]
    endpoint, request = endpoint_of(example), sent(example, NOW)
    assert accepted(endpoint, request)
    seen: Counter[str] = Counter()
    for place, mutant in mutants(endpoint, request, EACH, random.Random(name)):
        if accepted(endpoint, mutant):
            why = reason(endpoint, request, place, mutant)
            assert why is not None, f"{place}: {mutant}"
            seen[why] += 1
    assert set(seen) <= LISTED.get(name, set())
    assert (UNCOVERED in seen) == (UNCOVERED in LISTED.get(name, set()))
