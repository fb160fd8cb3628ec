"""Contracts of shops, payment providers and the services around them: from the signature to the identity."""

from __future__ import annotations

import copy
import hashlib
import hmac
from typing import Any

import pytest
from msgspec.structs import replace

from hookledger.errors import Malformed, Rejected, Unauthentic
from hookledger.model import Item, Request
from hookledger.providers.catalogue import contracts, find
from hookledger.receive import respond
from hookledger.receive.handshake import answer_signed, answer_unsigned, methods
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from hookledger.states import DeliveryOutcome
from tests.builders import arrival
from tests.constraint import Constraint
from tests.endpoints import configure
from tests.providers import made
from tests.providers.example import Example, written
from tests.providers.made import endpoint_of
from tests.providers.money import AGAIN, EXAMPLES, NOTHING, OTHER, Change

NOW = 1763000000.0
FIRST = {example.contract: example for example in reversed(EXAMPLES)}
"""The first example of each contract."""

HINTS = {"mollie_classic", "plaid"}
ids = [f"{number}-{example.contract}" for number, example in enumerate(EXAMPLES)]


def sent(example: Example, now: float = NOW) -> Request:
    return made.sent(example, now)


def found(example: Example, now: float = NOW) -> tuple[Item, ...]:
    endpoint, request = endpoint_of(example), sent(example, now)
    return identify(endpoint, request, verify(endpoint, request, now), now)


def changed(example: Example, change: Change) -> Example:
    document: Any = copy.deepcopy(example.body)
    for path, value in change.body.items():
        place = document
        *outer, last = path.split(".")
        for name in outer:
            place = place[int(name) if isinstance(place, list) else name]
        place[last] = value
    return replace(example, body=document, headers={**example.headers, **change.headers})


# proves R11
@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_a_delivery_is_verified_and_identified(example: Example) -> None:
    items = found(example)
    assert len(items) == len(example.expects)
    for item, expected in zip(items, example.expects, strict=True):
        assert item.invalid is None
        assert {name: getattr(item, name) for name in expected} == expected


@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_a_forged_delivery_is_refused(example: Example) -> None:
    endpoint, request = endpoint_of(example), sent(example)
    other = "made_up_public:" if ":" in example.secret else ""
    with pytest.raises(Rejected):
        verify(endpoint, replace(request, headers=(), query=b"", body=written(endpoint.contract, example.body)), NOW)
    if not hasattr(endpoint.contract.scheme, "test_key"):
        key = {"6": "ab" * 32, "w": "whsec_" + "QUJD" * 11}.get(example.secret[0], other + "some-other-secret")
        stranger = configure("other", endpoint.contract, [key], public_url=example.url)
        with pytest.raises(Unauthentic):
            verify(stranger, request, NOW)
    if endpoint.contract.body_authenticated and endpoint.contract.content == "json":
        with pytest.raises(Rejected):
            verify(endpoint, replace(request, body=request.body + b" "), NOW)


@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_the_signed_time_is_fresh_either_way(example: Example) -> None:
    endpoint, request = endpoint_of(example), sent(example)
    if endpoint.tolerance is None:
        assert verify(endpoint, request, NOW + 10 * 365 * 86400).signed_at is None
        return
    verify(endpoint, request, NOW + endpoint.tolerance)
    for now in (NOW + endpoint.tolerance + 1, NOW - endpoint.tolerance - 1):
        with pytest.raises(Unauthentic, match="timestamp"):
            verify(endpoint, request, now)


@pytest.mark.parametrize("name", sorted(FIRST))
def test_a_redelivery_is_the_same_event(name: str) -> None:
    once, again = found(FIRST[name]), found(changed(FIRST[name], AGAIN.get(name, NOTHING)), NOW + 60)
    assert [item.fingerprint for item in once] == [item.fingerprint for item in again]
    same = [item.identity for item in once] == [item.identity for item in again]
    assert same is (name not in HINTS)
    assert [item.body_identity for item in once] == [item.body_identity for item in again]


@pytest.mark.parametrize("name", sorted(FIRST))
def test_another_event_of_the_object_is_another_event(name: str) -> None:
    once, other = found(FIRST[name])[0], found(changed(FIRST[name], OTHER[name]))[0]
    assert once.identity != other.identity
    assert once.object_id == other.object_id or name == "braintree"
    outcomes = [recorded.outcome for recorded in Constraint().record(arrival(once), arrival(other))]
    assert outcomes == [DeliveryOutcome.ACCEPTED] * 2


