"""Every sample of `hookledger send` is signed, recognised and complete."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hookledger.cli.send import _sign, _to
from hookledger.errors import ConfigError
from hookledger.model import Item, Request
from hookledger.providers import changes, placeholders
from hookledger.providers.catalogue import contracts
from hookledger.providers.sample import SAME_BODIES, Sample, listed, sample
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from hookledger.states import KeyOrigin
from tests.providers.made import FIRST, endpoint_of

FOLDER = Path(str(files("hookledger.providers").joinpath("samples")))
SENDERS_OWN = {"cloudevents", "cloudevents_binary", "standard_webhooks", "standard_webhooks_v1a", "svix"}
"""Formats whose body is the sender's own, so that no documentation shows one."""
ONLY_GENERIC = SENDERS_OWN | {"zendesk_triggers"}
ALL = [(name, kind) for name in sorted(contracts()) for kind in listed(contracts()[name])]
EVERY = pytest.mark.parametrize(("name", "kind"), ALL, ids=lambda part: str(part).replace("/", "-"))

WITHOUT_OBJECT = {("shopify", kind) for kind in ("customers/data_request", "customers/redact", "shop/redact")}
WITHOUT_TIME = {("gitlab", "Push Hook"), ("gitlab_signed", "Push Hook"), ("telegram", "callback_query")}
BY_DIGEST = {("twilio", "SmsStatus"), ("twilio", "CallStatus.completed")}
"""What these deliveries lack, as the provider sends them."""
REPEATS = {("slack_interactions", "block_suggestion")}
"""Each delivery is an event."""


def sent(name: str, made: Sample) -> Item:
    """The one event of a delivery, as the receiver identifies it after verifying it."""
    endpoint = endpoint_of(FIRST[name])
    target = f"http://127.0.0.1:8700{endpoint.path}"
    draft = _to(endpoint, _sign(endpoint, made, target, forge=False), target)
    headers = tuple((name, value.encode("latin-1")) for name, value in draft.headers.items())
    request = Request(draft.method, endpoint.path, draft.url.partition("?")[2].encode(), headers, draft.body)
    proof = verify(endpoint, request, draft.now)
    [item] = identify(endpoint, request, proof, draft.now)
    return item


@EVERY
def test_a_sample_is_recognised(name: str, kind: str) -> None:
    contract, made = contracts()[name], sample(contracts()[name], kind)
    item = sent(name, made)
    assert item.invalid is None
    assert item.type == kind
    if contract.key_fields and (name, kind) not in BY_DIGEST | REPEATS:
        assert item.key_origin not in (KeyOrigin.DIGEST, KeyOrigin.ARRIVAL)
    if contract.id is not None and (name, kind) not in REPEATS:
        assert item.provider_id
    if contract.object_id and (name, kind) not in WITHOUT_OBJECT:
        assert item.object_id
    when = contract.occurred_at or any(known.occurred_at for known in contract.per_type if kind in known.types)
    if when and (name, kind) not in WITHOUT_TIME:
        assert item.occurred_at is not None
        assert abs(item.occurred_at - placeholders.moment(made.id, 0)) < 1, "the time is the sample's own"
    assert b"${" not in re.sub(rb"\$\{\{amount\}\}", b"", made.body), "a placeholder was not filled"


@EVERY
def test_two_samples_are_two_events_and_an_id_gives_one(name: str, kind: str) -> None:
    contract = contracts()[name]
    first, second = sample(contract, kind), sample(contract, kind)
    assert sent(name, first).identity != sent(name, second).identity
    for ident in (first.id, "12345"):
        once, again = sample(contract, kind, ident), sample(contract, kind, ident)
        assert (once.body, once.headers) == (again.body, again.headers)
        if not contract.hint and (name, kind) not in REPEATS:
            assert sent(name, once).identity == sent(name, again).identity
    assert sample(contract, kind, first.id).body == first.body, "the id holds the time"


def test_an_id_of_ones_own_gives_the_same_event_all_day() -> None:
    noon = 1_800_014_400.0
    assert placeholders.moment("evt_1", noon) == placeholders.moment("evt_1", noon + 3600) == noon - noon % 86400
    assert placeholders.moment("evt_1", noon) != placeholders.moment("evt_1", noon + 86400)


def test_every_provider_has_samples_but_those_without_a_defined_body() -> None:
    assert {name for name in contracts() if not listed(contracts()[name])} == ONLY_GENERIC
    assert {folder.name for folder in FOLDER.iterdir()} | SAME_BODIES.keys() | ONLY_GENERIC == contracts().keys()


