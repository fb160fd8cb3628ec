"""Each contract in tools.py against a request of its provider's: proved, identified, delivered again, asked."""

from __future__ import annotations

import hashlib
import hmac
from functools import cache
from typing import Any

import msgspec
import pytest

from hookledger.errors import Forbidden, Malformed, Rejected, Unauthentic
from hookledger.model import Item, Request
from hookledger.providers.catalogue import contracts
from hookledger.receive import respond
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.handshake import HandshakeReply, answer_signed, answer_unsigned
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from hookledger.states import DeliveryOutcome
from tests.builders import arrival
from tests.constraint import Constraint
from tests.endpoints import configure

from .example import Example
from .made import contract_of, sent
from .tools import AGAIN, EXAMPLES, OTHER, PUBLIC_KEY, SECRET, SIGNED_ONCE, TOPIC

NOW = 1762000060.0
VERIFY_TOKEN = "made-up-verify-token"
ORIGIN = "eventgrid.azure.net"

BY_NAME = {example.contract: example for example in EXAMPLES}
NAMES = sorted(BY_NAME)
HANDSHAKEN = {name for name in NAMES if contracts()[name].handshakes}


@cache
def endpoint_of(name: str, secret: str = "") -> Endpoint:
    contract = contract_of(name)
    tokens = any(handshake.token is not None for handshake in contract.handshakes)
    return configure(
        name,
        contract,
        [secret or BY_NAME[name].secret],
        public_url=BY_NAME[name].url if contract.needs_public_url else None,
        verify_token=VERIFY_TOKEN if tokens else None,
        origins={ORIGIN},
    )


def edited(body: Any, edits: dict[str, Any]) -> Any:
    body = msgspec.json.decode(msgspec.json.encode(body))
    for path, value in edits.items():
        *outer, last = path.split(".")
        place = body
        for name in outer:
            place = place[int(name)] if isinstance(place, list) else place[name]
        place[last] = value
    return body


def delivered(example: Example, edits: dict[str, Any] | None = None, now: float = NOW) -> Request:
    """The example, as the provider signs and sends it."""
    edits = edits or {}
    headers = example.headers | {n[7:]: v for n, v in edits.items() if n.startswith("header:")}
    body = edited(example.body, {n: v for n, v in edits.items() if not n.startswith("header:")})
    return sent(msgspec.structs.replace(example, headers=headers, body=body), now)


def taken(example: Example, edits: dict[str, Any] | None = None, now: float = NOW) -> tuple[Item, ...]:
    """Verified and identified."""
    endpoint, request = endpoint_of(example.contract), delivered(example, edits, now)
    return identify(endpoint, request, verify(endpoint, request, now), now)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_of_an_event(name: str) -> None:
    items = taken(BY_NAME[name])
    assert len(items) == len(BY_NAME[name].expects)
    for item, expected in zip(items, BY_NAME[name].expects, strict=True):
        assert {field: getattr(item, field) for field in expected} == expected
        assert item.invalid is None


# proves R13
@pytest.mark.parametrize("name", NAMES)
def test_a_redelivery_is_the_same_event(name: str) -> None:
    example = BY_NAME[name]
    first = taken(example)
    again = taken(example, AGAIN.get(name), NOW if name in SIGNED_ONCE else NOW + 7)
    same = [item.identity for item in first] == [item.identity for item in again]
    assert same is not contract_of(name).hint
    assert [item.fingerprint for item in first] == [item.fingerprint for item in again]
    assert [item.body_identity for item in first] == [item.body_identity for item in again]