def test_every_contract_has_an_example() -> None:
    modules = {name.partition("_")[0] for name in FIRST}
    ours = {name for name in contracts() if name.partition("_")[0] in modules}
    assert ours == set(FIRST) == set(OTHER)
    assert set(AGAIN) <= set(FIRST)


# ── what must not be merged, and what must ───────────────────────────────────


def twilio(**form: str) -> Item:
    example = replace(FIRST["twilio"], body=form, headers={}, query="")
    return found(example)[0]


def test_twilio_knows_a_status_by_message_and_a_call_by_all_it_says() -> None:
    once = twilio(MessageSid="SM1", MessageStatus="delivered", RawDlrDoneDate="2511130130")
    late = twilio(MessageSid="SM1", MessageStatus="delivered", RawDlrDoneDate="2511130131")
    assert once.identity == late.identity
    assert once.fingerprint != late.fingerprint  # a conflict, which an operator sees
    first = twilio(CallSid="CA1", CallStatus="in-progress", Digits="1")
    second = twilio(CallSid="CA1", CallStatus="in-progress", Digits="2")
    assert first.identity != second.identity


def test_shopify_backs_its_unsigned_id_by_the_body_except_where_bodies_repeat() -> None:
    example = FIRST["shopify"]
    assert found(example)[0].body_identity is not None
    removal = replace(example, body={"product_listing": {"product_id": 1}})
    topic = Change(headers={"X-Shopify-Topic": "product_listings/remove"})
    assert found(changed(removal, topic))[0].repeats
    assert not found(changed(example, topic))[0].repeats, "the body of an order"


def test_paystack_reminders_of_one_dispute_are_separate_events() -> None:
    body = {"event": "charge.dispute.remind", "data": {"id": 358950, "dueAt": "2025-11-14T18:00:00Z"}}
    example = replace(FIRST["paystack"], body=body)
    later = changed(example, Change(body={"data.dueAt": "2025-11-15T18:00:00Z"}))
    assert found(example)[0].identity != found(later)[0].identity


def test_braintree_renders_a_subject_again() -> None:
    example = FIRST["braintree"]
    rendered = changed(example, Change(body={"subject.subscription.status": "Past Due"}))
    assert found(example)[0].identity == found(rendered)[0].identity
    later = changed(example, Change(body={"timestamp": "2025-11-13T01:30:01Z"}))
    assert found(example)[0].identity != found(later)[0].identity


def test_braintree_signs_with_any_of_several_pairs() -> None:
    example = FIRST["braintree"]
    request = sent(example)
    strangers = request.body.replace(b"bt_signature=", b"bt_signature=stranger%7C" + b"0" * 40 + b"%26")
    assert strangers != request.body
    verify(endpoint_of(example), replace(request, body=strangers), NOW)


def test_adyen_judges_every_item() -> None:
    example = FIRST["adyen_classic"]
    request = sent(example)
    forged = request.body.replace(b"MADEUPPSP0000003", b"MADEUPPSP0000009")
    with pytest.raises(Unauthentic, match="signature mismatch"):
        verify(endpoint_of(example), replace(request, body=forged), NOW)


def test_an_item_without_its_id_is_known_by_its_content() -> None:
    example = replace(FIRST["sendgrid"], body=[{"email": "a@example.com", "event": "group_resubscribe"}])
    [item] = found(example)
    assert item.key_origin == "digest"
    assert item.identity == found(example)[0].identity


def test_classic_mollie_may_go_without_any_proof() -> None:
    endpoint = configure("mollie", find("mollie_classic"), [])
    request = Request("POST", "/mollie", b"", (), b"id=tr_0001")
    proof = verify(endpoint, request, NOW)
    assert proof.scheme == "none"
    first, second = (identify(endpoint, request, proof, NOW)[0] for _ in range(2))
    assert first.identity != second.identity
    assert first.object_id == second.object_id == "tr_0001"


def test_plaid_needs_to_know_its_client() -> None:
    with pytest.raises(Exception, match="client_id"):
        find("plaid")
    with pytest.raises(Exception, match="client_id"):
        configure("plaid", contracts()["plaid"], ["made-up-plaid-secret"])


# ── answers ──────────────────────────────────────────────────────────────────

