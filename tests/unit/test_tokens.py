"""JSON Web Tokens: one algorithm, known keys, and claims that are about us."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from hookledger.errors import ConfigError, Unauthentic
from hookledger.providers.catalogue import find
from hookledger.providers.fields import body
from hookledger.providers.schemes.base import KeyNeeded
from hookledger.providers.schemes.jwt import MAX_TOKEN, Jwt
from hookledger.receive.verify import verify
from tests.endpoints import configure

from . import published as p


def test_algorithms() -> None:
    case, ring = p.cases()["google_pubsub"], p.cases()["google_pubsub"].ring()
    claims = p.pubsub_claims()
    public = p.spki(p.rsa_key(), Encoding.PEM)

    def segment(value: bytes) -> bytes:
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    signed = segment(b'{"alg":"HS256","kid":"k1"}') + b"." + segment(json.dumps(claims).encode())
    confused = signed + b"." + segment(hmac.digest(public, signed, "sha256"))
    tokens = [
        confused.decode(),
        jwt.encode(claims, "", "none", headers={"kid": "k1"}),
        p.token(claims, alg="RS512"),
        p.token(claims, alg="PS256"),
        p.token(claims, p.ec_key(), "ES256"),
    ]
    for token in tokens:
        assert p.refused(case.scheme, case.key, p.bearer(token), ring) == "algorithm_mismatch"
    assert not ring.asked  # refused before any key is looked for
    plaid = p.cases()["plaid"]
    forged = p.with_header(
        plaid.request, b"plaid-verification", p.token({"iat": 1}, p.rsa_key(), "RS256", "p1").encode()
    )
    assert p.refusal("plaid", forged) == "algorithm_mismatch"
    assert p.refusal("jira", p.bearer(tokens[1])) == "algorithm_mismatch"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"iss": "https://evil.example"}, "claim_mismatch"),
        ({"iss": None}, "claim_mismatch"),
        ({"email": "push@evil.iam.gserviceaccount.com"}, "claim_mismatch"),
        ({"email_verified": False}, "claim_mismatch"),
        ({"email_verified": "true"}, "claim_mismatch"),
        ({"aud": None}, "signature_mismatch"),
        ({"aud": ["other"]}, "signature_mismatch"),
        ({"aud": {"x": 1}}, "signature_mismatch"),
        ({"iat": None}, "timestamp_missing"),
        ({"exp": None}, "timestamp_missing"),
        ({"iat": True}, "timestamp_malformed"),
        ({"iat": "1700000000"}, "timestamp_malformed"),
        ({"nbf": int(p.NOW) + 600}, "timestamp_future"),
        ({"nbf": "soon"}, "timestamp_malformed"),
        ({"exp": -1}, "timestamp_malformed"),
        ({"exp": 1e300}, "timestamp_malformed"),
    ],
)
def test_claims(changed: dict[str, Any], reason: str) -> None:
    claims = {name: value for name, value in p.pubsub_claims(**changed).items() if value is not None}
    raw = jwt.PyJWS().encode(json.dumps(claims).encode(), p.rsa_key(), "RS256", headers={"kid": "k1"})
    assert p.refusal("google_pubsub", p.bearer(raw)) == reason


@pytest.mark.parametrize("tolerance", [None, 3600.0, 300.0])
def test_token_ends(tolerance: float | None) -> None:
    """When it says, or when it is older than the source's tolerance, whichever is first."""
    secret = "made-up-for-a-jira-app-of-the-tests"
    source = configure("jira", find("jira_app"), [secret], tolerance=tolerance)
    claims = {"iat": int(p.NOW), "exp": int(p.NOW) + 180}
    request = p.bearer(jwt.encode(claims, secret, "HS256"))
    assert verify(source, request, p.NOW).signed_at == p.NOW
    assert verify(source, request, p.NOW + 180 + 60).signed_at == p.NOW
    with pytest.raises(Unauthentic, match="timestamp stale"):
        verify(source, request, p.NOW + 180 + 61)
    lasting = p.bearer(jwt.encode(claims | {"exp": int(p.NOW) + 90_000}, secret, "HS256"))
    assert source.tolerance is not None
    verify(source, lasting, p.NOW + source.tolerance)
    with pytest.raises(Unauthentic, match="timestamp stale"):
        verify(source, lasting, p.NOW + source.tolerance + 1)


