"""Signatures with keys that providers publish: good ones pass, and everything else ends in a verdict."""

from __future__ import annotations

import base64
import json
import random
import sys
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookledger.errors import ConfigError, Malformed, Rejected, Unauthentic
from hookledger.model import Request
from hookledger.providers.fields import body, header, query
from hookledger.providers.schemes.base import Draft, KeyNeeded
from hookledger.providers.schemes.certificate import TEST_URL
from hookledger.providers.schemes.jwt import Jwt
from hookledger.providers.schemes.public_key import PublicKey
from hookledger.providers.schemes.testing_keys import new_test_key
from tests.soak import amount

from . import published as p

# ── every scheme ──


@pytest.mark.parametrize("name", p.NAMES)
def test_good(name: str) -> None:
    case = p.cases()[name]
    assert p.judge(case.scheme, case.key, case.request, case.ring()) == p.NOW


@pytest.mark.parametrize("name", p.NAMES)
def test_another_body(name: str) -> None:
    case = p.cases()[name]
    changed = msgspec.structs.replace(
        case.request, body=case.request.body.replace(b"100", b"900").replace(b"line", b"lie")
    )
    assert changed.body != case.request.body
    if case.covered:
        assert case.scheme.coverage != "nothing"
        assert p.refusal(name, changed) in ("signature_mismatch", "body_digest_mismatch")
    else:
        assert case.scheme.coverage == "nothing"
        assert p.judge(case.scheme, case.key, changed, case.ring()) == p.NOW


@pytest.mark.parametrize("name", p.NAMES)
def test_headers_missing_and_doubled(name: str) -> None:
    case = p.cases()[name]
    for header_name, value in case.request.headers:
        if header_name == b"content-type":
            continue
        assert p.refusal(name, p.with_header(case.request, header_name)).endswith("_missing")
        assert p.refusal(name, p.with_header(case.request, header_name, value, value)).endswith("_duplicate")


@pytest.mark.parametrize("name", p.NAMES)
def test_another_key(name: str) -> None:
    case = p.cases()[name]
    others = {
        "discord": p.raw(p.ed_key("other")).hex(),
        "sendgrid": base64.b64encode(p.spki(p.ec_key("other"))).decode(),
        "standard_webhooks": base64.b64encode(p.raw(p.ed_key("other"))).decode(),
        "paypal": "2JE4291016473214C",
        "sns": p.TOPIC + "-of-somebody-else",
        "google_pubsub": p.AUDIENCE + "/other",
        "event_grid": p.APPLICATION[:-1] + "2",
        "jira": p.JIRA_SECRET + "x",
    }
    if name in others:  # Plaid's secret only asks for the key
        key = case.scheme.prepare(others[name])
        assert p.refused(case.scheme, key, case.request, case.ring()) == "signature_mismatch"
    forged = {
        p.PAYPAL_CERT: p.certificate("messageverificationcerts.paypal.com", p.rsa_key("other")),
        p.SNS_CERT: p.certificate("sns.amazonaws.com", p.rsa_key("other")),
        p.GOOGLE: p.key_set(p.jwk(p.rsa_key("other"), "k1")),
        p.ENTRA: p.key_set(p.jwk(p.rsa_key("other"), "k1")),
        p.PLAID: p.key_set(p.jwk(p.ec_key("other"), "p1")),
    }
    if case.published:
        assert p.refused(case.scheme, case.key, case.request, p.Ring(forged)) == "signature_mismatch"


@pytest.mark.parametrize("name", p.NAMES)
def test_local_signing(name: str) -> None:
    case = p.cases()[name]
    draft = Draft(url="https://hooks.example.com/x", body=p.BODY, now=p.NOW, id="evt_1")
    scheme: Any = case.scheme
    if name == "jira":
        with pytest.raises(ConfigError):
            new_test_key(scheme)
    else:
        with pytest.raises(ConfigError, match="new_test_key"):
            scheme.sign(case.key, draft)
        bare = scheme
        scheme = msgspec.structs.replace(scheme, test_key=new_test_key(scheme))
        assert "PRIVATE" not in repr(scheme)
        assert type(scheme).__name__ in repr(scheme)
    signed = scheme.sign(case.key, draft)
    request = p.request(signed.body, [(key, value.encode()) for key, value in signed.headers.items()])
    ring = p.Ring({})
    assert p.judge(scheme, scheme.prepare(case.secret), request, ring) == p.NOW
    assert not ring.asked  # nothing is fetched for a test key
    if name != "jira":
        assert p.judge(scheme, case.key, case.request, case.ring()) == p.NOW  # beside, not instead
        with pytest.raises((Rejected, KeyNeeded)):  # the test key is nothing where it is not set
            p.judge(bare, case.key, request, case.ring())
        for wrong in (b"no PEM", new_test_key(p.PLAID_SCHEME if name != "plaid" and name != "sendgrid" else p.SNS)):
            with pytest.raises(ConfigError, match="test_key"):
                msgspec.structs.replace(scheme, test_key=wrong).prepare(case.secret)


