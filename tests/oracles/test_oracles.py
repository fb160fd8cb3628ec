"""Each oracle is alive: it accepts what its provider would send, and refuses what nobody signed.

Where an SDK is known for something, that is asserted too: a differential test that differs there is no finding.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Callable
from importlib.metadata import version
from random import Random
from urllib.parse import parse_qs, urlencode

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from tests.oracles import signers
from tests.oracles.delivery import Delivery
from tests.oracles.keys import Keys, certificate_id, fresh_secret
from tests.oracles.oracle import Oracle, OracleMissing, Verdict, sdk
from tests.oracles.sdks import ORACLES
from tests.oracles.signers import deliver

NOW = 1_750_000_000.0
NAMES = sorted(ORACLES)
NOT_COVERED = {"mailgun", "adyen_classic", "google_pubsub"}
"""The signature says nothing of the body, or (adyen_classic) only of eight fields in it."""

every = pytest.mark.parametrize("name", NAMES)


def keys_for(name: str, seed: int = 1) -> Keys:
    return fresh_secret(name, Random(f"{name}-{seed}"))


def accepted(name: str, request: Delivery, keys: Keys, now: float = NOW) -> bool:
    return ORACLES[name].accepts(request, [keys.checking], now)


def judged(name: str, request: Delivery, keys: Keys, now: float = NOW) -> Verdict:
    return ORACLES[name].judge(request, [keys.checking], now)


def good(name: str, body: bytes | None = None, *, now: float = NOW, url: str = signers.URL) -> tuple[Delivery, Keys]:
    keys = keys_for(name)
    return deliver(name, body, secret=keys.signing, now=now, url=url), keys


def with_headers(request: Delivery, **changed: str) -> Delivery:
    return replace(
        request, headers=request.headers | {name.replace("_", "-"): value for name, value in changed.items()}
    )


def tampered(name: str, request: Delivery) -> Delivery:
    if name == "braintree":
        form = {field: values[0] for field, values in parse_qs(request.body.decode()).items()}
        form["bt_payload"] = b64encode(signers.sample("braintree").replace(b"check", b"claim")).decode()
        return replace(request, body=urlencode(form).encode())
    assert b"4200" in request.body
    return replace(request, body=request.body.replace(b"4200", b"4300"))


# ── every oracle ─────────────────────────────────────────────────────────────


def test_every_oracle_has_a_signer_and_every_signer_an_oracle() -> None:
    assert set(ORACLES) == set(signers.SIGNERS) | set(signers.ENVELOPES)
    assert {name for name, oracle in ORACLES.items() if not oracle.covers_body} == NOT_COVERED


@every
def test_the_installed_sdk_is_one_that_was_tried(name: str) -> None:
    wanted = Requirement(ORACLES[name].package)
    assert version(wanted.name) in wanted.specifier


@every
def test_a_good_delivery_is_accepted(name: str) -> None:
    request, keys = good(name)
    assert judged(name, request, keys) == Verdict(True)


@every
def test_header_names_may_have_any_case(name: str) -> None:
    request, keys = good(name)
    assert accepted(name, replace(request, headers={k.upper(): v for k, v in request.headers.items()}), keys)
    assert accepted(name, replace(request, headers=request.lowered()), keys)


@every
def test_any_of_several_secrets_will_do(name: str) -> None:
    request, keys = good(name)
    other = keys_for(name, 2).checking
    assert ORACLES[name].accepts(request, [other, keys.checking], NOW)
    assert not ORACLES[name].accepts(request, [], NOW)


@every
def test_a_tampered_body_is_refused_where_the_signature_covers_it(name: str) -> None:
    request, keys = good(name)
    changed = tampered(name, request)
    assert changed.body != request.body
    # adyen_classic: 4200 stands in three of the eight signed fields.
    assert accepted(name, changed, keys) == (name in NOT_COVERED - {"adyen_classic"})


@every
def test_a_wrong_secret_is_refused(name: str) -> None:
    request, _ = good(name)
    assert not accepted(name, request, keys_for(name, 2))


@every
def test_a_missing_header_is_refused(name: str) -> None:
    request, keys = good(name)
    if name in signers.ENVELOPES:
        assert not accepted(name, replace(request, body=signers.sample(name)), keys)
        return
    signed = set(signers.sign(name, request.body, secret=keys.signing, now=NOW)) - {"Content-Type"}
    unread = {"X-HubSpot-Signature-Version"}
    for header in signed - unread:
        rest = {k: v for k, v in request.headers.items() if k != header}
        assert not accepted(name, replace(request, headers=rest), keys), header


@every
@pytest.mark.parametrize("sign", [1, -1], ids=["future", "past"])
def test_the_clock_reaches_as_far_as_the_table_says(name: str, sign: int) -> None:
    oracle = ORACLES[name]
    reach = oracle.future if sign > 0 else oracle.past
    request, keys = good(name)
    if reach is None:
        assert accepted(name, request, keys, NOW - sign * 86_400)
    else:
        assert accepted(name, request, keys, NOW - sign * max(reach - 1, 0))
        assert not accepted(name, request, keys, NOW - sign * (reach + 2))


@every
def test_bytes_that_are_not_utf8_never_leave_an_oracle_as_an_exception(name: str) -> None:
    request, keys = good(name)
    assert judged(name, replace(request, body=b"\xff\xfe"), keys).accepted == (name == "google_pubsub")


def test_a_missing_sdk_is_named_and_is_no_verdict() -> None:
    oracle = Oracle(package="absent>=1", verify=lambda _request, _secret: sdk("no_such_sdk", "absent"))
    with pytest.raises(OracleMissing, match="absent"):
        oracle.accepts(good("github")[0], ["made-up"], NOW)


# ── what single SDKs are known for ───────────────────────────────────────────


def test_stripe_accepts_the_future_and_cannot_read_other_bytes() -> None:
    request, keys = good("stripe", now=NOW + 3600)
    assert accepted("stripe", request, keys)
    request, keys = good("stripe", b"\xff")
    assert judged("stripe", request, keys) == Verdict(False, "UnicodeDecodeError")


def test_stripe_accepts_one_good_signature_among_several() -> None:
    request, keys = good("stripe")
    stamp, _, signature = request.header("Stripe-Signature").partition(",")
    assert accepted(
        "stripe", with_headers(request, Stripe_Signature=f"{stamp},v1={'0' * 64},{signature},v0=00"), keys
    )
    assert not accepted(
        "stripe", with_headers(request, Stripe_Signature=f"{stamp},{signature.replace('1', '0', 1)}"), keys
    )


def test_gidgethub_accepts_sha1() -> None:
    request, keys = good("github")
    digest = hmac.new(keys.signing.encode(), request.body, "sha1").hexdigest()
    assert accepted("github", replace(request, headers={"X-Hub-Signature": f"sha1={digest}"}), keys)


def test_slack_raises_on_a_timestamp_that_is_no_number() -> None:
    request, keys = good("slack_events")
    assert (
        judged("slack_events", with_headers(request, X_Slack_Request_Timestamp="soon"), keys).raised == "ValueError"
    )


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com:443/in/endpoint", "https://hooks.example.com:8443/in/endpoint"]
)
def test_twilio_tries_the_url_without_its_port(url: str) -> None:
    request, keys = good("twilio")
    assert accepted("twilio", replace(request, url=url), keys)


def test_twilio_binds_json_by_the_digest_in_the_url() -> None:
    body = b'{"amount":4200}'
    request, keys = good("twilio", body, url=signers.twilio_json_url(signers.URL, body))
    assert accepted("twilio", request, keys)
    assert not accepted("twilio", replace(request, body=b'{"amount":4300}'), keys)
    assert judged("twilio", replace(request, url=signers.URL), keys).raised == "TypeError"


def test_twilio_does_not_cover_the_order_of_fields() -> None:
    request, keys = good("twilio", b"B=2&A=1&A=0")
    assert accepted("twilio", replace(request, body=b"A=0&A=1&A=1&B=2"), keys)


def test_twilio_verifies_shared_keys_by_sha256() -> None:
    keys = keys_for("twilio")
    digest = hmac.new(keys.signing.encode(), f"{signers.URL}A1".encode(), "sha256").digest()
    headers = signers.FORM | {
        "X-Twilio-Signature": b64encode(digest).decode(),
        "X-Twilio-Webhooks-Signature-Settings": "key=made-up,algorithm=HMAC_SHA256",
    }
    assert accepted("twilio", Delivery("POST", signers.URL, headers, b"A=1"), keys)


def test_svix_reads_the_headers_of_the_specification_too() -> None:
    keys = keys_for("svix")
    assert accepted("svix", deliver("standard_webhooks", secret=keys.signing, now=NOW), keys)


def test_standardwebhooks_raises_on_malformed_elements() -> None:
    request, keys = good("standard_webhooks")
    for value, raised in (("v1", "ValueError"), ("v1,a", "Error"), ("v1,a,b", "ValueError")):
        assert judged("standard_webhooks", with_headers(request, webhook_signature=value), keys).raised == raised
    after = with_headers(request, webhook_signature=f"v1a {request.header('webhook-signature')}")
    assert judged("standard_webhooks", after, keys) == Verdict(False, "ValueError")


def test_standardwebhooks_signs_the_whole_part_of_a_timestamp() -> None:
    request, keys = good("standard_webhooks")
    assert accepted("standard_webhooks", with_headers(request, webhook_timestamp=f"{int(NOW)}.75"), keys)


def test_resend_does_not_read_the_version_of_a_signature() -> None:
    request, keys = good("resend")
    assert accepted("resend", with_headers(request, svix_signature="v9" + request.header("svix-signature")[2:]), keys)


def test_openai_takes_bare_secrets_as_text_and_bare_signatures() -> None:
    bare = keys_for("bigcommerce")
    assert accepted("openai", deliver("bigcommerce", secret=bare.signing, now=NOW), bare)
    request, keys = good("openai")
    assert accepted("openai", with_headers(request, webhook_signature=request.header("webhook-signature")[3:]), keys)


def test_anthropic_does_not_read_x_webhook_signature() -> None:
    request, keys = good("anthropic")
    headers = {f"X-{name}": value for name, value in request.headers.items()}
    assert not accepted("anthropic", replace(request, headers=headers), keys)


def test_square_compares_the_url_as_it_is_written() -> None:
    request, keys = good("square")
    assert not accepted("square", replace(request, url=request.url + "/"), keys)


def test_adyen_signs_eight_fields_of_the_first_item() -> None:
    request, keys = good("adyen_classic")
    assert accepted("adyen_classic", replace(request, body=request.body.replace(b"made up", b"swapped")), keys)
    batch = json.loads(request.body)
    forged = json.loads(request.body.replace(b"4200", b"4300"))["notificationItems"][0]
    batch["notificationItems"].append(forged)
    assert accepted("adyen_classic", replace(request, body=json.dumps(batch).encode()), keys)


def test_adyen_does_not_escape_colons() -> None:
    item = json.loads(signers.sample("adyen_classic")) | {"merchantAccountCode": "Shop", "merchantReference": "a:b"}
    request, keys = good("adyen_classic", json.dumps(item).encode())
    moved = request.body.replace(b'"Shop"', b'"Shop:a"').replace(b'"a:b"', b'"b"')
    assert moved != request.body
    assert accepted("adyen_classic", replace(request, body=moved), keys)


def test_paddle_raises_on_unknown_keys_and_keeps_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    request, keys = good("paddle")
    header = request.header("Paddle-Signature")
    assert judged("paddle", with_headers(request, Paddle_Signature=f"{header};h2=00"), keys).raised == "ValueError"
    monkeypatch.setenv("TEST_MODE", "1")
    assert not accepted("paddle", request, keys, NOW + 60)


def test_braintree_picks_the_pair_of_its_public_key() -> None:
    request, keys = good("braintree")
    form = {field: values[0] for field, values in parse_qs(request.body.decode()).items()}
    form["bt_signature"] = f"someoneelse|{'0' * 40}&{form['bt_signature']}"
    assert accepted("braintree", replace(request, body=urlencode(form).encode()), keys)


def test_braintree_adds_a_line_feed_when_the_form_lost_it() -> None:
    request, keys = good("braintree")
    form = {field: values[0] for field, values in parse_qs(request.body.decode()).items()}
    assert form["bt_payload"].endswith("\n")
    form["bt_payload"] = form["bt_payload"].removesuffix("\n")
    assert accepted("braintree", replace(request, body=urlencode(form).encode()), keys)


def test_hubspot_accepts_the_future_and_does_not_decode_the_url() -> None:
    request, keys = good("hubspot", now=NOW + 3600)
    assert accepted("hubspot", request, keys)
    request, keys = good("hubspot", url=f"{signers.URL}?q=a%20b")
    assert not accepted("hubspot", replace(request, url=f"{signers.URL}?q=a b"), keys)


def test_mailgun_vouches_for_any_event() -> None:
    request, keys = good("mailgun")
    other = json.loads(request.body) | {"event-data": {"event": "forged"}}
    assert accepted("mailgun", replace(request, body=json.dumps(other).encode()), keys)


def test_workos_wants_a_space_and_does_not_read_the_names() -> None:
    request, keys = good("workos")
    header = request.header("WorkOS-Signature")
    assert not accepted("workos", with_headers(request, WorkOS_Signature=header.replace(", ", ",")), keys)
    assert accepted(
        "workos", with_headers(request, WorkOS_Signature=header.replace("t=", "x:").replace("v1=", "abc")), keys
    )


def test_sendgrid_signs_the_last_line_end() -> None:
    request, keys = good("sendgrid")
    assert request.body.endswith(b"\r\n")
    assert not accepted("sendgrid", replace(request, body=request.body.rstrip()), keys)


@pytest.mark.parametrize(
    ("name", "header"), [("sendgrid", "X-Twilio-Email-Event-Webhook-Signature"), ("quickbooks", "intuit-signature")]
)
def test_junk_in_base64_is_passed_over(name: str, header: str) -> None:
    request, keys = good(name)
    junk = request.headers | {header: f"!{request.header(header)}!"}
    assert accepted(name, replace(request, headers=junk), keys)


def test_pywa_accepts_a_signature_without_its_prefix() -> None:
    request, keys = good("meta")
    bare = request.header("X-Hub-Signature-256").removeprefix("sha256=")
    assert accepted("meta", with_headers(request, X_Hub_Signature_256=bare), keys)


@pytest.mark.parametrize(
    ("changed", "fine"),
    [
        ({"email": "someone@else.example.com", "email_verified": False}, True),
        ({"iss": "accounts.google.com"}, True),
        ({"iss": "https://accounts.example.com"}, False),
        ({"aud": "https://hooks.example.com/elsewhere"}, False),
        ({"exp": NOW - 1}, False),
        ({"iat": NOW + 60}, False),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_google_checks_issuer_audience_and_time_but_not_the_account(changed: dict[str, object], fine: bool) -> None:
    request, keys = good("google_pubsub")
    claims = signers.pubsub_claims(NOW, signers.URL) | changed
    token = signers.pubsub_token(keys.signing, claims, certificate_id(keys.signing))
    assert accepted("google_pubsub", with_headers(request, Authorization=f"Bearer {token}"), keys) == fine


def _without_signature(token: str) -> str:
    return token.rpartition(".")[0] + "."


def _other_kid(token: str) -> str:
    keys = keys_for("google_pubsub")
    return signers.pubsub_token(keys.signing, signers.pubsub_claims(NOW, signers.URL), hashlib.sha1(b"x").hexdigest())


@pytest.mark.parametrize("forge", [_without_signature, _other_kid])
def test_google_refuses_tokens_without_a_signature_or_a_known_key(forge: Callable[[str], str]) -> None:
    request, keys = good("google_pubsub")
    token = forge(request.header("Authorization").removeprefix("Bearer "))
    assert not accepted("google_pubsub", with_headers(request, Authorization=f"Bearer {token}"), keys)