ANSWERS: dict[str, tuple[int, bytes | None]] = {
    "adyen_classic": (200, b"[accepted]"),
    "bigcommerce": (200, b""),
    "coinbase_commerce": (200, None),
    "lemonsqueezy": (200, None),
    "mollie": (200, None),
    "mollie_classic": (200, None),
    "paddle": (200, None),
    "paystack": (200, None),
    "plaid": (200, None),
    "slack_commands": (200, b""),
    "slack_interactions": (200, b""),
    "twilio": (200, b'<?xml version="1.0" encoding="UTF-8"?><Response/>'),
    "twilio_voice": (200, b'<?xml version="1.0" encoding="UTF-8"?><Response/>'),
}


@pytest.mark.parametrize("name", sorted(FIRST))
def test_success_is_said_as_the_provider_wants_it(name: str) -> None:
    response = respond.recorded(contracts()[name], [])
    status, body = ANSWERS.get(name, (202, None))
    assert response.status == status
    assert response.body == (b'{"status":"recorded"}' if body is None else body)


def test_gocardless_is_refused_in_its_own_words() -> None:
    refused = {name: respond.rejected(Unauthentic("signature_mismatch"), contracts()[name]).status for name in FIRST}
    assert refused.pop("gocardless") == 498
    assert set(refused.values()) == {401}


# ── handshakes ───────────────────────────────────────────────────────────────


def test_who_asks_whether_we_are_there() -> None:
    assert {name for name in FIRST if contracts()[name].handshakes} == {"slack_events", "braintree"}


def challenge(text: str) -> Example:
    body = {"token": "made-up", "challenge": text, "type": "url_verification"}
    return replace(FIRST["slack_events"], body=body)


def test_slack_gets_its_challenge_back_once_it_is_believed() -> None:
    example = challenge("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
    endpoint, request = endpoint_of(example), sent(example)
    assert answer_unsigned(endpoint, request) is None
    verify(endpoint, request, NOW)
    shake = answer_signed(endpoint, request)
    assert shake is not None
    assert (shake.response.status, shake.response.body) == (
        200,
        b"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",
    )
    assert dict(shake.response.headers)["content-type"] == "text/plain; charset=utf-8"
    assert not shake.keep
    assert answer_signed(endpoint, sent(FIRST["slack_events"])) is None


def test_slack_gets_no_page_back() -> None:
    example = challenge("<script>alert(1)</script>")
    with pytest.raises(Malformed, match="handshake malformed"):
        answer_signed(endpoint_of(example), sent(example))


def asked(query: bytes, method: str = "GET") -> Request:
    return Request(method, "/braintree", query, (), b"")


def test_braintree_gets_its_challenge_signed() -> None:
    for private in ("made_up_private", *(f"another_private_{number}" for number in range(40))):  # some hold a NUL
        endpoint = endpoint_of(replace(FIRST["braintree"], secret=f"made_up_public:{private}"))
        assert methods(endpoint) == {"GET", "POST"}
        shake = answer_unsigned(endpoint, asked(b"bt_challenge=20f9f8ed05f77439fe955c977e4c8a53"))
        assert shake is not None
        key = hashlib.sha1(private.encode()).digest()
        mac = hmac.new(key, b"20f9f8ed05f77439fe955c977e4c8a53", "sha1").hexdigest()
        assert shake.response.status == 200
        assert shake.response.body == f"made_up_public|{mac}".encode()


@pytest.mark.parametrize("text", [b"%3Cscript%3E", b"20F9F8ED05F77439FE955C977E4C8A53", b"abc", b"a" * 33])
def test_braintree_signs_nothing_but_a_challenge(text: bytes) -> None:
    with pytest.raises(Malformed, match="handshake malformed"):
        answer_unsigned(endpoint_of(FIRST["braintree"]), asked(b"bt_challenge=" + text))


def test_braintree_is_asked_by_get_alone() -> None:
    endpoint = endpoint_of(FIRST["braintree"])
    assert answer_unsigned(endpoint, asked(b"")) is None
    assert answer_unsigned(endpoint, asked(b"bt_challenge=20f9f8ed05f77439fe955c977e4c8a53", "POST")) is None


def test_what_braintree_has_us_sign_is_no_delivery() -> None:
    endpoint = endpoint_of(FIRST["braintree"])
    shake = answer_unsigned(endpoint, asked(b"bt_challenge=" + b"ab" * 16))
    assert shake is not None
    form = b"bt_payload=" + b"ab" * 16 + b"&bt_signature=" + shake.response.body.replace(b"|", b"%7C")
    with pytest.raises(Unauthentic, match="signature mismatch"):
        verify(endpoint, Request("POST", "/braintree", b"", (), form), NOW)
