"""Secrets that a request presents: in one place, in one piece, and never stored."""

from __future__ import annotations

from typing import Any

import pytest

from hookledger.errors import Malformed, Rejected, Unauthentic
from hookledger.model import Request, unpack_headers
from hookledger.providers.catalogue import find
from hookledger.receive.app import arrival
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.identify import identify
from hookledger.receive.rejections import rejected_request
from hookledger.receive.verify import verify
from tests.endpoints import configure

SECRET = "made-up-for-the-tests"
NOW = 1_763_000_000.0
BODY = b'{"id":"ev_1","event_type":"invoice_generated"}'


def endpoint(provider: str, secret: str = SECRET, **options: Any) -> Endpoint:
    return configure("s", find(provider), [secret], **options)


def request(query: str = "", *headers: tuple[str, str]) -> Request:
    pairs = tuple((name.encode(), value.encode()) for name, value in headers)
    return Request("POST", "/s", query.encode(), pairs, BODY)


def refused(at: Endpoint, sent: Request) -> Rejected:
    with pytest.raises(Rejected) as caught:
        verify(at, sent, NOW)
    return caught.value


def test_in_the_header_or_in_the_url() -> None:
    at = endpoint("cloudevents")
    verify(at, request("", ("authorization", f"Bearer {SECRET}")), NOW)
    verify(at, request(f"access_token={SECRET}"), NOW)


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        (f"access_token={SECRET}", [("authorization", f"Bearer {SECRET}")]),
        ("access_token=another", [("authorization", f"Bearer {SECRET}")]),
        (f"access_token={SECRET}", [("authorization", "Bearer another")]),
        (f"access_token={SECRET}&access_token={SECRET}", []),
        (f"access_token={SECRET}&%61ccess_token=another", []),
        ("", [("authorization", f"Bearer {SECRET}"), ("authorization", f"Bearer {SECRET}")]),
    ],
)
def test_two_tokens_are_rejected_even_if_one_is_right(query: str, headers: list[tuple[str, str]]) -> None:
    error = refused(endpoint("cloudevents"), request(query, *headers))
    assert (type(error), error.reason) == (Malformed, "credential_duplicate")


@pytest.mark.parametrize("where", ["header", "url"])
def test_a_token_of_endless_length(where: str) -> None:
    def sent(secret: str) -> Request:
        in_header = [("authorization", f"Bearer {secret}")] if where == "header" else []
        return request("" if in_header else f"access_token={secret}", *in_header)

    fits, endless = "x" * 4096, "x" * 4097
    verify(endpoint("cloudevents", fits), sent(fits), NOW)
    error = refused(endpoint("cloudevents", endless), sent(endless))
    assert (type(error), error.reason) == (Malformed, "credential_malformed")


@pytest.mark.parametrize("name", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_name_of_the_scheme_has_no_case(name: str) -> None:
    verify(endpoint("auth0_events"), request("", ("authorization", f"{name} {SECRET}")), NOW)
    upper = request("", ("authorization", f"{name} {SECRET.upper()}"))
    assert refused(endpoint("auth0_events"), upper).reason == "signature_mismatch"  # but the secret has


def test_basic_has_no_case_either() -> None:
    at = endpoint("chargebee", "user:made-up-password")
    for name in ("Basic", "basic"):
        verify(at, request("", ("authorization", f"{name} dXNlcjptYWRlLXVwLXBhc3N3b3Jk")), NOW)


@pytest.mark.parametrize("value", [SECRET, f"Basic {SECRET}", f"Bearer{SECRET}", "Bearer"])
def test_another_scheme_is_refused(value: str) -> None:
    error = refused(endpoint("auth0_events"), request("", ("authorization", value)))
    assert (type(error), error.reason) == (Malformed, "credential_malformed")


@pytest.mark.parametrize("query", ["", "key=", "key=%20", "Key=made-up-for-the-tests", "key"])
def test_none_is_none(query: str) -> None:
    error = refused(endpoint("chargebee_key"), request(query))
    assert (type(error), error.reason) == (Unauthentic, "credential_missing")


@pytest.mark.parametrize("query", [f"a=1&key={SECRET}", f"a=1&%6Bey={SECRET}", f"key={SECRET}&a=1"])
def test_a_secret_of_the_url_is_not_stored(query: str) -> None:
    at, sent = endpoint("chargebee_key"), request(query, ("x-kept", "1"))
    proof = verify(at, sent, NOW)
    taken = arrival(at, sent, proof, identify(at, sent, proof, NOW))
    assert (taken.query, taken.body) == (b"a=1", BODY)
    assert unpack_headers(taken.headers) == [("x-kept", "1")]
    assert SECRET not in repr(proof)
    kept = rejected_request(at, sent, "signature_mismatch")
    assert (kept.query, kept.body) == (b"a=1", BODY)


def test_a_secret_of_a_header_is_not_stored() -> None:
    at = endpoint("gitlab")
    sent = request("key=1&code=2", ("x-gitlab-token", SECRET), ("x-gitlab-event", "Push Hook"))
    proof = verify(at, sent, NOW)
    taken = arrival(at, sent, proof, identify(at, sent, proof, NOW))
    assert unpack_headers(taken.headers) == [("x-gitlab-event", "Push Hook")]
    assert taken.query == b"key=1&code=2", "what is no secret here stays"
