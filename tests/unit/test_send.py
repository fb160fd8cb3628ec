"""`send` signs for every provider of the catalogue, and forges for every one; the catalogue in words."""

from __future__ import annotations

import base64
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from msgspec.structs import replace

from hookledger import Inbox
from hookledger.cli.send import _ask, _sign, _to
from hookledger.config import decode
from hookledger.errors import ConfigError, Rejected
from hookledger.model import Request
from hookledger.providers import words
from hookledger.providers.catalogue import contracts, find
from hookledger.providers.contract import Contract
from hookledger.providers.sample import Sample, sample
from hookledger.providers.schemes.base import Draft
from hookledger.providers.schemes.certificate import Certificate
from hookledger.providers.schemes.hmac import Hmac
from hookledger.providers.schemes.jwt import Jwt
from hookledger.providers.schemes.public_key import PublicKey
from hookledger.providers.schemes.testing_keys import new_test_key
from hookledger.receive.endpoint import Endpoint, with_secrets
from hookledger.receive.handshake import answer_signed, answer_unsigned
from hookledger.receive.verify import verify

NAMES = sorted(contracts())
NOW_URL = "http://127.0.0.1:8700"


def made_up_secret(contract: Contract) -> str:
    """Of the form that the provider gives out."""
    scheme = contract.scheme
    match scheme:
        case PublicKey():
            public = load_pem_private_key(new_test_key(scheme), None).public_key()
            if scheme.key == "spki":
                der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
                return scheme.key_prefix + base64.b64encode(der).decode()
            raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
            return scheme.key_prefix + (raw.hex() if scheme.key == "hex" else base64.b64encode(raw).decode())
        case Certificate():
            return "arn:aws:sns:eu-west-1:123456789012:topic" if scheme.kind == "sns" else "MADE-UP-WEBHOOK-ID"
        case Hmac() if scheme.paired:
            return "madeuppublic:madeupprivatekey"
        case Hmac() if scheme.key in ("base64", "hex"):
            raw = bytes(range(32))
            return scheme.key_prefix + (raw.hex() if scheme.key == "hex" else base64.b64encode(raw).decode())
        case _ if scheme.name == "adyen-items":
            return bytes(range(32)).hex()
        case _ if scheme.name == "basic":
            return "user:password-of-the-tests"
    return "made-up-secret-of-the-tests-0123456789"


def configured(name: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Endpoint:
    """A source as the example of `hookledger providers NAME` has it."""
    contract = contracts()[name]
    values = tomllib.loads(words.example(contract))
    monkeypatch.setenv(f"{name.upper()}_WEBHOOK_SECRET", made_up_secret(contract))
    monkeypatch.setenv(f"{name.upper()}_VERIFY_TOKEN", "made-up-token")
    values["sources"][name].setdefault("options", {}).update(options)
    return with_secrets(Inbox(settings=decode(values)).sources[name].endpoint)


@pytest.fixture
def endpoint(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Endpoint:
    """With a test key where the provider signs with its own."""
    scheme = contracts()[name].scheme
    if getattr(scheme, "key_kind", None) is None:
        return configured(name, monkeypatch)
    key = tmp_path / "test.pem"
    key.write_bytes(new_test_key(scheme))  # type: ignore[arg-type]
    return configured(name, monkeypatch, test_key=f"file:{key}")


def received(endpoint: Endpoint, draft: Draft) -> Request:
    headers = tuple((name, value.encode("latin-1")) for name, value in draft.headers.items())
    query = draft.url.partition("?")[2].encode()
    return Request(draft.method, endpoint.path, query, headers, draft.body, "127.0.0.1")


@pytest.mark.parametrize("name", NAMES)
def test_a_delivery_is_accepted_and_a_forgery_is_not(name: str, endpoint: Endpoint) -> None:
    target = f"{NOW_URL}{endpoint.path}"
    made = sample(endpoint.contract, "made.up")
    assert not made.real, "samples: tests/providers/test_samples.py"
    now = None
    for forge in (False, True):
        draft = _to(endpoint, _sign(endpoint, made, target, forge=forge), target)
        assert draft.url.startswith(target)
        now = draft.now
        if not forge:
            assert verify(endpoint, received(endpoint, draft), now).secret == endpoint.secrets[0].fingerprint
        else:
            with pytest.raises(Rejected):
                verify(endpoint, received(endpoint, draft), now)


@pytest.mark.parametrize("name", [name for name in NAMES if contracts()[name].handshakes])
def test_a_handshake_is_recognised(name: str, endpoint: Endpoint) -> None:
    if endpoint.contract.handshakes[0].fetch is not None:
        with pytest.raises(ConfigError, match="can send its handshake"):
            _ask(endpoint, f"{NOW_URL}{endpoint.path}", forge=False)
        return
    draft = _ask(endpoint, f"{NOW_URL}{endpoint.path}", forge=False)
    ask = answer_signed if endpoint.contract.handshakes[0].signed else answer_unsigned
    shake = ask(endpoint, received(endpoint, draft))
    assert shake is not None
    assert shake.response.status < 300


def test_who_has_no_test_key_is_told_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = configured("discord_interactions", monkeypatch)
    with pytest.raises(ConfigError, match=r"hookledger providers discord_interactions --new-test-key"):
        _sign(endpoint, Sample("1", "x", b"{}"), NOW_URL, forge=False)
    assert _sign(endpoint, Sample("1", "x", b"{}"), NOW_URL, forge=True).headers, "a forgery needs no key of theirs"


def test_nothing_to_forge_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = replace(configured("okta", monkeypatch), secrets=())
    with pytest.raises(ConfigError, match="--forge is not possible"):
        _sign(endpoint, Sample("1", "x", b"{}"), NOW_URL, forge=True)


# ── in words ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [*NAMES, "hmac"])
def test_every_contract_can_be_told(name: str) -> None:
    contract = find(name, {"header": "X-Signature"}) if name == "hmac" else contracts()[name]
    told = {fact.name: fact.value for fact in words.facts(contract)}
    assert {"authenticated by", "which covers", "event key", "type", "answer", "retries"} <= set(told)
    assert told["authenticated by"] != contract.scheme.name, "this kind of scheme has no words yet"
    assert "secrets contain" in told, "what are its secrets?"
    for fact in words.confirmed(contract):
        assert fact.value != "memory"
    assert words.kind(contract.scheme)


def test_what_was_only_remembered_is_unconfirmed() -> None:
    stripe = {fact.name: fact.value for fact in words.confirmed(contracts()["stripe"])}
    assert stripe["response"] == "unconfirmed"
    assert "running" in stripe["signature"]


def test_jwt_examples_hold_what_is_left_open() -> None:
    for name in NAMES:
        contract = contracts()[name]
        if isinstance(contract.scheme, Jwt) and contract.options:
            options = tomllib.loads(words.example(contract))["sources"][name]["options"]
            assert set(options) == set(contract.options)