@pytest.mark.parametrize("package", ["cryptography", "jwt", "httpx2"])
def test_missing_packages(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = p.cases()["google_pubsub"]  # before: it makes keys
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install hookledger\[crypto\]"):
        case.scheme.prepare(case.secret)


NASTY = [
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe",
    b"=",
    b"..",
    b"a.b.c",
    b"v1a,",
    b"Bearer ",
    b"Bearer e30.e30.e30",
    b"eyJhbGciOiJub25lIn0.e30.",
    b"[" * 5000,
    base64.urlsafe_b64encode(b"[" * 5000) + b".e30.AA",
    base64.urlsafe_b64encode(b'{"alg":"RS256","kid":[]}') + b".e30.AA",
    base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"' + b"x" * 300 + b'"}').rstrip(b"=") + b".e30.AA",
    base64.urlsafe_b64encode(b'{"alg":"RS256","crit":["b64"],"b64":false,"kid":"k1"}').rstrip(b"=") + b"..AA",
    b"9" * 5000,
    b"-1",
    b"NaN",
    "\u0661\u0667".encode(),
    b"\xed\xa0\x80",
    b"0001-01-01T00:00:00+23:59",
    b"2023-11-14|22:13:20Z",
    b"https://",
    b"https://[::1]/",
    b"https://api.paypal.com@evil.example/",
    TEST_URL.encode(),
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    b'{"keys": [{"kid": "k1", "kty": "RSA", "n": "AQ", "e": "AQ"}]}',
    b'{"keys": [{"kid": "k1", "kty": "RSA", "n": 1, "e": []}, null, 1]}',
    b'{"keys": {"kid": 1}}',
    b'{"key": {"kid": "p1", "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}}',
    b'{"key": {"kid": "p1", "kty": "oct", "k": "AA"}}',
    b'{"Type": "Notification", "Type": "Notification"}',
    b'{"Type": "Notification", "TopicArn": "\\ud800"}',
    b'"\\ud800"',
    b"{}",
]


def changed(value: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(value) + 1)
    drawn = dice.choice([*NASTY, dice.randbytes(dice.randrange(1, 40))])
    return dice.choice(
        (
            value[:at] + drawn + value[at:],
            value[:at],
            value[at:],
            value[:at] + bytes([dice.randrange(256)]) + value[at + 1 :],
            value.swapcase(),
            value[::-1],
            drawn,
            value + value,
        )
    )


def odd(value: Any, dice: random.Random) -> Any:
    """The object with some of its fields changed, dropped or of another kind."""
    result = dict(value)
    for name in dice.sample(sorted(result), dice.randrange(1, 3)):
        kinds: list[Any] = [
            None,
            True,
            -1,
            1e300,
            10**30,
            [],
            [[]],
            {"a": 1},
            "",
            "\n",
            "\ud800",
            "x" * 300,
            ["\ud800"],
        ]
        text = str(result[name]).encode("utf-8", "surrogatepass")
        changed_text = changed(text, dice).decode("utf-8", "replace")
        result[name] = dice.choice([*kinds, changed_text, changed_text, changed_text])
        if dice.random() < 0.1:
            del result[name]
    return result


def hostile_envelope(dice: random.Random) -> Request:
    return p.request(json.dumps(odd(p.sns_fields(), dice)).encode(), [])


def hostile_token(name: str, dice: random.Random) -> Request:
    """Well signed, more often than not: what a provider's own mistake would look like."""
    alg, key = {"plaid": ("ES256", p.ec_key()), "jira": ("HS256", p.JIRA_SECRET.encode())}.get(
        name, ("RS256", p.rsa_key())
    )
    case = p.cases()[name]
    [(place, value)] = case.request.headers
    head, claims, _ = value.removeprefix(b"Bearer ").split(b".")
    parts = [json.loads(base64.urlsafe_b64decode(part + b"==")) for part in (head, claims)]
    at = dice.randrange(2)
    parts[at] = odd(parts[at], dice)
    signed = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    algorithm: Any = jwt.get_algorithm_by_name(alg)
    made = base64.urlsafe_b64encode(algorithm.sign(signed, key)).rstrip(b"=")
    prefix = b"" if name == "plaid" else b"Bearer "
    return p.request(case.request.body, [(place, prefix + signed + b"." + made)])


def hostile_request(name: str, dice: random.Random) -> Request:
    case = p.cases()[name]
    if dice.random() < 0.5 and name == "sns":
        return hostile_envelope(dice)
    if dice.random() < 0.3 and isinstance(case.scheme, Jwt):
        return hostile_token(name, dice)
    headers = list(case.request.headers)
    content = case.request.body
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(headers)) if headers else None
        match dice.randrange(5):
            case 0:
                content = changed(content, dice)
            case 1 if at is not None:
                headers.append((headers[at][0], changed(headers[at][1], dice)))
            case 2 if at is not None:
                del headers[at]
            case _ if at is not None:
                headers[at] = (headers[at][0], changed(headers[at][1], dice))
    return p.request(content, headers)