def test_token_issued() -> None:
    case = p.cases()["google_pubsub"]
    audiences = p.bearer(p.token(p.pubsub_claims(aud=["x", p.AUDIENCE])))
    assert p.judge(case.scheme, case.key, audiences, case.ring()) == p.NOW
    begun = p.bearer(p.token(p.pubsub_claims(nbf=int(p.NOW) + 30)))
    assert p.judge(case.scheme, case.key, begun, case.ring()) == p.NOW, "within what clocks differ by"


def test_keys_of_tokens() -> None:
    case = p.cases()["google_pubsub"]
    unknown = p.bearer(p.token(p.pubsub_claims(), kid="k9"))
    with pytest.raises(KeyNeeded) as needed:
        p.judge(case.scheme, case.key, unknown, case.ring())
    assert needed.value.again and needed.value.where.url == p.GOOGLE
    with pytest.raises(KeyNeeded) as needed:
        p.judge(case.scheme, case.key, case.request, p.Ring({}))
    assert not needed.value.again
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for key in (
        p.jwk(p.ec_key(), "k1"),
        p.jwk(weak, "k1"),
        p.jwk(p.rsa_key(), "k1", use="enc"),
        p.jwk(p.rsa_key(), "k1", alg="RS512"),
        {"kid": "k1", "kty": "oct", "k": "AAAA"},
        {"kid": "k1", "kty": "RSA"},
    ):
        ring = p.Ring({p.GOOGLE: p.key_set(key)})
        assert p.refused(case.scheme, case.key, case.request, ring) == "key_unknown"
    plaid = p.cases()["plaid"]
    ring = plaid.ring()
    p.judge(plaid.scheme, plaid.key, plaid.request, ring)
    [where] = ring.asked
    assert json.loads(where.post or b"") == {"client_id": "client-1", "secret": "plaid-secret", "key_id": "p1"}
    assert "plaid-secret" not in repr(where) + repr(plaid.scheme)
    withdrawn = json.loads(p.plaid_key())
    withdrawn["key"]["expired_at"] = 1699999999
    with pytest.raises(KeyNeeded):
        p.judge(plaid.scheme, plaid.key, plaid.request, p.Ring({p.PLAID: json.dumps(withdrawn).encode()}))


def test_plaid_body() -> None:
    assert (
        p.refusal("plaid", p.plaid(request_body_sha256=hashlib.sha256(b"other").hexdigest()))
        == "body_digest_mismatch"
    )
    assert p.refusal("plaid", p.plaid(request_body_sha256=None)) == "body_digest_mismatch"
    assert p.PLAID_SCHEME.coverage == "body" and p.PLAID_SCHEME.signs(body("item_id"))
    assert p.PUBSUB.coverage == "nothing" and not p.PUBSUB.signs(body("message.messageId"))
    assert p.PUBSUB.secret_headers == {b"authorization"} and p.JIRA.secret_headers == {b"authorization"}


def test_token_size() -> None:
    long = p.bearer(p.token(p.pubsub_claims(padding="x" * MAX_TOKEN)))
    assert p.refusal("google_pubsub", long) == "token_malformed"
    case = p.cases()["google_pubsub"]
    value = dict(case.request.headers)[b"authorization"]
    assert p.refusal("google_pubsub", p.with_header(case.request, b"authorization", value[7:])) == "token_malformed"
    lower = p.with_header(case.request, b"authorization", b"bearer " + value[7:])
    assert p.judge(case.scheme, case.key, lower, case.ring()) == p.NOW


def test_token_settings() -> None:
    for wrong in (
        {"alg": "HS256", "jwks": p.GOOGLE},
        {"alg": "RS256"},
        {"jwks": p.GOOGLE, "ask": p.PLAID, "client_id": "c"},
        {"jwks": "http://www.googleapis.com/oauth2/v3/certs"},
        {"jwks": "https://user@www.googleapis.com/oauth2/v3/certs"},
        {"alg": "ES256", "ask": p.PLAID},
        {"jwks": p.GOOGLE, "issuers": ("https://accounts.google.com",)},
    ):
        with pytest.raises(ConfigError):
            Jwt(**wrong)
    with pytest.raises(ValueError, match="PEM"):
        p.JIRA.prepare(p.spki(p.rsa_key(), Encoding.PEM).decode())
    assert p.JIRA.min_key == 32
