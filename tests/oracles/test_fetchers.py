"""The paths of objects, held against the requests of the providers' own SDKs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from hubspot import HubSpot  # type: ignore[import-untyped]
from square import Square
from stripe._object_classes import OBJECT_CLASSES

from hookledger.providers.catalogue import find
from tests.services import objects as service
from tests.services.objects import Objects

ID = "made_up_1"


def paths(provider: str) -> dict[str, str]:
    facts = find(provider).fetcher
    assert facts is not None
    return {kind: path.replace("{id}", ID) for kind, path in facts.paths}


@pytest.fixture
def api() -> Iterator[Objects]:
    with service.running() as running:
        yield running


@pytest.mark.parametrize("kind", paths("stripe"))
def test_stripe(kind: str) -> None:
    """The SDK knows a class for each value of the field `object`, and its URL."""
    module, name = OBJECT_CLASSES[kind]
    known: Any = getattr(import_module(module), name)
    assert known.construct_from({"id": ID}, "key").instance_url() == paths("stripe")[kind]


def test_stripes_witness(api: Objects) -> None:
    import stripe

    api.objects = {"/v1/events/evt_1": {"id": "evt_1", "object": "event"}}
    client = stripe.StripeClient("made up", base_addresses={"api": api.url}, max_network_retries=0)
    client.v1.events.retrieve("evt_1", options={"stripe_account": "acct_1"})
    [asked] = api.asked
    assert (asked.method, asked.target) == ("GET", "/v1/events/evt_1")
    assert (asked.headers["stripe-account"], asked.headers["authorization"]) == ("acct_1", "Bearer made up")


SQUARE: dict[str, Callable[[Square], object]] = {
    "bank_account": lambda client: client.bank_accounts.get(ID),
    "booking": lambda client: client.bookings.get(ID),
    "card": lambda client: client.cards.get(ID),
    "customer": lambda client: client.customers.get(ID),
    "dispute": lambda client: client.disputes.get(ID),
    "dispute.state": lambda client: client.disputes.get(ID),
    "gift_card": lambda client: client.gift_cards.get(ID),
    "invoice": lambda client: client.invoices.get(ID),
    "location": lambda client: client.locations.get(ID),
    "loyalty.account": lambda client: client.loyalty.accounts.get(ID),
    "order": lambda client: client.orders.get(ID),
    "payment": lambda client: client.payments.get(ID),
    "payout": lambda client: client.payouts.get(ID),
    "refund": lambda client: client.refunds.get(ID),
    "subscription": lambda client: client.subscriptions.get(ID),
    "team_member": lambda client: client.team_members.get(ID),
    "terminal.checkout": lambda client: client.terminal.checkouts.get(ID),
    "terminal.refund": lambda client: client.terminal.refunds.get(ID),
    "vendor": lambda client: client.vendors.get(ID),
}


@pytest.mark.parametrize("kind", paths("square"))
def test_square(api: Objects, kind: str) -> None:
    """Path, credential, version, and the field of the response that holds the object."""
    facts = find("square").fetcher
    assert facts is not None
    inside = dict(facts.inside)[kind]
    api.objects = {paths("square")[kind]: {inside: {"id": ID}}}
    answer = SQUARE[kind](Square(token="made up", base_url=api.url))
    [asked] = api.asked
    assert (asked.method, asked.target) == ("GET", paths("square")[kind])
    assert asked.headers["authorization"] == "Bearer made up"
    assert facts.version_header in asked.headers
    assert inside in type(answer).model_fields  # type: ignore[attr-defined]


HUBSPOT: dict[str, Callable[[HubSpot], Any]] = {
    "company": lambda client: client.crm.companies,
    "contact": lambda client: client.crm.contacts,
    "deal": lambda client: client.crm.deals,
    "line_item": lambda client: client.crm.line_items,
    "product": lambda client: client.crm.products,
    "ticket": lambda client: client.crm.tickets,
}


@pytest.mark.parametrize("kind", HUBSPOT)
def test_hubspot(api: Objects, kind: str) -> None:
    target = f"{paths('hubspot')[kind]}?properties=email"
    api.objects = {target: {}}
    known = HUBSPOT[kind](HubSpot(access_token="made up")).basic_api
    known.api_client.configuration.host = api.url
    known.get_by_id(ID, properties=["email"], _preload_content=False)
    [asked] = api.asked
    assert (asked.method, re.sub(r"&archived=False", "", asked.target)) == ("GET", target)
    assert asked.headers["authorization"] == "Bearer made up"


def test_hubspots_other_objects(api: Objects) -> None:
    known = HubSpot(access_token="made up").crm.objects.basic_api
    known.api_client.configuration.host = api.url
    api.objects = {f"/crm/v3/objects/2-77/{ID}": {}}
    known.get_by_id("2-77", ID, _preload_content=False)
    assert api.asked[0].target.partition("?")[0] == paths("hubspot")["object"].replace("{body:objectTypeId}", "2-77")