@pytest.mark.parametrize("name", p.NAMES)
@pytest.mark.soak
@settings(max_examples=amount(100, 600, 2_000), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(drawn=st.binary(min_size=16, max_size=16))
def test_hostile_requests(name: str, drawn: bytes) -> None:
    case, dice = p.cases()[name], random.Random(drawn)
    request = hostile_request(name, dice)
    kept = {url: changed(value, dice) if dice.random() < 0.2 else value for url, value in case.published.items()}
    try:
        p.judge(case.scheme, case.key, request, p.Ring(kept))
    except KeyNeeded as needed:
        assert needed.where.url in case.published or name in ("sns", "paypal")  # another pinned address
        return
    except (Malformed, Unauthentic):
        return
    # What is believed after all was left as it was, where it counts.
    if name == "sns":
        before, after = json.loads(case.request.body), json.loads(request.body)
        assert [after.get(field) for field in SIGNED] == [before[field] for field in SIGNED]
    elif case.covered:
        assert request.body == case.request.body


SIGNED = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")


# ── public keys ──


def test_forms_of_keys() -> None:
    pem = p.spki(p.ec_key(), Encoding.PEM).decode()
    assert p.SENDGRID.prepare(pem) == p.SENDGRID.prepare(base64.b64encode(p.spki(p.ec_key())).decode())
    bare = base64.b64encode(p.raw(p.ed_key())).decode()
    assert p.STANDARD.prepare(f"whpk_{bare}") == p.STANDARD.prepare(f" {bare}\n") == p.raw(p.ed_key())
    p384 = ec.generate_private_key(ec.SECP384R1())
    weak: list[tuple[PublicKey, str]] = [
        (p.DISCORD, "ab" * 31),
        (p.DISCORD, "ab" * 33),
        (p.DISCORD, "zz" * 32),
        (p.DISCORD, "00" * 32),  # small order: anyone can sign
        (p.DISCORD, "01" + "00" * 31),
        (p.DISCORD, "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
        (p.DISCORD, "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
        (p.DISCORD, "ec" + "ff" * 30 + "7f"),
        (p.DISCORD, "ff" * 32),  # not below the prime
        (p.DISCORD, "02" + "00" * 31),  # not on the curve
        (p.STANDARD, "whpk_" + "!" * 44),
        (p.STANDARD, "whsk_" + base64.b64encode(p.raw(p.ed_key())).decode()),
        (p.SENDGRID, base64.b64encode(p.spki(p384)).decode()),
        (p.SENDGRID, p.spki(p.rsa_key(), Encoding.PEM).decode()),
        (p.SENDGRID, base64.b64encode(p.spki(p.ec_key())[:-1]).decode()),
        (p.SENDGRID, base64.b64encode(p.spki(p.ec_key())[:-1] + b"\0").decode()),
        (p.SENDGRID, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"),
        (p.SENDGRID, p.raw(p.ed_key()).hex()),
    ]
    for scheme, secret in weak:
        with pytest.raises(ValueError, match=r"^it ") as caught:
            scheme.prepare(secret)
        assert secret[5:20] not in str(caught.value)


def test_public_key_templates() -> None:
    for wrong in (
        {"message": "{ts}"},
        {"message": "{ts}{body}"},
        {"message": "{url}{body}"},
        {"message": "{id}{body}", "id_header": b"x-id"},
        {"message": "{id}.{body}"},
        {"alg": "ecdsa-p256-sha256", "key": "hex"},
    ):
        with pytest.raises(ConfigError):
            PublicKey(**{"header": b"x-sig", "alg": "ed25519", **wrong})  # type: ignore[arg-type]


def test_signature_lists() -> None:
    case = p.cases()["standard_webhooks"]
    good = dict(case.request.headers)[b"webhook-signature"].split(b" ")[1]
    for value, reason in (
        (good.replace(b"v1a,", b"v1,"), "signature_malformed"),
        (b"v1a,AAAA", "signature_malformed"),
        (b" ".join([b"v1a," + base64.b64encode(b"x" * 64)] * 4), "signature_mismatch"),
        (b" ".join([b"v1a," + base64.b64encode(b"x" * 64)] * 4 + [good]), "signature_malformed"),
    ):
        assert p.refusal("standard_webhooks", p.with_header(case.request, b"webhook-signature", value)) == reason
    rotated = b"v1a," + base64.b64encode(b"x" * 64) + b" " + good
    request = p.with_header(case.request, b"webhook-signature", rotated)
    assert p.judge(case.scheme, case.key, request) == p.NOW
    assert p.refusal("standard_webhooks", p.with_header(case.request, b"webhook-id", b"msg.1")) == "id_malformed"
    assert (
        p.refusal("standard_webhooks", p.with_header(case.request, b"webhook-timestamp", b"1_0"))
        == "timestamp_malformed"
    )
    assert case.scheme.signs(header("webhook-id")) and case.scheme.signs(body("id"))
    assert not case.scheme.signs(header("x-type")) and not case.scheme.signs(query("a"))
