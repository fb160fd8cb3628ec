"""A known body under the types that its provider does, or does not, send with it: on every store."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from hookledger.model import Arrival, Request
from hookledger.providers.catalogue import contracts
from hookledger.receive.endpoint import Endpoint
from hookledger.store.protocol import Store
from tests.builders import Raw, history
from tests.contract.conftest import OpenStore
from tests.contract.test_captured import NOW, forged, outcomes, record, resent, taken
from tests.contract.test_consistency import found as imbalances
from tests.endpoints import configure
from tests.providers.made import FIRST, contract_of, endpoint_of, sent
from tests.providers.test_shapes import bodies, documented, made

HEADERS = {
    "github": ("X-GitHub-Event", "X-GitHub-Delivery"),
    "shopify": ("X-Shopify-Topic", "X-Shopify-Event-Id"),
    "woocommerce": ("X-WC-Webhook-Topic", "X-WC-Webhook-Delivery-ID"),
}


def request(name: str, kind: str, body: dict[str, Any], ident: str) -> Request:
    example, (type_header, id_header) = FIRST[name], HEADERS[name]
    headers = {**example.headers, type_header: kind, id_header: ident}
    return sent(replace(example, body=json.dumps(body).encode(), headers=headers), NOW)


async def sequence(
    store: Store, name: str, body: dict[str, Any], kinds: str, endpoint: Endpoint | None = None
) -> list[str]:
    """What becomes of one body as these types, one after the other and each under a new id."""
    endpoint = endpoint or endpoint_of(FIRST[name])
    found = []
    for n, kind in enumerate(kinds.split()):
        [one] = await record(store, [taken(endpoint, request(name, kind, body, f"id-{n}"))])
        found.append(one.outcome.value)
    assert await imbalances(store) == {}
    return found


# ── a body that shows its type, as every type ────────────────────────────────


def first_of(name: str, kind: str) -> str:
    """What the header says."""
    return kind.partition(".")[0] if name == "github" else kind


def shown() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A documented body for each shape."""
    for name in ("github", "shopify"):
        for shape in contracts()[name].shown:
            own = [(kind, content) for kind, content in bodies(name) if shape.fits(content)]
            yield name, *own[-1]


SHOWN = list(shown())


@pytest.mark.parametrize(("name", "kind", "content"), SHOWN, ids=[f"{name}-{kind}" for name, kind, _ in SHOWN])
async def test_a_header_cannot_choose_what_repeats(
    store: Store, raw: Raw, name: str, kind: str, content: dict[str, Any]
) -> None:
    """The body repeats as the type that it came as, once as each that shares it, and never as any other."""
    endpoint = endpoint_of(FIRST[name])
    contract = endpoint.contract
    first_field = first_of(name, kind)
    captured = request(name, first_field, content, "first")
    first = taken(endpoint, captured)
    await record(store, [first])
    types = len(contract.types | contract.repeatable) + 1
    again = [taken(endpoint, one) for one in resent(contract, captured, 2 * types)]
    found = await record(store, again)
    kinds = {arrival.event_ids[0]: arrival.items[0].type for arrival in again}
    accepted = Counter(kinds[one.event_id] for one in found if one.outcome.value == "accepted")
    own = first.items[0].type
    repeats = bool(contract.repeatable & {own, first_field})
    allowed = dict.fromkeys((k for k, group in contract.groups.items() if group == contract.groups.get(own)), 1)
    allowed = {k: n for k, n in allowed.items() if not contract.denies(k, content)} | {own: 2 if repeats else 0}
    assert accepted == Counter(allowed)
    assert await raw.count("events") == 1 + sum(allowed.values())
    assert await raw.count("deliveries") == 1 + len(again)
    assert await imbalances(store) == {}


async def test_what_looks_like_a_type_that_repeats_is_not_repeated_as_it(store: Store) -> None:
    """A captured request to cancel, say, is not a hundred released holds."""
    request_to_cancel = "fulfillment_orders/cancellation_request_submitted"
    [fields] = [fields for types, fields in documented("shopify") if types == [request_to_cancel]]
    body = made(request_to_cancel, fields, optional=True)
    kinds = request_to_cancel + " fulfillment_orders/hold_released" * 100
    assert await sequence(store, "shopify", body, kinds) == ["accepted"] + ["same_body"] * 100