@pytest.mark.parametrize("name", sorted(OTHER))
def test_another_event_of_the_same_object_is_another(name: str) -> None:
    first, other = taken(BY_NAME[name])[0], taken(BY_NAME[name], OTHER[name])[0]
    outcomes = [recorded.outcome for recorded in Constraint().record(arrival(first), arrival(other))]
    assert outcomes == [DeliveryOutcome.ACCEPTED] * 2
    changed = sum(not path.startswith("header:") for path in OTHER[name])
    if changed > 1 and name.startswith("meta_"):
        pairs = zip(taken(BY_NAME[name]), taken(BY_NAME[name], OTHER[name]), strict=True)
        assert all(one.identity != two.identity for one, two in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_forged_or_old_is_refused(name: str) -> None:
    endpoint, request = endpoint_of(name), delivered(BY_NAME[name])
    scheme = endpoint.contract.scheme
    if scheme.coverage == "body":
        changed = request.body.replace(b"e", b"3", 1)
        forged = Request("POST", request.path, request.query, request.headers, changed)
        with pytest.raises(Rejected):
            verify(endpoint, forged, NOW)
    bare = Request("POST", request.path, b"", (), b"{}")
    with pytest.raises((Unauthentic, Malformed)):
        verify(endpoint, bare, NOW)
    if scheme.tolerance is not None:
        verify(endpoint, request, NOW + scheme.tolerance - 1)
        with pytest.raises(Unauthentic, match="stale"):
            verify(endpoint, request, NOW + scheme.tolerance + 2)
        with pytest.raises(Unauthentic, match="future"):
            verify(endpoint, request, NOW - scheme.tolerance - 2)


# proves R13
def test_every_contract_has_its_other_event_and_honest_grades() -> None:
    assert set(OTHER) == {name for name in NAMES if not contracts()[name].hint}
    for name in NAMES:
        contract = contracts()[name]
        assert contract.title
        assert contract.secret
        assert contract.confirmed.sources
        assert contract.confirmed.signature != "none"
        assert contract.confirmed.handshake != "none" or not contract.handshakes
        if contract.scheme.tolerance is not None and contract.retries.hours is not None:
            anew = {
                "hubspot",
                "calendly",
                "workos",
                "google_pubsub",
            }  # each attempt is signed anew, or has a new token
            assert (
                contract.name in anew
                or contract.scheme.tolerance >= contract.retries.hours * 3600
                or (contract.name == "azure_event_grid_entra")
            )


def test_a_workflow_of_hubspot_posts_one_record() -> None:
    example = BY_NAME["hubspot_v2"]
    alone = msgspec.structs.replace(example, body={"vid": 5, "properties": {"email": {"value": "a@example.com"}}})
    [item] = taken(alone)
    [again] = taken(alone, now=NOW + 5)
    [other] = taken(alone, {"properties.email.value": "b@example.com"})
    assert (item.type, item.key_origin, item.invalid) == ("unknown", "digest", None)
    assert item.identity == again.identity != other.identity


def test_one_cloud_event_without_an_array() -> None:
    example = BY_NAME["cloudevents"]
    assert isinstance(example.body, list)
    alone = msgspec.structs.replace(example, body=example.body[0])
    assert taken(alone) == taken(example)


def test_whatsapp_statuses_of_one_message_are_three_events() -> None:
    path = "entry.0.changes.1.value.statuses.0.status"
    found = {taken(BY_NAME["meta_whatsapp"], {path: status})[1].identity for status in ("sent", "delivered", "read")}
    assert len(found) == 3


def test_an_unsigned_id_is_backed_by_the_body_where_two_bodies_are_two_events() -> None:
    edits = {"header:Linear-Delivery": "captured-and-renamed"}
    first, replayed = taken(BY_NAME["linear"])[0], taken(BY_NAME["linear"], edits)[0]
    assert first.identity != replayed.identity
    assert first.body_identity == replayed.body_identity is not None
    # The author of a trigger may have written a body that is the same each time.
    assert taken(BY_NAME["zendesk_triggers"])[0].repeats


# ── handshakes ───────────────────────────────────────────────────────────────

JSON = (("content-type", "application/json"), ("x-content-type-options", "nosniff"))
TEXT = (("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff"))


def asked(method: str, query: bytes = b"", headers: dict[bytes, bytes] | None = None, body: bytes = b"") -> Request:
    return Request(method, "/hooks", query, tuple((headers or {}).items()), body)


def signed_question(
    name: str, body: Any, secret: str, headers: dict[str, str] | None = None
) -> HandshakeReply | None:
    """What a signed question is answered; it is no answer to the same question unsigned."""
    example = Example(contract=name, body=body, secret=secret, headers=headers or {}, expects=[])
    endpoint, request = endpoint_of(name), delivered(example)
    assert answer_unsigned(endpoint, request) is None
    verify(endpoint, request, NOW)
    return answer_signed(endpoint, request)


def test_zoom_validates_the_url() -> None:
    question = {
        "event": "endpoint.url_validation",
        "event_ts": 1,
        "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"},
    }
    mac = hmac.new(SECRET.encode(), b"qgg8vlvZRS6UYooatFL8Aw", hashlib.sha256).hexdigest()
    shake = signed_question("zoom", question, SECRET)
    assert shake is not None
    assert shake.response == respond.Response(
        200, f'{{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"{mac}"}}'.encode(), JSON
    )
    with pytest.raises(Unauthentic):
        signed_question("zoom", question, "another-made-up-secret")
    with pytest.raises(Malformed):
        signed_question("zoom", question | {"payload": {"plainToken": "<script>"}}, SECRET)


