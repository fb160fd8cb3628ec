"""Contracts as data, the catalogue, and what start-up refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from hookledger.errors import ConfigError
from hookledger.providers.catalogue import contracts, find, names
from hookledger.providers.contract import Contract
from hookledger.providers.fields import body, header
from hookledger.providers.reading import decode
from hookledger.providers.schemes.hmac import Hmac
from hookledger.providers.schemes.times import Timestamp
from hookledger.providers.words import retries
from hookledger.receive.advice import advice
from hookledger.receive.secrets import load_secret
from tests.endpoints import configure
from tests.providers.made import FIRST, endpoint_of

STRIPE, GITHUB, STANDARD = find("stripe"), find("github"), find("standard_webhooks")
SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"


def test_every_name_is_found() -> None:
    assert {"github", "hmac", "standard_webhooks", "stripe"} <= set(names())
    for name in ("github", "hmac", "standard_webhooks", "stripe"):
        contract = find(name, {"header": "X-Sig"} if name == "hmac" else None)
        assert contract.name == name
        assert contract.title
        assert contract.body_authenticated
        assert b"authorization" in contract.secret_headers


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("strpie", "'stripe'"),
        ("GitHub", "'github'"),
        ("standard-webhooks", "'standard_webhooks'"),
        ("?", "hookledger providers"),
        ("slack", "'slack_commands' or 'slack_events' or 'slack_interactions'"),
        ("Slack", "'slack_commands' or 'slack_events' or 'slack_interactions'"),
        ("WhatsApp", "'meta_whatsapp'"),
        ("github-app", "'github'"),
        ("pub/sub", "'google_pubsub'"),
    ],
)
def test_a_misspelt_provider_is_told_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        find(wrong)


def test_what_becomes_of_failing_endpoints_is_a_clause() -> None:
    verbs = ["disables the endpoint", "a circuit breaker", "may disable", "does not retry", "the specification"]
    verbs += ["holds later events", "disables the hook", "pauses for", "removes a subscription"]
    told = {contract.retries.disables for contract in contracts().values()} - {""}
    assert all(clause.startswith(tuple(verbs)) for clause in told)
    shopify = retries(find("shopify"))
    assert shopify.endswith("; removes a subscription made over the Admin API after 8 failures in a row")


# proves R13
def test_what_each_signature_covers() -> None:
    assert [c.id_authenticated for c in (STRIPE, GITHUB, STANDARD)] == [True, False, True]
    assert [c.type_authenticated for c in (STRIPE, GITHUB, STANDARD)] == [True, False, True]
    assert not any(c.needs_public_url for c in (STRIPE, GITHUB, STANDARD))
    assert [c.retries.hours for c in (STRIPE, GITHUB, STANDARD)] == [72, 0, None]


def test_options_belong_to_the_generic_provider() -> None:
    with pytest.raises(ConfigError, match="it has no options"):
        find("stripe", {"header": "X-Sig"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "header"),
        ({"header": "X-Sig", "colour": "red"}, "colour"),
        ({"header": "X-Sig", "alg": "md5"}, "md5"),
        ({"header": "X-Sig", "message": "{body}{secret}"}, "unknown placeholder"),
        ({"header": "X-Sig", "message": "{body"}, "not a template"),
        ({"header": "X-Sig", "message": "hello"}, "must contain {body}"),
        ({"header": "X-Sig", "message": "{ts}.{body}"}, "{ts} must be"),
        ({"header": "X-Sig", "message": "{body}", "timestamp_header": "X-Time"}, "{ts} must be"),
        ({"header": "X-Sig", "message": "{id}{body}", "id_header": "X-Id"}, "separator"),
        ({"header": "X-Sig", "timestamp_header": "X-Time", "timestamp_prefix": "t="}, "exactly one place"),
        ({"header": "X-Sig", "id": "X-Id"}, "is not a field"),
        ({"header": "X-Sig", "id": "header:"}, "is not a field"),
        ({"header": "X-Sig", "id": "header:X-Id", "items": "events"}, "add a body field"),
        ({"header": "X-Sïg"}, "ASCII"),
    ],
)
def test_generic_options_are_checked(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("{", r"\{")):
        find("hmac", options)


def test_generic_options_describe_a_contract() -> None:
    contract = find(
        "hmac",
        {
            "header": "X-Acme-Signature",
            "timestamp_header": "X-Acme-Time",
            "timestamp_unit": "ms",
            "id": "header:X-Acme-Id",
            "key": ["header:X-Acme-Id", "body:stage"],
            "type": ["body:kind.name"],
            "secret_encoding": "hex",
        },
    )
    assert contract.scheme == Hmac(
        header=b"x-acme-signature",
        timestamp=Timestamp(header=b"x-acme-time", unit="ms"),
        message="{ts}.{body}",
        key="hex",
    )
    assert contract.key_fields == (header("X-Acme-Id"), body("stage"))
    assert contract.type == (body("kind.name"),)
    assert not contract.id_authenticated


def test_github_forms_are_read_by_their_bytes() -> None:
    assert decode(GITHUB, b"payload=%7B%22action%22%3A+%22opened%22%7D") == {"action": "opened"}
    assert decode(GITHUB, b"payload=%7B%22name%22%3A%22Zo%C3%AB%22%7D") == {"name": "Zoë"}
    assert decode(GITHUB, b'{"payload": 1}') == {"payload": 1}
    for broken in (b"payload=", b"payload=%7B", b"payload=1&payload=2", b"payload=\xff", b"payload=1" + b"&a" * 2000):
        with pytest.raises(ValueError):
            decode(GITHUB, broken)


def test_nesting_has_one_limit_wherever_it_is_read() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' * depth + b"1" + b"}" * depth

    assert decode(STRIPE, nested(128))
    for deep in (nested(129), nested(900), b"[" * 100_000, b'["]"' + b",[" * 200 + b"]" * 201):
        with pytest.raises(ValueError, match=r"nested too deeply|not JSON"):
            decode(STRIPE, deep)
    assert decode(STRIPE, b'["' + b"[" * 500 + rb"\"[" + b'"]')
    assert decode(STRIPE, b"[" + b"[]," * 500 + b"[]]")


# ── secrets ──────────────────────────────────────────────────────────────────


def test_secrets_come_from_env_file_or_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    loaded = [load_secret(s, STRIPE) for s in (SECRET, "env:HOOK_SECRET", f"file:{path}")]
    assert {(s.key, s.fingerprint) for s in loaded} == {(SECRET.encode(), loaded[0].fingerprint)}


def test_whsec_says_nothing_about_the_scheme() -> None:
    assert load_secret(SECRET, STRIPE).key == SECRET.encode()
    assert load_secret(SECRET, STANDARD).key == b"secret" * 4
    assert load_secret(SECRET.removeprefix("whsec_"), STANDARD).key == b"secret" * 4


@pytest.mark.parametrize("text", ["", " ", "\t\n ", "short", "\0", "        "])
@pytest.mark.parametrize("contract", [STRIPE, GITHUB, STANDARD], ids=lambda c: str(c.name))
def test_empty_blank_and_short_secrets_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, contract: Contract, text: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        load_secret(f"file:{path}", contract)
    with pytest.raises(ConfigError, match="the configuration"):
        load_secret(text, contract)
    if "\0" not in text:
        monkeypatch.setenv("HOOK_SECRET", text)
        with pytest.raises(ConfigError, match="HOOK_SECRET"):
            load_secret("env:HOOK_SECRET", contract)


@pytest.mark.parametrize(
    "source",
    [
        "env:NOT_SET",
        "env:",
        "file:/does/not/exist",
        "file:/",
        "file:",
        "whsec_not base64!",
        "whpk_" + "A" * 40,
        "whsec_é",
    ],
)
def test_secrets_that_cannot_be_loaded(source: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_secret(source, STANDARD)
    assert source.removeprefix("whsec_") not in str(caught.value) or source.startswith(("env:", "file:"))


def test_a_secret_never_shows() -> None:
    endpoint = configure("s", STRIPE, [SECRET])
    secret = endpoint.secrets[0]
    shown = f"{endpoint!r} {endpoint} {secret!r} {secret} {endpoint.secrets}"
    assert SECRET not in shown
    assert SECRET[10:20] not in shown
    assert secret.fingerprint in shown
    assert len(secret.fingerprint) == 8
    assert secret.fingerprint != load_secret(SECRET + "x", STRIPE).fingerprint


# ── endpoints ────────────────────────────────────────────────────────────────


def test_endpoints_start_with_the_contracts_defaults() -> None:
    stripe, github = configure("s", STRIPE, [SECRET]), configure("g", GITHUB, [SECRET])
    assert (stripe.tolerance, github.tolerance) == (300, None)
    assert (stripe.max_body, github.max_body) == (1024 * 1024, 25 * 1024 * 1024)
    assert configure("s", STRIPE, [SECRET], tolerance=60, max_body=10).max_body == 10


def test_endpoints_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="no secret"):
        configure("s", STRIPE, [])
    for name in ("", "a b", "a/b", "-a", "é", "a" * 65):
        with pytest.raises(ConfigError, match="is not a source name"):
            configure(name, STRIPE, [SECRET])
    for tolerance in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="tolerance"):
            configure("s", STRIPE, [SECRET], tolerance=tolerance)
    with pytest.raises(ConfigError, match="signs no time"):
        configure("g", GITHUB, [SECRET], tolerance=300)
    with pytest.raises(ConfigError, match="max_body"):
        configure("s", STRIPE, [SECRET], max_body=0)


def test_allowed_types_are_exact_or_prefixes() -> None:
    endpoint = configure("s", STRIPE, [SECRET], types=["invoice.paid", "customer.*"])
    assert endpoint.allows("invoice.paid")
    assert endpoint.allows("customer.subscription.deleted")
    assert not endpoint.allows("invoice.paid.late")
    assert not endpoint.allows("customer")
    assert configure("s", STRIPE, [SECRET]).allows("anything")
    assert not configure("s", STRIPE, [SECRET], types=[]).allows("anything")


def test_start_up_says_which_sources_have_unsigned_types() -> None:
    assert FIRST.keys() == contracts().keys()
    lines = {name: advice(endpoint_of(example), reconciled=True) for name, example in FIRST.items()}
    assert {name for name, said in lines.items() if any("does not sign the event type" in line for line in said)} == {
        *("bitbucket", "coinbase_cdp", "github", "gitlab_signed", "sentry", "shopify", "twilio", "twilio_voice"),
        "woocommerce",
    }


def test_start_up_says_what_cannot_repeat() -> None:
    named = ["gollum", "fork", "team.created"]
    endpoint = configure("s", find("github"), ["made up for the tests"], repeatable=named)
    [line] = [line for line in advice(endpoint, reconciled=True) if "the body does not show" in line]
    assert "fork" in line
    assert "gollum" not in line
    assert "team.created" not in line, "every action of a team looks alike, so its body shows it too"