SEGMENT = {"customer_id": "gid://1", "segment_id": "gid://2", "shop_id": "gid://3"}
JOINED, LEFT = "customer.joined_segment", "customer.left_segment"


async def test_done_and_undone_in_turns(store: Store) -> None:
    kinds = f"{JOINED} {LEFT} {JOINED} {LEFT} {JOINED}"
    expected = ["accepted", "accepted", "accepted", "same_body", "accepted"]
    assert await sequence(store, "shopify", SEGMENT, kinds) == expected
    [item] = taken(endpoint_of(FIRST["shopify"]), request("shopify", LEFT, SEGMENT, "x")).items
    assert item.alert is not None, "an operator hears of the one that is withheld"
    # A source that names them takes each for what its header says.
    example = FIRST["shopify"]
    named = configure("named", contract_of("shopify"), [example.secret], repeatable=[JOINED, LEFT])
    assert await sequence(store, "shopify", SEGMENT, kinds, named) == ["accepted"] * 5


async def test_what_was_quarantined_as_a_type_is_not_the_type_that_came_first(store: Store) -> None:
    body = {"locale": "fr", "published": True}
    kinds = "made.up locales/create locales/create locales/destroy locales/destroy"
    assert await sequence(store, "shopify", body, kinds) == ["accepted"] + ["same_body"] * 4


async def test_a_duplicate_under_another_type_is_not_the_type_that_came_first(store: Store) -> None:
    """Where the source's key has no type in it, one key comes as any type."""
    example, body = FIRST["shopify"], {"locale": "fr", "published": True}
    endpoint = configure("s", contract_of("shopify"), [example.secret], key=["header:X-Shopify-Event-Id"])
    found = []
    for kind, ident in (("create", "1"), ("destroy", "1"), ("destroy", "2"), ("destroy", "3"), ("create", "4")):
        found += await record(store, [taken(endpoint, request("shopify", f"locales/{kind}", body, ident))])
    expected = ["accepted", "duplicate", "same_body", "same_body", "accepted"]
    assert [one.outcome.value for one in found] == expected


# ── types that share a body ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ({"admin_graphql_api_id": "gid://1", "updated_at": "2025-01-01"}, "companies/update companies/delete"),
        ({"admin_graphql_api_id": "gid://2", "company": {}}, "company_contacts/create company_contacts/delete"),
        ({"admin_graphql_api_id": "gid://3", "company": {}}, "company_locations/update company_locations/delete"),
        ({"id": 1, "name": "x", "version": 1}, "profiles/create profiles/update profiles/delete"),
        ({"id": 2, "host": "x"}, "domains/create domains/update domains/destroy"),
        ({"id": 3, "happened_at": "2025-01-01"}, "fulfillment_events/create fulfillment_events/delete"),
        ({"fulfillment_hold": {"id": 1}}, "fulfillment_holds/added fulfillment_holds/released"),
        ({"redeem_code": {}, "updated_at": "2025"}, "discounts/redeemcode_added discounts/redeemcode_removed"),
        ({"id": 4, "financial_status": "pending"}, "orders/create orders/link_requested orders/updated"),
        ({"id": 5, "key": "x"}, "metafield_definitions/create metafield_definitions/update"),
        ({"id": 12}, "products/delete orders/delete draft_orders/delete"),
    ],
)
async def test_shopify_shares_a_body(store: Store, body: dict[str, Any], kinds: str) -> None:
    count = len(kinds.split())
    found = await sequence(store, "shopify", body, f"{kinds} {kinds}")
    assert found == ["accepted"] * count + ["same_body"] * count


async def test_woocommerce_counts_its_objects_by_kind(store: Store) -> None:
    kinds = "customer.deleted product.deleted order.deleted customer.deleted product.updated"
    expected = ["accepted", "accepted", "accepted", "same_body", "same_body"]
    assert await sequence(store, "woocommerce", {"id": 12}, kinds) == expected