def test_exactly_one_of_several_samples_is_the_first() -> None:
    for folder in FOLDER.iterdir():
        found = [msgspec.json.decode(file.read_bytes()) for file in folder.glob("*.json")]
        assert len({known["type"] for known in found}) == len(found)
        assert len(found) == 1 or [known.get("rank") for known in found].count(0) == 1, folder.name


def test_a_type_of_several_fields_is_found_by_the_first() -> None:
    assert sample(contracts()["github"], "issues").type == "issues.opened"
    assert sample(contracts()["github"], "pull_request").type == "pull_request.opened"
    assert sample(contracts()["github"]).type == "push"
    assert not sample(contracts()["stripe"], "invoice").real, "a prefix is no type"


def test_an_unknown_type_gets_the_generic_body_and_the_nearest_name() -> None:
    made = sample(contracts()["stripe"], "invoice.payed")
    assert (made.real, made.nearest, sent("stripe", made).type) == (False, "invoice.paid", "invoice.payed")


# ── fields as Stripe's own library knows them ────────────────────────────────


@cache
def objects() -> dict[str, Any]:
    import stripe  # the libraries are imported by the one process that runs these tests, not by all that collect them

    return {
        "charge": stripe.Charge,
        "checkout.session": stripe.checkout.Session,
        "customer": stripe.Customer,
        "event": stripe.Event,
        "invoice": stripe.Invoice,
        "line_item": stripe.InvoiceLineItem,
        "payment_intent": stripe.PaymentIntent,
        "payment_method": stripe.PaymentMethod,
        "plan": stripe.Plan,
        "price": stripe.Price,
        "refund": stripe.Refund,
        "subscription": stripe.Subscription,
        "subscription_item": stripe.SubscriptionItem,
    }


EARLIER = {
    "invoice": {"charge", "paid", "payment_intent", "subscription", "subscription_details", "tax"},
    "line_item": {"plan", "price", "subscription_item", "type"},
    "subscription": {"current_period_end", "current_period_start", "plan", "quantity"},
}
"""Fields of API versions before 2025-03-31, which handlers still read (decision 0045)."""


