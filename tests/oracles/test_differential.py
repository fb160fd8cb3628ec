"""Our verdicts against those of the providers' own SDKs, delivery by delivery.

Where the two differ, the difference stands below with its reason; one that no longer exists fails, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import RSAAlgorithm
from msgspec.structs import replace

from hookledger.providers.schemes.base import Keyring, NoKeys, Where
from tests.oracles import ours
from tests.oracles.delivery import Delivery
from tests.oracles.keys import Keys
from tests.oracles.sdks import ORACLES
from tests.oracles.signers import URL, deliver, sample
from tests.oracles.test_oracles import NOW, keys_for, tampered
from tests.oracles.verifiers import key_id

NAMES = sorted(ORACLES)


class Case(NamedTuple):
    delivery: Delivery
    secrets: list[str]
    now: float = NOW
    authentic: bool | None = None
    """What we must say, whatever the SDK says; None where that depends on the contract."""


class Published:
    """What Google would publish: the keys of these certificates, by the names in the tokens."""

    def __init__(self, certificates: list[str]) -> None:
        keys = [_jwk(certificate) for certificate in certificates]
        self._content = json.dumps({"keys": keys}).encode()

    def proved(self, where: Where) -> None:
        pass

    def get(self, where: Where) -> bytes:
        assert where.url == "https://www.googleapis.com/oauth2/v3/certs"
        return self._content


def _jwk(certificate: str) -> dict[str, str]:
    loaded = load_pem_x509_certificate(certificate.encode()).public_key()
    assert isinstance(loaded, RSAPublicKey)
    key: dict[str, str] = json.loads(RSAAlgorithm.to_jwk(loaded))
    return {**key, "kid": key_id(certificate), "use": "sig", "alg": "RS256"}


def keyring(name: str, secrets: list[str]) -> Keyring:
    return Published(secrets) if name == "google_pubsub" else NoKeys()


def ours_of(name: str, secrets: list[str]) -> list[str]:
    """What our source is given: where keys are published, the audience instead of them."""
    return [URL] if name == "google_pubsub" else secrets


def tolerance(name: str) -> float | None:
    return ours.endpoint(name, ours_of(name, [keys_for(name).checking]), URL).tolerance


# ── the cases ────────────────────────────────────────────────────────────────


def good(name: str, keys: Keys) -> Case:
    return Case(deliver(name, secret=keys.signing, now=NOW), [keys.checking], authentic=True)


def tampered_body(name: str, keys: Keys) -> Case:
    return Case(tampered(name, deliver(name, secret=keys.signing, now=NOW)), [keys.checking])


def flipped_signature(name: str, keys: Keys) -> Case:
    made = deliver(name, secret=keys.signing, now=NOW)
    where = ours.endpoint(name, ours_of(name, [keys.checking]), made.url)
    known = keyring(name, [keys.checking])
    [candidate, *_] = where.contract.scheme.read(ours.request(made), made.url.encode(), known).candidates
    tail = candidate[-16:-8].decode()
    other = tail[:-1] + ("A" if tail[-1] != "A" else "B")
    if candidate.isalnum() and candidate.islower():
        other = tail[:-1] + ("0" if tail[-1] != "0" else "1")
    headers = {field: value.replace(tail, other) for field, value in made.headers.items()}
    changed = replace(made, headers=headers, body=made.body.replace(tail.encode(), other.encode()))
    assert changed != made
    return Case(changed, [keys.checking], authentic=False)


def wrong_secret(name: str, keys: Keys) -> Case:
    return Case(deliver(name, secret=keys.signing, now=NOW), [keys_for(name, 2).checking], authentic=False)


def missing_headers(name: str, keys: Keys) -> Case:
    made = deliver(name, secret=keys.signing, now=NOW)
    kept = {field: value for field, value in made.headers.items() if field.lower() == "content-type"}
    body = sample(name) if kept == made.headers else made.body  # those signed in the body
    return Case(replace(made, headers=kept, body=body), [keys.checking], authentic=False)


def stale(name: str, keys: Keys) -> Case:
    beyond = (tolerance(name) or 0) + 60
    return Case(deliver(name, secret=keys.signing, now=NOW - beyond), [keys.checking])


def future(name: str, keys: Keys) -> Case:
    beyond = (tolerance(name) or 0) + 60
    return Case(deliver(name, secret=keys.signing, now=NOW + beyond), [keys.checking])


def inside_tolerance(name: str, keys: Keys) -> Case:
    within = min(tolerance(name) or 4, 290) - 2
    return Case(deliver(name, secret=keys.signing, now=NOW - within), [keys.checking], authentic=True)


def rotated(name: str, keys: Keys) -> Case:
    secrets = [keys_for(name, 2).checking, keys.checking]
    return Case(deliver(name, secret=keys.signing, now=NOW), secrets, authentic=True)


def not_utf8(name: str, keys: Keys) -> Case:
    made = deliver(name, b'{"amount":4200,"name":"Zo\xeb"}', secret=keys.signing, now=NOW)
    return Case(made, [keys.checking])


CASES: dict[str, Callable[[str, Keys], Case]] = {
    made.__name__: made
    for made in (
        good,
        tampered_body,
        flipped_signature,
        wrong_secret,
        missing_headers,
        stale,
        future,
        inside_tolerance,
        rotated,
        not_utf8,
    )
}
IMPOSSIBLE = {
    ("adyen_classic", "not_utf8"): "its signature is inside JSON, which is UTF-8",
    ("mailgun", "not_utf8"): "its signature is inside JSON, which is UTF-8",
    ("braintree", "not_utf8"): "its payload is base64 in a form",
    ("twilio", "not_utf8"): "its fields are percent-encoded",
}
_TEXT = "the SDK takes the body as text, so bytes that are not UTF-8 cannot be offered, or make it raise"
_FUTURE = "the SDK accepts any time in the future; ours is two-sided"
_NARROW = "the SDK's window is seconds long; ours lasts for the retries, of which nobody says they are signed anew"
_AGE = "the SDK does not look at the signed time; ours does"
DIFFERENCES: dict[tuple[str, str], tuple[bool, bool, str]] = {
    **{
        (name, "not_utf8"): (True, False, _TEXT)
        for name in (
            "anthropic",
            "bigcommerce",
            "clerk",
            "coinbase_commerce",
            "gitlab_signed",
            "gocardless",
            "hubspot",
            "hubspot_v1",
            "hubspot_v2",
            "line",
            "openai",
            "paddle",
            "quickbooks",
            "razorpay",
            "resend",
            "sendgrid",
            "slack_events",
            "square",
            "standard_webhooks",
            "stripe",
            "svix",
            "workos",
        )
    },
    ("stripe", "future"): (False, True, _FUTURE),
    ("hubspot", "future"): (False, True, _FUTURE),
    ("paddle", "inside_tolerance"): (True, False, _NARROW),
    ("workos", "inside_tolerance"): (True, False, _NARROW),
    ("discord_interactions", "stale"): (False, True, _AGE),
    ("discord_interactions", "future"): (False, True, _AGE),
    ("sendgrid", "stale"): (False, True, _AGE),
    ("sendgrid", "future"): (False, True, _AGE),
}
"""(name, case): whether we accept it, whether the SDK does, and why they differ."""

PAIRS = [(name, case) for name in NAMES for case in CASES if (name, case) not in IMPOSSIBLE]


@pytest.mark.parametrize(("name", "case"), PAIRS, ids=[f"{name}-{case}" for name, case in PAIRS])
def test_we_agree(name: str, case: str) -> None:
    given = CASES[case](name, keys_for(name))
    known = keyring(name, given.secrets)
    we = ours.accepts(name, given.delivery, ours_of(name, given.secrets), given.now, known)
    they = ORACLES[name].accepts(given.delivery, given.secrets, given.now)
    if given.authentic is not None:
        assert we is given.authentic
    expected = DIFFERENCES.get((name, case))
    if expected is None:
        assert we is they
    else:
        assert (we, they) == expected[:2], expected[2]


def test_no_difference_is_listed_that_cannot_be() -> None:
    assert set(DIFFERENCES) <= set(PAIRS)
    assert all(we is not they for we, they, _ in DIFFERENCES.values())


@pytest.mark.parametrize("name", NAMES)
def test_we_agree_on_each_missing_header(name: str) -> None:
    keys = keys_for(name)
    made = deliver(name, secret=keys.signing, now=NOW)
    known = keyring(name, [keys.checking])
    for missing in (field for field in made.headers if field.lower() != "content-type"):
        rest = {field: value for field, value in made.headers.items() if field != missing}
        cut = replace(made, headers=rest)
        we = ours.accepts(name, cut, ours_of(name, [keys.checking]), NOW, known)
        they = ORACLES[name].accepts(cut, [keys.checking], NOW)
        assert (we, they) == NOT_NEEDED.get((name, missing), (False, False, ""))[:2], missing


_VERSION = "the SDK is told the version by its caller"
NOT_NEEDED: dict[tuple[str, str], tuple[bool, bool, str]] = {
    ("hubspot_v1", "X-HubSpot-Signature-Version"): (True, True, f"{_VERSION}; v1 came without it once"),
    ("hubspot_v2", "X-HubSpot-Signature-Version"): (False, True, f"{_VERSION}; ours must not take one for the other"),
}
"""Headers that not both of us demand: whether we, and whether they accept without it."""
