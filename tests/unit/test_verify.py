"""Verification, held against the providers' own libraries and published vectors."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from unittest import mock

import pytest
import standardwebhooks
import stripe

from hookledger.errors import ConfigError, Malformed, Rejected, Unauthentic
from hookledger.model import Headers, Request
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.reasons import UNPROVED
from hookledger.receive.secrets import Secret, load_secret
from hookledger.receive.verify import verify
from tests.endpoints import configure

STRIPE, GITHUB, STANDARD = find("stripe"), find("github"), find("standard_webhooks")
STRIPE_SECRET = "whsec_" + "s" * 32
OTHER_STRIPE = "whsec_" + "o" * 32
STANDARD_SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER_STANDARD = "whsec_" + base64.b64encode(b"o" * 32).decode()
GITHUB_SECRET = "It's a Secret to Everybody"
BODY = '{"id": "evt_1", "type": "invoice.paid", "name": "Zoë"}'.encode()
NOW = 1_700_000_000.0


def request(headers: list[tuple[str, str]] | Headers, body: bytes = BODY, query: bytes = b"") -> Request:
    raw = tuple((_bytes(name), _bytes(value)) for name, value in headers)
    return Request("POST", "/", query, raw, body)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def reason(endpoint: Endpoint, wanted: Request, now: float = NOW) -> str | None:
    try:
        verify(endpoint, wanted, now)
    except Rejected as refusal:
        assert refusal.reason in UNPROVED
        malformed = refusal.reason.endswith(("_duplicate", "_malformed"))
        assert type(refusal) is (Malformed if malformed else Unauthentic)
        return refusal.reason
    return None


def replaced(headers: list[tuple[str, str]], name: str, value: str | None) -> list[tuple[str, str]]:
    kept = [pair for pair in headers if pair[0] != name]
    return kept if value is None else [*kept, (name, value)]


# ── differential: Stripe ─────────────────────────────────────────────────────


def stripe_oracle(wanted: Request, secret: str) -> bool:
    header = wanted.value(b"stripe-signature")
    text = None if header is None else header.decode("latin-1")
    with mock.patch("stripe._webhook.time.time", return_value=NOW):
        try:
            stripe.WebhookSignature.verify_header(wanted.body, text, secret, 300)
        except stripe.SignatureVerificationError:
            return False
    return True


def stripe_header(body: bytes = BODY, secret: str = STRIPE_SECRET, now: float = NOW) -> str:
    return dict(sign(STRIPE, secret, body, now=now))["stripe-signature"]


def flipped(text: str) -> str:
    return text[:-3] + ("A" if text[-3] != "A" else "B") + text[-2:]


STRIPE_CASES: dict[str, tuple[Callable[[], str | None], bytes, str | None]] = {
    "good": (stripe_header, BODY, None),
    "tampered body": (stripe_header, BODY + b" ", "signature_mismatch"),
    "flipped signature": (
        lambda: stripe_header()[:-1] + ("0" if stripe_header()[-1] != "0" else "1"),
        BODY,
        "signature_mismatch",
    ),
    "wrong secret": (lambda: stripe_header(secret=OTHER_STRIPE), BODY, "signature_mismatch"),
    "missing header": (lambda: None, BODY, "signature_missing"),
    "empty header": (lambda: "", BODY, "signature_missing"),
    "no signature": (lambda: f"t={NOW:.0f}", BODY, "signature_malformed"),
    "only v0": (lambda: stripe_header().replace("v1=", "v0="), BODY, "signature_malformed"),
    "no timestamp": (lambda: stripe_header().split(",")[1], BODY, "timestamp_missing"),
    "words": (lambda: "t=now,v1=then", BODY, "timestamp_malformed"),
    "other timestamp": (
        lambda: f"t={NOW + 1:.0f}," + stripe_header().split(",")[1],
        BODY,
        "signature_mismatch",
    ),
    "stale": (lambda: stripe_header(now=NOW - 400), BODY, "timestamp_stale"),
    "old secret's v1 first": (
        lambda: stripe_header(secret=OTHER_STRIPE) + "," + stripe_header().split(",")[1],
        BODY,
        None,
    ),
    "unknown elements": (lambda: stripe_header() + ",v0=abc,v2=def,x", BODY, None),
}


@pytest.mark.parametrize("name", STRIPE_CASES)
def test_agrees_with_stripe(name: str) -> None:
    make, body, expected = STRIPE_CASES[name]
    value = make()
    wanted = request([] if value is None else [("stripe-signature", value)], body)
    assert reason(configure("s", STRIPE, [STRIPE_SECRET]), wanted) == expected
    assert stripe_oracle(wanted, STRIPE_SECRET) == (expected is None)


STRIPE_DIFFERENCES: dict[str, tuple[Callable[[], str], bytes, str | None]] = {
    # Stripe's library looks only backwards; a clock or a sender that far ahead is not to be trusted.
    "future": (lambda: stripe_header(now=NOW + 3600), BODY, "timestamp_future"),
    # int() takes these, and the signature is over the number as it prints, not over the bytes presented.
    "spaced timestamp": (lambda: stripe_header().replace("t=", "t= "), BODY, "timestamp_malformed"),
    "signed timestamp": (lambda: stripe_header().replace("t=", "t=+"), BODY, "timestamp_malformed"),
    # The library takes the first; two times are two claims.
    "two timestamps": (lambda: stripe_header() + ",t=1", BODY, "timestamp_duplicate"),
}


@pytest.mark.parametrize("name", STRIPE_DIFFERENCES)
def test_known_differences_from_stripe(name: str) -> None:
    make, body, expected = STRIPE_DIFFERENCES[name]
    wanted = request([("stripe-signature", make())], body)
    assert reason(configure("s", STRIPE, [STRIPE_SECRET]), wanted) == expected
    assert stripe_oracle(wanted, STRIPE_SECRET)


def test_bodies_are_bytes_for_stripe_too() -> None:
    body = b'{"id": "\xff\xfe"}'
    wanted = request([("stripe-signature", stripe_header(body))], body)
    assert reason(configure("s", STRIPE, [STRIPE_SECRET]), wanted) is None
    with pytest.raises(UnicodeDecodeError):  # known difference: the library signs text, not bytes
        stripe_oracle(wanted, STRIPE_SECRET)


# ── differential: Standard Webhooks ──────────────────────────────────────────


class Frozen(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Frozen:
        return cls.fromtimestamp(NOW, tz or UTC)


def standard_oracle(wanted: Request, secret: str) -> bool:
    headers = {name.decode(): value.decode("latin-1") for name, value in wanted.headers}
    with mock.patch("standardwebhooks.webhooks.datetime", Frozen):
        try:
            standardwebhooks.Webhook(secret).verify(wanted.body, headers, json_parse=False)
        except standardwebhooks.WebhookVerificationError:
            return False
    return True


def standard_headers(
    body: bytes = BODY, secret: str = STANDARD_SECRET, now: float = NOW, event_id: str = "msg_1"
) -> list[tuple[str, str]]:
    return sign(STANDARD, secret, body, now=now, event_id=event_id)


def standard_signature(secret: str = STANDARD_SECRET) -> str:
    return dict(standard_headers(secret=secret))["webhook-signature"]


STANDARD_CASES: dict[str, tuple[Callable[[], list[tuple[str, str]]], bytes, str | None]] = {
    "good": (standard_headers, BODY, None),
    "tampered body": (standard_headers, BODY + b" ", "signature_mismatch"),
    "flipped signature": (
        lambda: replaced(standard_headers(), "webhook-signature", flipped(standard_signature())),
        BODY,
        "signature_mismatch",
    ),
    "wrong secret": (lambda: standard_headers(secret=OTHER_STANDARD), BODY, "signature_mismatch"),
    "missing signature": (
        lambda: replaced(standard_headers(), "webhook-signature", None),
        BODY,
        "signature_missing",
    ),
    "missing timestamp": (
        lambda: replaced(standard_headers(), "webhook-timestamp", None),
        BODY,
        "timestamp_missing",
    ),
    "missing id": (lambda: replaced(standard_headers(), "webhook-id", None), BODY, "id_missing"),
    "other id": (lambda: replaced(standard_headers(), "webhook-id", "msg_2"), BODY, "signature_mismatch"),
    "other timestamp": (
        lambda: replaced(standard_headers(), "webhook-timestamp", f"{NOW - 1:.0f}"),
        BODY,
        "signature_mismatch",
    ),
    "words for a timestamp": (
        lambda: replaced(standard_headers(), "webhook-timestamp", "now"),
        BODY,
        "timestamp_malformed",
    ),
    "stale": (lambda: standard_headers(now=NOW - 400), BODY, "timestamp_stale"),
    "future": (lambda: standard_headers(now=NOW + 400), BODY, "timestamp_future"),
    "old secret's signature first": (
        lambda: replaced(
            standard_headers(),
            "webhook-signature",
            f"{standard_signature(OTHER_STANDARD)} {standard_signature()}",
        ),
        BODY,
        None,
    ),
    "other versions": (
        lambda: replaced(standard_headers(), "webhook-signature", f"v1a,AAAA v2,BBBB {standard_signature()}"),
        BODY,
        None,
    ),
    "only other versions": (
        lambda: replaced(standard_headers(), "webhook-signature", standard_signature().replace("v1,", "v1a,")),
        BODY,
        "signature_malformed",
    ),
}


@pytest.mark.parametrize("name", STANDARD_CASES)
def test_agrees_with_standard_webhooks(name: str) -> None:
    make, body, expected = STANDARD_CASES[name]
    wanted = request(make(), body)
    assert reason(configure("s", STANDARD, [STANDARD_SECRET]), wanted) == expected
    assert standard_oracle(wanted, STANDARD_SECRET) == (expected is None)


def test_known_differences_from_standard_webhooks() -> None:
    endpoint = configure("s", STANDARD, [STANDARD_SECRET])

    # The specification forbids the separator in ids; the library does not look.
    dotted = request(standard_headers(event_id="msg.1"))
    assert standard_oracle(dotted, STANDARD_SECRET)
    assert reason(endpoint, dotted) == "id_malformed"

    # The library takes any float, and signs its floor.
    fraction = request(replaced(standard_headers(), "webhook-timestamp", f"{NOW:.0f}.5"))
    assert standard_oracle(fraction, STANDARD_SECRET)
    assert reason(endpoint, fraction) == "timestamp_malformed"

    # An element without a comma, or that is no base64, makes the library fail with ValueError.
    for odd in ("v1", "nonsense", "v1,A"):
        garbled = request(replaced(standard_headers(), "webhook-signature", odd))
        with pytest.raises(ValueError):
            standard_oracle(garbled, STANDARD_SECRET)
        assert reason(endpoint, garbled) == "signature_malformed"

    # base64 ends in two bits that say nothing, so one signature has four spellings; we take the one that is sent.
    last = standard_signature()[-2]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    respelled = standard_signature()[:-2] + alphabet[alphabet.index(last) | 1] + "="
    spelled = request(replaced(standard_headers(), "webhook-signature", respelled))
    assert standard_oracle(spelled, STANDARD_SECRET)
    assert reason(endpoint, spelled) == "signature_mismatch"

    # The library signs text, not bytes.
    body = b"\xff\xfe"
    binary = request(standard_headers(body), body)
    with pytest.raises(UnicodeDecodeError):
        standard_oracle(binary, STANDARD_SECRET)
    assert reason(endpoint, binary) is None


def test_one_signature_cannot_be_read_as_two_events() -> None:
    """Shifting the border between id, time and body keeps the signed message, so must not keep the verdict."""
    endpoint = configure("s", STANDARD, [STANDARD_SECRET])
    later = f"{NOW + 1:.0f}"
    genuine = dict(standard_headers(f"{later}.{{}}".encode(), event_id="a"))
    shifted = {**genuine, "webhook-id": f"a.{NOW:.0f}", "webhook-timestamp": later}
    assert reason(endpoint, request(list(genuine.items()), f"{later}.{{}}".encode())) is None
    assert standard_oracle(request(list(shifted.items()), b"{}"), STANDARD_SECRET)
    assert reason(endpoint, request(list(shifted.items()), b"{}")) == "id_malformed"


# ── GitHub ───────────────────────────────────────────────────────────────────

VECTOR = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def test_github_published_vector() -> None:
    endpoint = configure("g", GITHUB, [GITHUB_SECRET])
    proof = verify(endpoint, request([("x-hub-signature-256", VECTOR)], b"Hello, World!"), NOW)
    assert (proof.scheme, proof.signed_at) == ("hmac-sha256", None)
    assert proof.secret == endpoint.secrets[0].fingerprint


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (VECTOR[:-1] + "8", "signature_mismatch"),
        (VECTOR.upper(), "signature_malformed"),
        (VECTOR[:-1], "signature_malformed"),
        (VECTOR[7:], "signature_malformed"),
        ("sha256=", "signature_malformed"),
        ("", "signature_missing"),
        ("sha256=" + "é" * 32, "signature_malformed"),
        ("sha256=" + "\u0661" * 64, "signature_malformed"),
    ],
)
def test_github_refuses(value: str, expected: str) -> None:
    endpoint = configure("g", GITHUB, [GITHUB_SECRET])
    assert reason(endpoint, request([("x-hub-signature-256", value)], b"Hello, World!")) == expected


def test_the_algorithm_is_not_the_senders_to_choose() -> None:
    body = b"Hello, World!"
    sha1 = hmac.new(GITHUB_SECRET.encode(), body, hashlib.sha1).hexdigest()
    endpoint = configure("g", GITHUB, [GITHUB_SECRET])
    assert reason(endpoint, request([("x-hub-signature", f"sha1={sha1}")], body)) == "signature_missing"
    assert reason(endpoint, request([("x-hub-signature-256", f"sha1={sha1}")], body)) == "signature_malformed"


# ── every scheme ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("headers", "name", "role", "contract", "secret"),
    [
        ([("stripe-signature", stripe_header())], "stripe-signature", "signature", STRIPE, STRIPE_SECRET),
        (standard_headers(), "webhook-signature", "signature", STANDARD, STANDARD_SECRET),
        (standard_headers(), "webhook-timestamp", "timestamp", STANDARD, STANDARD_SECRET),
        (standard_headers(), "webhook-id", "id", STANDARD, STANDARD_SECRET),
    ],
)
def test_a_doubled_header_is_refused_even_when_equal(
    headers: list[tuple[str, str]], name: str, role: str, contract: object, secret: str
) -> None:
    endpoint = configure("s", STRIPE if contract is STRIPE else STANDARD, [secret])
    assert reason(endpoint, request(headers)) is None
    doubled = [*headers, (name, dict(headers)[name])]
    assert reason(endpoint, request(doubled)) == f"{role}_duplicate"


@pytest.mark.parametrize(
    "digits", ["", "-1", "1.0", "1e9", "١٢٣٤", "²", " 1", "1_0", "0x1", "nan", "9" * 16, "9" * 100_000]
)
def test_timestamps_are_plain_bounded_digits(digits: str) -> None:
    endpoint = configure("s", STRIPE, [STRIPE_SECRET])
    assert reason(endpoint, request([("stripe-signature", f"t={digits},v1={'0' * 64}")])) == "timestamp_malformed"


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(-300, None), (-301, "timestamp_stale"), (300, None), (301, "timestamp_future")],
)
def test_the_tolerance_has_two_sides(offset: int, expected: str | None) -> None:
    endpoint = configure("s", STRIPE, [STRIPE_SECRET])
    wanted = request([("stripe-signature", stripe_header(now=NOW + offset))])
    assert reason(endpoint, wanted) == expected
    wide = configure("s", STRIPE, [STRIPE_SECRET], tolerance=1000)
    assert reason(wide, wanted) == (expected if expected == "timestamp_future" else None)


def test_an_unsigned_time_is_never_called_stale() -> None:
    endpoint = configure("s", STRIPE, [OTHER_STRIPE])
    stale = request([("stripe-signature", stripe_header(now=NOW - 4000))])
    assert reason(endpoint, stale) == "signature_mismatch"


# proves R3
def test_rotation() -> None:
    old, new = (load_secret(s, STRIPE) for s in (OTHER_STRIPE, STRIPE_SECRET))
    by_old = request([("stripe-signature", stripe_header(secret=OTHER_STRIPE))])
    by_new = request([("stripe-signature", stripe_header())])
    both = configure("s", STRIPE, [old, new])
    assert verify(both, by_old, NOW).secret == old.fingerprint
    assert verify(both, by_new, NOW).secret == new.fingerprint

    ending = configure("s", STRIPE, [Secret(old.key, old.fingerprint, expires_at=NOW), new])
    assert reason(ending, by_old, NOW - 1) is None
    assert reason(ending, by_old, NOW) == "secret_expired"
    double = request([("stripe-signature", f"{stripe_header(secret=OTHER_STRIPE)},{stripe_header().split(',')[1]}")])
    assert verify(ending, double, NOW).secret == new.fingerprint


def test_the_signed_url_is_the_configured_one() -> None:
    contract = find("hmac", {"header": "X-Sig", "message": "{url}{body}", "encoding": "base64"})
    endpoint = configure("s", contract, ["a long secret"], public_url="https://example.com/hook")
    headers = sign(contract, "a long secret", BODY, now=NOW, url="https://example.com/hook?a=1")
    assert reason(endpoint, request(headers, query=b"a=1")) is None
    assert reason(endpoint, request(headers, query=b"a=2")) == "signature_mismatch"
    with pytest.raises(ConfigError, match="public_url"):
        configure("s", contract, ["a long secret"])


def test_header_order_and_company_do_not_matter() -> None:
    crowd = [(f"x-{n}", "v") for n in range(500)]
    headers = [*crowd, *standard_headers()[::-1], *crowd]
    assert reason(configure("s", STANDARD, [STANDARD_SECRET]), request(headers)) is None