def test_discord_pings() -> None:
    shake = signed_question("discord_interactions", {"id": "1", "type": 1, "version": 1}, PUBLIC_KEY)
    assert shake is not None
    assert shake.response == respond.Response(200, b'{"type":1}', JSON)
    shake = signed_question("discord_events", {"version": 1, "application_id": "1", "type": 0}, PUBLIC_KEY)
    assert shake is not None
    assert shake.response == respond.Response(204, b"", (("content-type", "application/json"),))
    assert signed_question("discord_events", {"version": 1, "type": 1}, PUBLIC_KEY) is None


@pytest.mark.parametrize("name", ["discord_interactions", "discord_events", "xero"])
def test_a_probe_with_a_wrong_signature_is_answered_401(name: str) -> None:
    contract = contract_of(name)
    for error in (Malformed("signature_malformed"), Unauthentic("signature_mismatch")):
        assert respond.rejected(error, contract).status == 401
    assert (respond.rejected(error, contract).body == b"") is (contract.answer.body == b"")


def test_xero_probes_with_an_empty_batch() -> None:
    empty = {"events": [], "firstEventSequence": 0, "lastEventSequence": 0, "entropy": "S0m3"}
    assert taken(msgspec.structs.replace(BY_NAME["xero"], body=empty)) == ()
    assert respond.recorded(contract_of("xero"), []) == respond.Response(200, b"", (), authentic=True)
    assert taken(msgspec.structs.replace(BY_NAME["line"], body={"destination": "U0", "events": []})) == ()
    assert respond.recorded(contract_of("line"), []).status == 200


def test_dropbox_challenges() -> None:
    endpoint = endpoint_of("dropbox")
    shake = answer_unsigned(endpoint, asked("GET", b"challenge=made-up_123"))
    assert shake == HandshakeReply(respond.Response(200, b"made-up_123", TEXT))
    with pytest.raises(Malformed):
        answer_unsigned(endpoint, asked("GET", b"challenge=%3Cscript%3E"))
    assert answer_unsigned(endpoint, asked("POST", b"challenge=made-up_123")) is None


@pytest.mark.parametrize("name", ["meta", "meta_whatsapp", "meta_messenger"])
def test_meta_subscribes(name: str) -> None:
    endpoint = endpoint_of(name)
    query = f"hub.mode=subscribe&hub.verify_token={VERIFY_TOKEN}&hub.challenge=1158201444"
    shake = answer_unsigned(endpoint, asked("GET", query.encode()))
    assert shake == HandshakeReply(respond.Response(200, b"1158201444", TEXT))
    with pytest.raises(Forbidden):
        answer_unsigned(endpoint, asked("GET", query.replace("made-up", "guessed").encode()))
    assert answer_unsigned(endpoint, asked("GET", query.replace("subscribe", "unsubscribe").encode())) is None


def test_okta_verifies() -> None:
    endpoint, name = endpoint_of("okta"), b"x-okta-verification-challenge"
    shake = answer_unsigned(endpoint, asked("GET", headers={name: b"my_made-up"}))
    assert shake == HandshakeReply(respond.Response(200, b'{"verification":"my_made-up"}', JSON))
    with pytest.raises(Malformed):
        answer_unsigned(endpoint, asked("GET", headers={name: b"<b>"}))
    assert answer_unsigned(endpoint, asked("GET")) is None