ORDER = {"id": 1, "financial_status": "pending", "cancelled_at": None, "fulfillment_status": None}


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({}, ""),
        ({"financial_status": "paid"}, "orders/paid"),
        ({"financial_status": "partially_paid"}, ""),
        ({"financial_status": "refunded"}, ""),
        ({"cancelled_at": "2025-11-13T02:13:20Z"}, "orders/cancelled"),
        ({"fulfillment_status": "fulfilled"}, "orders/fulfilled"),
        ({"fulfillment_status": "partial"}, "orders/partially_fulfilled"),
        ({"fulfillment_status": ["fulfilled"], "financial_status": {"paid": 1}, "cancelled_at": None}, ""),
    ],
)
async def test_a_known_order_is_accepted_as_what_it_says(
    store: Store, changes: dict[str, Any], accepted: str
) -> None:
    told = ["orders/paid", "orders/cancelled", "orders/fulfilled", "orders/partially_fulfilled"]
    found = await sequence(store, "shopify", ORDER | changes, " ".join(["orders/create", *told, "orders/updated"]))
    expected = ["accepted" if kind in accepted.split() else "same_body" for kind in told]
    assert found == ["accepted", *expected, "accepted"]


async def test_a_new_order_is_accepted_whatever_it_says(store: Store) -> None:
    """A first delivery is never withheld, and takes nothing from the types that share the body."""
    found = await sequence(store, "shopify", ORDER, "orders/paid orders/paid orders/create orders/create")
    assert found == ["accepted", "same_body", "accepted", "same_body"]


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        ("paused", "subscription_contracts/pause", "accepted"),
        ("active", "subscription_contracts/pause", "same_body"),
        ("active", "subscription_contracts/cancel", "same_body"),
    ],
)
async def test_a_known_contract_is_accepted_as_what_it_says(
    store: Store, status: str, kind: str, outcome: str
) -> None:
    found = await sequence(store, "shopify", {"id": 1, "status": status}, f"subscription_contracts/update {kind}")
    assert found == ["accepted", outcome]


# ── one token at two receivers ───────────────────────────────────────────────


def with_token(name: str, number: int) -> tuple[Endpoint, Request]:
    """An event under a token of its own."""
    example = FIRST[name]
    content = json.loads(sent(example, NOW).body)
    if name == "paypal":
        content["id"], headers = f"WH-{number}", {**example.headers, "PAYPAL-TRANSMISSION-ID": f"tx-{number}"}
        return endpoint_of(example), sent(replace(example, body=content, headers=headers), NOW)
    content["event-data"]["id"] = f"event-{number}"
    time, token = content["signature"]["timestamp"], f"{number:02d}" * 25
    mac = hmac.new(example.secret.encode(), f"{time}{token}".encode(), hashlib.sha256)
    content["signature"] |= {"token": token, "signature": mac.hexdigest()}
    return endpoint_of(example), replace(sent(example, NOW), body=json.dumps(content).encode())


@pytest.mark.parametrize("name", ["mailgun", "paypal"])
async def test_two_receivers_get_one_token_at_the_same_moment(
    store: Store, raw: Raw, open_store: OpenStore, name: str
) -> None:
    """Whichever comes first is the event; all others are kept, and change nothing."""
    other, rounds, copies = await open_store(), 10, 6
    for number in range(rounds):
        endpoint, captured = with_token(name, number)
        numbers = range(number * copies, (number + 1) * copies)
        arrivals: list[Arrival] = [taken(endpoint, forged(name, captured, n)) for n in numbers]
        halves = (store, [*arrivals[::2], taken(endpoint, captured)]), (other, arrivals[1::2])
        both = await asyncio.gather(*(record(at, half) for at, half in halves))
        found = [one for half in both for one in half]
        assert outcomes(found) == {"accepted": 1, "conflict": copies}
        [winner] = {one.event_id for one in found}
        assert (await history(store, winner)).event.id == winner
    assert await raw.count("events") == rounds
    assert await raw.count("deliveries") == rounds * (copies + 1)
    assert await imbalances(store) == {}