def unknown_fields(value: Any) -> set[tuple[str, str]]:
    if isinstance(value, list):
        return set().union(*map(unknown_fields, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(unknown_fields, value.values()))
    kind = value.get("object")
    if isinstance(kind, str) and kind in objects():
        known = objects()[kind].__annotations__.keys() | EARLIER.get(kind, set())
        found |= {(kind, name) for name in value.keys() - known}
    return found


@pytest.mark.parametrize("kind", listed(contracts()["stripe"]))
def test_stripes_library_knows_every_field(kind: str) -> None:
    body = msgspec.json.decode(sample(contracts()["stripe"], kind).body)
    assert unknown_fields(body) == set()
    assert unknown_fields({**body, "made_up": 1}) == {("event", "made_up")}


def test_stripe_samples_say_what_their_type_says() -> None:
    draft = msgspec.json.decode(sample(contracts()["stripe"], "invoice.created").body)["data"]["object"]
    assert (draft["status"], draft["number"], draft["amount_paid"], draft["attempted"]) == ("draft", None, 0, False)
    assert draft["status_transitions"]["finalized_at"] is None
    changed = msgspec.json.decode(sample(contracts()["stripe"], "customer.updated").body)["data"]
    before = changed["previous_attributes"]
    assert before.keys() <= changed["object"].keys()
    assert all(before[name] != changed["object"][name] for name in before)


# ── as other providers' own libraries read them ──────────────────────────────


def of(name: str, kind: str) -> Any:
    return msgspec.json.decode(sample(contracts()[name], kind).body)


@pytest.mark.parametrize("kind", listed(contracts()["paddle"]))
def test_paddles_library_reads_it(kind: str) -> None:
    from paddle_billing.Entities.Event import Event as PaddleEvent  # type: ignore[import-untyped]

    event = PaddleEvent.from_dict(of("paddle", kind))
    assert event.event_type == kind
    assert not type(event.data).__name__.startswith("Undefined")


@pytest.mark.parametrize("kind", listed(contracts()["square"]))
def test_squares_library_knows_every_field(kind: str) -> None:
    from square.types.payment import Payment
    from square.types.payment_refund import PaymentRefund

    [(name, content)] = of("square", kind)["data"]["object"].items()
    model: Any = {"payment": Payment, "refund": PaymentRefund}[name]
    model.model_validate(content)
    assert content.keys() <= model.model_fields.keys()


def test_lines_openais_and_anthropics_libraries_read_theirs() -> None:
    from anthropic.types.beta import BetaWebhookEvent
    from linebot.v3.webhooks import CallbackRequest  # type: ignore[import-untyped]
    from openai.types.webhooks import UnwrapWebhookEvent
    from pydantic import TypeAdapter

    events = [CallbackRequest.from_dict(of("line", kind)).events[0] for kind in listed(contracts()["line"])]
    assert [type(event).__name__ for event in events] == ["MessageEvent", "FollowEvent"]
    for kind in listed(contracts()["openai"]):
        assert TypeAdapter(UnwrapWebhookEvent).validate_python(of("openai", kind)).type == kind
    read = TypeAdapter(BetaWebhookEvent).validate_python(of("anthropic", "session.status_idled"))
    assert type(read.data).__name__ == "BetaWebhookSessionStatusIdledEventData"


# ── --set ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected", "known"),
    [
        ("a.b=cus_1", {"a": {"b": "cus_1"}, "l": [{"x": 1}], "d.t": 0}, True),
        ("a.b=5", {"a": {"b": 5}, "l": [{"x": 1}], "d.t": 0}, True),
        ('a.b="5"', {"a": {"b": "5"}, "l": [{"x": 1}], "d.t": 0}, True),
        ("a.b=null", {"a": {"b": None}, "l": [{"x": 1}], "d.t": 0}, True),
        ('a={"c": [1]}', {"a": {"c": [1]}, "l": [{"x": 1}], "d.t": 0}, True),
        ("a.b=x=y", {"a": {"b": "x=y"}, "l": [{"x": 1}], "d.t": 0}, True),
        ("a.b=", {"a": {"b": ""}, "l": [{"x": 1}], "d.t": 0}, True),
        ("l.0.x=2", {"a": {"b": 0}, "l": [{"x": 2}], "d.t": 0}, True),
        ("l.0=2", {"a": {"b": 0}, "l": [2], "d.t": 0}, True),
        (r"d\.t=2", {"a": {"b": 0}, "l": [{"x": 1}], "d.t": 2}, True),
        ("a.new=2", {"a": {"b": 0, "new": 2}, "l": [{"x": 1}], "d.t": 0}, False),
        ("l.1=2", {"a": {"b": 0}, "l": [{"x": 1}, 2], "d.t": 0}, False),
    ],
)
def test_a_field_is_changed(text: str, expected: object, known: bool) -> None:
    content: Any = {"a": {"b": 0}, "l": [{"x": 1}], "d.t": 0}
    assert changes.apply(content, changes.read(text)) is known
    assert content == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a.b", "has no value: write path.to.field=value"),
        ("=1", "has no value"),
        ("x.y=1", "--set x: the sample has no such field; the body has a, l, e"),
        ("a.x.y=1", "--set a.x: the sample has no such field; a has b"),
        ("a.b.c=1", "--set a.b.c: the sample has no such field; a.b is 0, which has no fields"),
        ("l.7.x=1", "--set l.7: the sample has no such field; l is a list with indexes 0 to 0"),
        ("l.7=1", "l is a list with indexes 0 to 0"),
        ("l.x=1", "l is a list with indexes 0 to 0"),
        ("e.0.x=1", "e is an empty list"),
    ],
)
def test_a_wrong_path_is_named_with_what_is_there(text: str, says: str) -> None:
    content: Any = {"a": {"b": 0}, "l": [{"x": 1}], "e": []}
    with pytest.raises(ConfigError, match=re.escape(says)):
        changes.apply(content, changes.read(text))
    assert content == {"a": {"b": 0}, "l": [{"x": 1}], "e": []}


@pytest.mark.parametrize(
    ("name", "text", "path"),
    [
        ("stripe", "data.object.customer=cus_1", ("data", "object", "customer")),
        ("hubspot", "0.propertyValue=lead", (0, "propertyValue")),
        ("twilio", "To=+1", ("To",)),
        ("braintree", "subject.subscription.id=a&b", ("subject", "subscription", "id")),
    ],
)
def test_a_changed_sample_is_recognised(name: str, text: str, path: tuple[str | int, ...]) -> None:
    contract = contracts()[name]
    made = sample(contract, edits=[changes.read(text)])
    assert sent(name, made).invalid is None
    if contract.content == "json":
        value = msgspec.json.decode(made.body)
        for part in path:
            value = value[part]
        assert value == text.partition("=")[2]
    else:
        assert made.body != sample(contract, ident=made.id).body
