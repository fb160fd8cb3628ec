"""A captured request, sent again with whatever its signature does not see: never a new event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from hookledger.errors import Malformed, Rejected
from hookledger.model import Item, Request
from hookledger.providers.catalogue import contracts, find
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from hookledger.states import KeyOrigin
from tests.endpoints import configure
from tests.providers.made import FIRST, contract_of, endpoint_of, sent

NOW = 1763000000.0


def taken(endpoint: Endpoint, request: Request) -> Item:
    [item] = identify(endpoint, request, verify(endpoint, request, NOW), NOW)
    return item


def known(first: Item, again: Item) -> bool:
    """Whether the store would take the second for nothing new."""
    by_body = first.body_identity is not None and first.body_identity == again.body_identity
    return first.identity == again.identity or by_body


# ── Twilio: all text of the form is signed, and no boundary in it ────────────


@pytest.mark.parametrize(
    ("captured", "variants"),
    [
        (
            b"MessageSid=SM1&MessageStatus=delivered&To=%2B49",
            [
                b"To=%2B49&MessageStatus=delivered&MessageSid=SM1",
                b"MessageSid=SM1&MessageStatus=delivered&To=%2B49&To=%2B49",
                b"MessageSid=SM1&MessageStatus=deliveredTo%2B49",
                b"MessageSid=SM1&MessageStatus=delivered&MessageStatus=delivered&To=%2B49",
                b"MessageSid=SM1&&MessageStatus=delivered&To=%2B49",
            ],
        ),
        (
            b"Body=hello+you&CallSid=CA1&From=%2B1",
            [
                b"From=%2B1&CallSid=CA1&Body=hello+you",
                b"Body=hello%20you&CallSid=CA1&From=%2B1",
                b"Body=hello+youCallSidCA1&From=%2B1",
                b"Body=hello+you&CallSid=CA1&From=%2B1&From=%2B1",
            ],
        ),
    ],
)
def test_twilio(captured: bytes, variants: list[bytes]) -> None:
    example = replace(FIRST["twilio"], body=captured, headers={}, query="")
    endpoint, request = endpoint_of(example), sent(example, NOW)
    first = taken(endpoint, request)
    for variant in variants:
        again = replace(request, body=variant)
        try:
            item = taken(endpoint, again)
        except Rejected:
            continue
        assert known(first, item), variant


@pytest.mark.parametrize(
    ("query", "captured", "variants"),
    [
        (
            "order=5",
            b"AccountSid=AC1&ApiVersion=2010&Body=hi",
            [
                (b"order=5AccountSidAC1", b"ApiVersion=2010&Body=hi"),
                (b"order=5AccountSidAC1ApiVersion2010", b"Body=hi"),
                (b"", b"%3Forder%3D5=&AccountSid=AC1&ApiVersion=2010&Body=hi"),
                (b"order", b"%3D5=&AccountSid=AC1&ApiVersion=2010&Body=hi"),
            ],
        ),
        (
            "order=5",
            b"MessageSid=SM1&MessageStatus=delivered&To=1",
            [
                (b"order=5", b"MessageSid=SM1&MessageStatus=deliveredTo1"),
                (b"order=5MessageSidSM1", b"MessageStatus=delivered&To=1"),
            ],
        ),
        ("", b"=", [(b"", b"=&="), (b"", b"&=")]),
    ],
)
def test_twilio_between_url_and_form(query: str, captured: bytes, variants: list[tuple[bytes, bytes]]) -> None:
    example = replace(FIRST["twilio"], body=captured, headers={}, query=query)
    endpoint, request = endpoint_of(example), sent(example, NOW)
    first = taken(endpoint, request)
    for moved, form in variants:
        try:
            item = taken(endpoint, replace(request, query=moved, body=form))
        except Rejected:
            continue
        assert known(first, item), (moved, form)


def test_the_port_is_taken_from_the_host_alone() -> None:
    from hookledger.providers.schemes.hmac import _other_port

    assert _other_port(b"https://h?u=x:443/y") == b"https://h:443?u=x:443/y"
    assert _other_port(b"https://h:443/p?u=1") == b"https://h/p?u=1"
    assert _other_port(b"http://h:80?u") == b"http://h?u"
    assert _other_port(b"https://h:8443/p") is None
    assert _other_port(b"") is None


# ── Adyen: eight fields are signed, joined by colons ─────────────────────────


def adyen(**fields: Any) -> dict[str, Any]:
    item = {
        "pspReference": "8815",
        "originalReference": "",
        "merchantAccountCode": "Shop",
        "merchantReference": "M:order:123",
        "amount": {"value": 100, "currency": "EUR"},
        "eventCode": "AUTHORISATION",
        "success": "true",
        **fields,
    }
    return {"notificationItems": [{"NotificationRequestItem": item}]}


def test_adyen_is_read_as_it_is_signed() -> None:
    example = replace(FIRST["adyen_classic"], body=adyen())
    endpoint, request = endpoint_of(example), sent(example, NOW)
    first = taken(endpoint, request)
    assert first.key == "8815:AUTHORISATION:true"
    document = json.loads(request.body)
    original = document["notificationItems"][0]["NotificationRequestItem"]
    for changes in (
        {"success": True},
        {"pspReference": 8815},
        {"amount": {"value": "100", "currency": "EUR", "x": 1}, "success": ["true"]},
        {"pspReference": "8815:", "originalReference": "Shop", "merchantAccountCode": "M", "merchantReference": "o"},
        {"originalReference": "Shop:M", "merchantAccountCode": "order", "merchantReference": "123"},
    ):
        item = {**original, **changes}
        body = json.dumps({"notificationItems": [{"NotificationRequestItem": item}]}).encode()
        with pytest.raises(Rejected):
            verify(endpoint, replace(request, body=body), NOW)
    forged = {**original, "reason": "forged"}
    other = json.dumps({"notificationItems": [{"NotificationRequestItem": forged}]}).encode()
    assert taken(endpoint, replace(request, body=other)).identity == first.identity  # a conflict, and no event


@pytest.mark.parametrize("function", [lambda c, h: c["nope"], lambda c, h: None, lambda c, h: 1.5])
def test_adyen_without_the_functions_key_is_known_by_its_own(function: Any) -> None:
    example = FIRST["adyen_classic"]
    endpoint = configure("s", contract_of("adyen_classic"), [example.secret], key=function)
    request = sent(example, NOW)
    items = identify(endpoint, request, verify(endpoint, request, NOW), NOW)
    usual = identify(endpoint_of(example), request, verify(endpoint, request, NOW), NOW)
    assert {item.key_origin for item in items} == {KeyOrigin.COMPOSITE}
    assert [item.key for item in items] == [item.key for item in usual]


# ── what is not signed is no proof of newness ────────────────────────────────


def test_a_parameter_of_the_url_is_signed_only_with_the_url() -> None:
    for name, signed in (("github", False), ("square", True), ("hubspot_v1", False), ("hubspot_v2", True)):
        contract = contracts()[name]
        url = "https://hooks.example.com/x" if contract.needs_public_url else None
        batch = ["body:objectId"] if contract.items is not None else []
        endpoint = configure("s", contract, ["made up for tests"], key=["query:id", *batch], public_url=url)
        assert endpoint.key_signed is signed, name
        assert endpoint.backed is not signed, name


def test_a_key_by_function_is_backed_by_the_body() -> None:
    endpoint = configure("s", find("github"), ["made up for tests"], key=lambda c, h: h["x-github-delivery"])
    raw = b'{"ref":"main"}'
    items: list[Item] = []
    for ident in (b"1", b"2"):
        headers = ((b"x-github-delivery", ident), (b"x-github-event", b"push"))
        request = Request("POST", "/s", b"", headers, raw)
        items += identify(endpoint, request, None, NOW)  # type: ignore[arg-type]
    assert known(*items)
    assert items[0].identity != items[1].identity


def test_what_is_never_delivered_twice_by_the_provider() -> None:
    """WooCommerce: the same deletion twice is two, or a captured one: kept and shown, not taken for a retry."""
    example = FIRST["woocommerce"]
    endpoint, found = endpoint_of(example), []
    for ident in ("aa", "bb", "bb", ""):
        headers = {**example.headers, "X-WC-Webhook-Delivery-ID": ident}
        found.append(taken(endpoint, sent(replace(example, headers=headers), NOW)))
    assert found[0].identity != found[1].identity == found[2].identity
    assert len({item.body_identity for item in found}) == 1
    assert found[0].body_identity is not None


def test_repeatable_types_without_an_id_are_each_an_event() -> None:
    body = {"collection_listing": {"collection_id": 1}}
    example = replace(FIRST["shopify"], headers={"X-Shopify-Topic": "collection_listings/remove"}, body=body)
    endpoint, request = endpoint_of(example), sent(example, NOW)
    bare = replace(request, headers=tuple(p for p in request.headers if p[0] != b"x-shopify-event-id"))
    first, second = taken(endpoint, bare), taken(endpoint, bare)
    assert first.key_origin is second.key_origin is KeyOrigin.ARRIVAL
    assert first.identity != second.identity


def test_braintree_knows_its_payload_alone() -> None:
    example = FIRST["braintree"]
    endpoint, request = endpoint_of(example), sent(example, NOW)
    first, again = taken(endpoint, request), taken(endpoint, replace(request, body=request.body + b"&x=1"))
    assert (first.identity, first.fingerprint) == (again.identity, again.fingerprint)


@pytest.mark.parametrize("payload", [b"\xff\xfe<\x00a\x00/\x00>\x00", b'<?xml version="1.0" encoding="x-none"?><a/>'])
def test_braintree_xml_of_another_encoding(payload: bytes) -> None:
    import base64
    from urllib.parse import quote

    example = replace(FIRST["braintree"], body=b"bt_payload=" + quote(base64.b64encode(payload)).encode())
    item = taken(endpoint_of(example), sent(example, NOW))
    assert item.invalid is not None or item.type == "unknown"


# ── what authentic bodies may contain ────────────────────────────────────────


@pytest.mark.parametrize("name", ["linear", "mailgun"])
@pytest.mark.parametrize("odd", [b'"\\ud83d"', b"NaN"])
def test_unusual_json_in_an_authentic_body_is_accepted(name: str, odd: bytes) -> None:
    example = FIRST[name]
    endpoint = endpoint_of(example)
    request = sent(example, NOW)
    marked = request.body.rstrip()[:-1] + b',"odd":' + odd + b"}"
    if name == "linear":
        key = endpoint.secrets[0].key
        import hashlib
        import hmac

        signature = hmac.new(key, marked, hashlib.sha256).hexdigest().encode()
        headers = tuple((n, signature if n == b"linear-signature" else v) for n, v in request.headers)
        request = replace(request, headers=headers)
    verify(endpoint, replace(request, body=marked), NOW)


def test_whatsapp_what_is_no_message_is_told_apart_by_its_entry() -> None:
    endpoint = endpoint_of(FIRST["meta_whatsapp"])

    def template(entry: str, time: int) -> Item:
        change = {"field": "message_template_status_update", "value": {"event": "APPROVED", "message_template_id": 1}}
        body = {"object": "whatsapp_business_account", "entry": [{"id": entry, "time": time, "changes": [change]}]}
        request = Request("POST", "/x", b"", (), json.dumps(body).encode())
        [item] = identify(endpoint, request, None, NOW)  # type: ignore[arg-type]
        return item

    identities = {template("waba-1", 1).identity, template("waba-1", 3).identity, template("waba-2", 1).identity}
    assert len(identities) == 3
    assert template("waba-1", 1).identity == template("waba-1", 1).identity


def test_one_bad_item_never_refuses_the_others() -> None:

    example = FIRST["line"]
    endpoint = configure("s", contract_of("line"), [example.secret], key_required=True)
    good = {"type": "message", "webhookEventId": "01H", "timestamp": 1}
    body = json.dumps({"destination": "U", "events": [good, None, {**good, "webhookEventId": "02H"}]}).encode()
    items = identify(endpoint, Request("POST", "/s", b"", (), body), None, NOW)  # type: ignore[arg-type]
    assert [item.invalid for item in items] == [None, "not an object", None]


def test_a_body_of_endless_items_is_one_dead_letter() -> None:
    endpoint = endpoint_of(FIRST["line"])
    body = b'{"events":[' + b"{}," * 20_000 + b"{}]}"
    [item] = identify(endpoint, Request("POST", "/s", b"", (), body), None, NOW)  # type: ignore[arg-type]
    assert item.invalid == "the body has more than 10000 events"


def test_a_time_is_written_whole() -> None:
    from hookledger.providers.schemes.times import seconds

    assert seconds(b"2025-11-13T02:13:20Z", "iso") == 1763000000.0
    for short in (b"2025-11-13", b"2025-11-13T02:13", b"2025-11-13T02:13:20", b"20251113T021320Z"):
        with pytest.raises(Malformed):
            seconds(short, "iso")
