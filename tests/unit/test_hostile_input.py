"""Whatever a stranger sends ends in a refusal; whatever a provider sends ends in items that a database can hold.

A forged request is a good one with at least one change that the signature must notice, or garbage throughout.
Changes that leave the signed message and a good signature in place are not among them.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookledger.clock import Clock
from hookledger.errors import NoKey, Rejected
from hookledger.model import Item, Proof, Request
from hookledger.providers.catalogue import find
from hookledger.providers.schemes.hmac import Hmac
from hookledger.providers.sign import sign
from hookledger.receive.app import Intake
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.identify import LATEST, identify
from hookledger.receive.reasons import UNPROVED
from hookledger.receive.record import Recorder
from hookledger.receive.rejections import RejectionSampler, SampleSettings
from hookledger.receive.verify import verify
from tests.endpoints import configure
from tests.soak import amount

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
NOW = 1_700_000_000.0
BODY = b'{"id": "evt_1", "type": "invoice.paid", "created": 1700000000, "data": {"object": {"id": "in_1"}}}'
GENERIC: dict[str, object] = {
    "header": "X-Sig",
    "encoding": "base64",
    "prefix": "s=",
    "timestamp_header": "X-Time",
    "timestamp_unit": "ms",
    "id_header": "X-Id",
    "id": "header:X-Id",
    "message": "{id}:{ts}:{body}",
}
ENDPOINTS = {
    "stripe": configure("stripe", find("stripe"), [SECRET, SECRET + "x"]),
    "github": configure("github", find("github"), [SECRET]),
    "standard_webhooks": configure("standard", find("standard_webhooks"), [SECRET]),
    "hmac": configure("acme", find("hmac", GENERIC), [SECRET]),
}


def scheme_of(name: str) -> Hmac:
    scheme = ENDPOINTS[name].contract.scheme
    assert isinstance(scheme, Hmac)
    return scheme


SIGNATURE_OF = {name: scheme_of(name).header for name in ENDPOINTS}
WRONG_SECRET = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()

many = settings(
    max_examples=amount(500, 3_000, 10_000),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# One draw of bytes per example, which seed plain Python: ten thousand examples of a
# deep strategy, or even of bytes of any length, would spend their time in the generator.
hostile = st.binary(min_size=16, max_size=16)


def dealt(drawn: bytes) -> tuple[random.Random, bytes]:
    return random.Random(drawn), drawn[3 : 3 + drawn[1] % 14]


NASTY = [
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe",
    b"=",
    b",",
    b"v1=",
    b"v1,",
    b"t=",
    b"sha256=",
    b"s=",
    b"t=1,v1=",
    b"t=1700000000,v1=" + b"0" * 64,
    b"v1," + b"A" * 43 + b"=",
    b"s=" + b"A" * 43 + b"=",
    b"sha256=" + b"0" * 64,
    b"9" * 5000,
    b"1" * 15,
    b"-1",
    b"1e9",
    b"NaN",
    b"1_700_000_000",
    "\u0661\u0667".encode(),
    "²".encode(),
    b"0x65",
    b"t=,v1=,t=,v1=",
    b"\xed\xa0\x80",
    b"a.b",
    b"a:b",
    b"{}",
]


def good_headers(name: str, body: bytes = BODY, secret: str = SECRET) -> list[tuple[bytes, bytes]]:
    contract = ENDPOINTS[name].contract
    signed = sign(contract, secret, body, now=NOW, event_id="evt_1", event_type="invoice.paid")
    return [(key.encode(), value.encode()) for key, value in signed]


GOOD = {name: good_headers(name) for name in ENDPOINTS}
WRONG = {name: good_headers(name, secret=WRONG_SECRET) for name in ENDPOINTS}


def changed(value: bytes, noise: bytes, dice: random.Random) -> bytes:
    """Another value: some bytes of it flipped, cut, inserted or replaced."""
    at = dice.randrange(len(value) + 1)
    drawn = noise or dice.choice(NASTY)
    result = dice.choice(
        (
            value[:at] + drawn + value[at:],
            value[:at],
            value[at:],
            value[:at] + bytes([dice.randrange(256)]) + value[at + 1 :],
            value.upper(),
            value[::-1],
            drawn,
            value + value,
        )
    )
    return result if result != value else value + b"!"


def broken_signature(name: str, noise: bytes, dice: random.Random) -> bytes:
    """A signature header in which no element is the good signature."""
    header = SIGNATURE_OF[name]
    value = dict(GOOD[name])[header]
    scheme = scheme_of(name)
    signature = value.rpartition(scheme.prefix)[2]
    result = changed(value, noise, dice)
    # A change that left the signature whole (one beside it, say) is no forgery: break the signature itself.
    return result.replace(signature, signature[:-2] + b"!!") if signature in result else result


def forge(name: str, drawn: bytes) -> Request:
    dice, noise = dealt(drawn)
    headers, body = list(GOOD[name]), BODY
    match dice.randrange(6):
        case 0:
            body = changed(BODY, noise, dice)
        case 1:
            header = SIGNATURE_OF[name]
            value = broken_signature(name, noise, dice)
            headers = [(key, value if key == header else old) for key, old in headers]
        case 2:  # the time and the id are signed where the scheme has them; elsewhere only the signature is
            signed = scheme_of(name)
            places = [signed.id_header, signed.timestamp and signed.timestamp.header]
            place = dice.choice([p for p in places if p] or [signed.header])
            value = broken_signature(name, noise, dice)
            if place != signed.header:
                value = changed(dict(headers)[place], noise, dice)
            headers = [(key, value if key == place else old) for key, old in headers]
        case 3:
            headers = list(WRONG[name])
            dice.shuffle(headers)
            if dice.random() < 0.5:
                body = changed(BODY, noise, dice)
        case 4:  # a needed header twice, or not at all
            header = SIGNATURE_OF[name]
            if dice.random() < 0.5:
                headers = [pair for pair in headers if pair[0] != header]
            else:
                headers.insert(dice.randrange(len(headers) + 1), (header, noise or dice.choice(NASTY)))
        case _:
            headers = [(key, dice.choice((noise, dice.choice(NASTY), dice.randbytes(40)))) for key, _ in headers]
            body = dice.choice((BODY, noise, dice.randbytes(64)))
    return Request("POST", "/", b"", tuple(headers), body)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_the_good_request_is_accepted(name: str) -> None:
    assert verify(ENDPOINTS[name], Request("POST", "/", b"", tuple(GOOD[name]), BODY), NOW)


class NoStore:
    """Nothing forged may get this far."""

    async def record_new(self, arrivals: object) -> Any:
        raise AssertionError("recorded")

    async def record(self, arrivals: object) -> Any:
        raise AssertionError("recorded")

    async def add(self, sample: object, counts: object, *, most: int, most_bytes: int) -> None:
        raise AssertionError("nobody flushes here")


@cache
def whole_intake() -> tuple[asyncio.AbstractEventLoop, Intake]:
    async def make() -> Intake:
        endpoints = {endpoint.path: endpoint for endpoint in ENDPOINTS.values()}
        refusals = RejectionSampler(NoStore(), SampleSettings(), lambda: NOW)
        return Intake(endpoints, Recorder(NoStore()), refusals, clock=Clock(NOW - time.time()))

    loop = asyncio.new_event_loop()
    return loop, loop.run_until_complete(make())


def answer(name: str, request: Request) -> int:
    """The status that the whole intake gives, from ASGI in to ASGI out."""
    loop, intake = whole_intake()
    scope = {"method": "POST", "path": ENDPOINTS[name].path, "query_string": b"", "headers": list(request.headers)}
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    loop.run_until_complete(intake(scope, receive, send))
    status: int = said[0]["status"]
    return status


def never_accepted(name: str, drawn: bytes) -> None:
    """Not by `verify`, and not by the whole intake: a 4xx, and nothing recorded."""
    request = forge(name, drawn)
    try:
        proof = verify(ENDPOINTS[name], request, NOW)
    except Rejected as refusal:
        assert refusal.reason in UNPROVED
    else:
        pytest.fail(f"accepted: {proof}")
    assert 400 <= answer(name, request) < 500


@pytest.mark.parametrize("name", ENDPOINTS)
def test_the_good_request_gets_as_far_as_the_store(name: str) -> None:
    """So that the refusals below are about what was forged. There is no store here: 503."""
    assert answer(name, Request("POST", "/", b"", tuple(GOOD[name]), BODY)) == 503


# proves R2
@pytest.mark.soak
@many
@given(hostile)
def test_stripe_accepts_no_forgery(drawn: bytes) -> None:
    never_accepted("stripe", drawn)


@pytest.mark.soak
@many
@given(hostile)
def test_github_accepts_no_forgery(drawn: bytes) -> None:
    never_accepted("github", drawn)


@pytest.mark.soak
@many
@given(hostile)
def test_standard_webhooks_accepts_no_forgery(drawn: bytes) -> None:
    never_accepted("standard_webhooks", drawn)


@pytest.mark.soak
@many
@given(hostile)
def test_hmac_accepts_no_forgery(drawn: bytes) -> None:
    never_accepted("hmac", drawn)


# ── identify ─────────────────────────────────────────────────────────────────

PROOF = Proof("hmac-sha256", "fingerprint")
BATCH = configure(
    "batch",
    find("hmac", {"header": "X-Sig", "items": "", "id": "body:id", "type": ["body:type"], "volatile": ["n"]}),
    [SECRET],
)
STRICT = configure("strict", find("stripe"), [SECRET], key_required=True, types=["a*"], other_types="reject")
LOOSE = [*ENDPOINTS.values(), BATCH]

ATOMS = [
    b"null", b"true", b"0", b"-1", b"1e400", b"NaN", b"Infinity", b"1" * 30, b"9" * 4000, b"1700000000", b'""',
    b'"evt"', rb'"\u0000"', rb'"\ud800"', rb'"\udc00\ud800"', '"é\u2028"'.encode(), b'"' + b"x" * 300 + b'"',
    '"{}"'.format("\U0001f600" * 300).encode(), b'"2024-01-01T00:00:00Z"', rb'"\n\t\u001b"',
    b'"9999-12-31T23:59:59-23:59"',
]  # fmt: skip
POISON = [b'"\xff"', b'"\x01"', b"9" * 4400, b"[" * 200 + b"]" * 200, b"[" * 5000]
NAMES = [b"id", b"type", b"created", b"timestamp", b"data", b"object", b"action", b"related_object", b"n", b"x"]


def nasty_json(dice: random.Random, depth: int = 0) -> bytes:
    roll = dice.random()
    if depth > 3 or (depth and roll < 0.4):
        return dice.choice(ATOMS if dice.random() < 0.97 else POISON)
    if roll < (0.5 if depth else 0.15):
        return b"[" + b",".join(nasty_json(dice, depth + 1) for _ in range(dice.randrange(4))) + b"]"
    pairs = (b'"%b": %b' % (dice.choice(NAMES), nasty_json(dice, depth + 1)) for _ in range(dice.randrange(6)))
    return b"{" + b",".join(pairs) + b"}"


def authentic(drawn: bytes) -> Request:
    dice, noise = dealt(drawn)
    body = nasty_json(dice)
    match dice.randrange(8):
        case 0:
            body = noise
        case 1:
            body = changed(body, noise, dice)
        case 2:
            body = b"payload=" + body
        case 3:
            body = b"[" + body + b",{}," + body + b"]"
    names = [b"webhook-id", b"x-github-delivery", b"x-github-event", b"x-id"]
    headers = tuple((key, dice.choice((noise, dice.choice(NASTY), b"ok"))) for key in names if dice.random() < 0.8)
    return Request("POST", "/", b"", headers, body)


def storable(item: Item) -> None:
    for text in (item.key, item.type, item.provider_id, item.object_id, item.delivery_id, item.invalid, item.skip):
        if text is not None:
            text.encode()  # no lone surrogates
            assert 0 < len(text) <= 255
            assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)
    for digest in (item.identity, item.fingerprint, item.body_identity or bytes(32)):
        assert len(digest) == 32
    assert item.occurred_at is None or 0 <= item.occurred_at < LATEST


@pytest.mark.soak
@many
@given(hostile)
def test_authentic_bodies_always_give_storable_items(drawn: bytes) -> None:
    wanted = authentic(drawn)
    endpoint: Endpoint = LOOSE[drawn[-1] % len(LOOSE)]
    found = identify(endpoint, wanted, PROOF, NOW)
    assert found or endpoint is BATCH
    assert found == identify(endpoint, wanted, PROOF, NOW)
    for item in found:
        storable(item)


@pytest.mark.soak
@many
@given(hostile)
def test_strict_sources_refuse_only_by_rule(drawn: bytes) -> None:
    try:
        found = identify(STRICT, authentic(drawn), PROOF, NOW)
    except NoKey as refusal:
        assert refusal.reason == "key_missing"
    except Rejected as refusal:
        assert refusal.reason == "type_rejected"
    else:
        assert len(found) == 1
        storable(found[0])
