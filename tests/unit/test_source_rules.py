"""What a source may be configured to, and what is said about it at start-up."""

from __future__ import annotations

from typing import Any

import pytest

from hookledger import ConfigError, Inbox
from hookledger.clock import Seconds
from hookledger.config import decode
from hookledger.model import Proof, Request
from hookledger.providers.catalogue import find
from hookledger.receive.client import proxies
from hookledger.receive.identify import identify
from hookledger.states import KeyOrigin
from tests.endpoints import configure

SECRET = "whsec_bWFkZSB1cCBmb3IgdGhlIHRlc3RzIQ=="
DAY = 86400.0
NOW = 1_763_000_000.0


def one(provider: str, body: bytes, **options: Any) -> Any:
    endpoint = configure("s", find(provider), [SECRET], **options)
    [item] = identify(endpoint, Request("POST", "/s", b"", (), body), Proof("x", "y"), NOW)
    return item


# ── the horizon ──────────────────────────────────────────────────────────────


# proves R49
@pytest.mark.parametrize(
    ("provider", "days", "problem"),
    [
        ("stripe", 29, "may redeliver an event for 30 days"),
        ("github", 365, "signs no time"),
        ("mailgun", 365, "does not sign the time of the event"),
        ("svix", 365, "it is unknown"),
    ],
)
def test_a_horizon_that_would_let_events_in_twice_is_refused(provider: str, days: float, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        configure("s", find(provider), [SECRET], horizon=days * DAY)


# proves R74
def test_what_is_older_than_the_horizon_goes_to_review() -> None:
    old = one("stripe", b'{"id":"evt_1","created":%d}' % (NOW - 31 * DAY), horizon="30d")
    new = one("stripe", b'{"id":"evt_1","created":%d}' % (NOW - 29 * DAY), horizon="30d")
    unknown = one("stripe", b'{"id":"evt_1"}', horizon="30d")
    assert old.review == "older than the source's horizon of 30 days: it may be a duplicate of a deleted event"
    assert unknown.review == "of unknown age, with a horizon of 30 days: it may be a duplicate of a deleted event"
    assert new.review is None
    assert one("stripe", b'{"id":"evt_1","created":1}').review is None


# ── keys ─────────────────────────────────────────────────────────────────────


def test_a_key_of_fields() -> None:
    body = b'{"id":"evt_1","type":"a","data":{"object":{"id":"in_1"}}}'
    item = one("stripe", body, key=["body:data.object.id", "text:stage-2"])
    assert (item.key, item.key_origin, item.body_identity) == ("in_1:stage-2", KeyOrigin.COMPOSITE, None)
    unsigned = one("stripe", body, key=["header:X-Tenant"])
    assert unsigned.key_origin is KeyOrigin.DIGEST  # there is no such header here


def test_a_hint_has_no_key() -> None:
    first, second = one("dropbox", b"{}"), one("dropbox", b"{}")
    assert first.key_origin is KeyOrigin.ARRIVAL
    assert first.identity != second.identity
    with pytest.raises(ConfigError, match="events have no key"):
        configure("s", find("dropbox"), [SECRET], key=["body:id"])


@pytest.mark.parametrize("made", [True, 1.5, [], {}, ("a", ("b",)), object()])
def test_what_cannot_be_a_key_goes_to_the_dead_letter(made: object) -> None:
    item = one("stripe", b'{"id":"evt_1"}', key=lambda content, headers: made)
    assert (item.key_origin, item.invalid) == (KeyOrigin.DIGEST, "the source's key function raised TypeError")


@pytest.mark.parametrize("made", [None, b"", "", "  ", (), ("a", None)])
def test_what_is_no_key_falls_back_to_the_content(made: object) -> None:
    item = one("stripe", b'{"id":"evt_1"}', key=lambda content, headers: made)
    assert (item.key_origin, item.invalid) == (KeyOrigin.DIGEST, None)


@pytest.mark.parametrize("made", ["a", 7, b"raw", ("a", 7, b"\xff"), "x" * 5000, "\ud800"])
def test_what_a_key_function_may_return(made: object) -> None:
    item = one("stripe", b'{"id":"evt_1"}', key=lambda content, headers: made)
    assert item.key_origin is KeyOrigin.FUNCTION
    assert 0 < len(item.key) <= 255


@pytest.mark.parametrize("text", ["id", "header:", "body", "cookie:x", "header:Ä"])
def test_a_field_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a field"):
        configure("s", find("stripe"), [SECRET], key=[text])


# ── where it is ──────────────────────────────────────────────────────────────


# proves R67
def test_paths() -> None:
    inbox = Inbox()
    inbox.source("a", provider="stripe", secrets=[SECRET], path="/webhooks/stripe")
    assert inbox.sources["a"].endpoint.path == "/webhooks/stripe"
    for path, problem in (
        ("/webhooks/stripe", "the same path"),
        ("/healthz", "health checks"),
        ("no-slash", "must begin with /"),
        ("/a?b", "must begin with /"),
    ):
        with pytest.raises(ConfigError, match=problem):
            inbox.source("b", provider="stripe", secrets=[SECRET], path=path)


def request(remote: str, *headers: tuple[bytes, bytes]) -> Request:
    return Request("POST", "/hook", b"a=1", headers, b"", remote)


def test_only_a_trusted_proxy_tells_the_url() -> None:
    secret = "made up for square"
    with pytest.raises(ConfigError, match="set public_url"):
        configure("s", find("square"), [secret])
    ours = proxies(["10.0.0.0/8"])
    endpoint = configure("s", find("square"), [secret], proxies=ours)
    told = ((b"x-forwarded-proto", b"https"), (b"x-forwarded-host", b"hooks.example.com"))
    assert endpoint.url(request("10.1.2.3", *told)) == b"https://hooks.example.com/hook?a=1"
    assert endpoint.url(request("192.0.2.1", *told)) == b"?a=1"
    assert endpoint.url(request("10.1.2.3", *told, told[1])) == b"?a=1"
    assert endpoint.url(request("10.1.2.3")) == b"?a=1"
    given = configure("s", find("square"), [secret], public_url="https://x.example/y", proxies=ours)
    assert given.url(request("10.1.2.3", *told)) == b"https://x.example/y?a=1"
    with pytest.raises(ConfigError, match="not an address, a network"):
        proxies(["everyone"])


# ── what is said ─────────────────────────────────────────────────────────────


def advice(provider: str, secrets: list[str], **options: Any) -> str:
    inbox = Inbox()
    inbox.source("s", provider=provider, secrets=secrets, **options)
    return "\n".join(inbox.advice())


def test_which_types_may_be_unordered_is_said() -> None:
    options: dict[str, Any] = {"ordered": ["invoice.*", "customer.created"]}
    unordered = "events without body:data.object.customer are not ordered, of any type: customer.created, invoice.*"
    assert unordered in advice("stripe", [SECRET], entity=["data.object.customer"], **options)
    assert "events without an object id are not ordered" in advice("stripe", [SECRET], **options)
    assert "not ordered" not in advice("stripe", [SECRET], entity=["data.object.customer"])


def test_advice() -> None:
    assert advice("stripe", [SECRET]) == ""
    assert "does not redeliver" in advice("github", [SECRET])
    assert "does not redeliver" not in advice("github", [SECRET], reconciled=True)
    assert "tries for only 6 minutes" in advice("slack_events", [SECRET])
    assert "anyone can write" in advice("mollie_classic", [])
    assert "does not cover the body" in advice("okta", [SECRET])
    assert "set verify_token" in advice("meta", [SECRET])
    assert "shorter than 16 bytes" in advice("github", ["made-up-secret"], reconciled=True)
    assert "shorter than 16 bytes" in advice("gitlab", ["made-up-token"])
    assert "shorter" not in advice("paypal", ["MADE-UP-ID"]), "a webhook's id is no secret"
    assert "verify_token" not in advice("meta", [SECRET], verify_token="made-up")
    assert "its mode is" in advice("stripe", [SECRET], mode="observe")
    assert "origins is empty" in advice("cloudevents", [SECRET])


def test_a_file_with_everything() -> None:
    settings = decode(
        {
            "sources": {
                "s": {
                    "provider": "stripe",
                    "secrets": [SECRET],
                    "path": "/old/url",
                    "mode": "observe",
                    "key": ["body:id"],
                    "on_failed": "alert",
                    "redelivery_alert": 0,
                    "horizon": "40d",
                    "repeatable": ["a"],
                }
            }
        }
    )
    endpoint = Inbox(settings=settings).sources["s"].endpoint
    assert (endpoint.path, endpoint.settings.mode, endpoint.settings.on_failed) == ("/old/url", "observe", "alert")
    assert (endpoint.settings.redelivery_alert, endpoint.settings.horizon) == (0, Seconds("40d"))
    assert (endpoint.key_origin, endpoint.repeatable) == (KeyOrigin.SIGNED_ID, frozenset({"a"}))
    with pytest.raises(ConfigError, match="source 's': unknown key on_fail: did you mean on_failed"):
        decode({"sources": {"s": {"provider": "stripe", "on_fail": "alert"}}})
    for wrong in ({"verify_token": "x"}, {"redelivery_alert": -1}, {"tolerance": "0s"}):
        with pytest.raises(ConfigError):
            Inbox(settings=decode({"sources": {"s": {"provider": "stripe", "secrets": [SECRET], **wrong}}}))