@pytest.mark.parametrize("name", ["azure_event_grid", "azure_event_grid_entra"])
def test_event_grid_validates(name: str) -> None:
    code = "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"
    event = {
        "id": "1",
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "data": {"validationCode": code},
    }
    header = {"aeg-event-type": "SubscriptionValidation"}
    shake = signed_question(name, [event], BY_NAME[name].secret, header)
    assert shake == HandshakeReply(respond.Response(200, f'{{"validationResponse":"{code}"}}'.encode(), JSON))
    with pytest.raises(Unauthentic):
        signed_question(name, [event], "another-made-up-secret", header)
    assert signed_question(name, [event], BY_NAME[name].secret) is None


@pytest.mark.parametrize("name", ["azure_event_grid_cloudevents", "cloudevents", "cloudevents_binary"])
def test_cloud_events_ask_to_deliver(name: str) -> None:
    endpoint = endpoint_of(name)
    shake = answer_unsigned(endpoint, asked("OPTIONS", headers={b"webhook-request-origin": ORIGIN.encode()}))
    allowed = (("webhook-allowed-origin", ORIGIN), ("webhook-allowed-rate", "*"), ("allow", "POST"))
    assert shake == HandshakeReply(respond.Response(200, b"", allowed))
    with pytest.raises(Forbidden):
        answer_unsigned(endpoint, asked("OPTIONS", headers={b"webhook-request-origin": b"elsewhere.example.com"}))
    assert answer_unsigned(endpoint, asked("OPTIONS")) is None


def test_woocommerce_pings_without_a_signature() -> None:
    endpoint = endpoint_of("woocommerce")
    shake = answer_unsigned(endpoint, asked("POST", body=b"webhook_id=12"))
    assert shake == HandshakeReply(respond.Response(200, b"", ()))
    for body in (b"webhook_id=12&id=1", b"webhook_id=12\n", b"webhook_id=", b'{"webhook_id": 12}'):
        assert answer_unsigned(endpoint, asked("POST", body=body)) is None


def test_sns_subscribes_at_its_own_host_only() -> None:
    url = f"https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f37fb687f"
    question = {
        "Type": "SubscriptionConfirmation",
        "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b",
        "Token": "2336412f37fb687f",
        "Message": "You have chosen to subscribe to the topic.",
        "SubscribeURL": url,
    }
    shake = signed_question("aws_sns", question, TOPIC)
    assert shake is not None
    assert (shake.response.status, shake.response.body, shake.fetch, shake.keep) == (200, b"", url, True)
    for wrong in (
        url.replace("https", "http"),
        url.replace("sns.eu-west-1.amazonaws.com", "sns.eu-west-1.amazonaws.com.example.com"),
        url.replace("sns.eu-west-1.amazonaws.com", "sns.eu-west-1.amazonaws.com@example.com"),
        url.replace("ConfirmSubscription", "DeleteTopic"),
        url + "&More=1",
    ):
        with pytest.raises(Malformed, match="handshake"):
            signed_question("aws_sns", question | {"SubscribeURL": wrong}, TOPIC)
    # To call this one's URL would undo what somebody wanted.
    assert signed_question("aws_sns", question | {"Type": "UnsubscribeConfirmation"}, TOPIC) is None


def test_every_handshake_is_tested() -> None:
    tested = {
        "zoom",
        "discord_interactions",
        "discord_events",
        "dropbox",
        "meta",
        "meta_whatsapp",
        "meta_messenger",
        "okta",
        "azure_event_grid",
        "azure_event_grid_entra",
        "azure_event_grid_cloudevents",
        "cloudevents",
        "cloudevents_binary",
        "woocommerce",
        "aws_sns",
        "intercom",  # over HTTP, in tests/path/test_handshakes.py
    }
    assert tested == HANDSHAKEN


def test_an_id_that_is_unique_for_a_day_is_told_apart_by_its_message() -> None:
    edits = {"event-data.message.headers.message-id": "20251102122640.1.AB@mg.example.com"}
    assert taken(BY_NAME["mailgun"])[0].identity != taken(BY_NAME["mailgun"], edits)[0].identity
