"""A captured request, sent a thousand times with whatever its signature does not see: on every store, by its rows."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from hookledger.clock import Clock
from hookledger.errors import WrongState
from hookledger.model import Arrival, Recorded, Request
from hookledger.providers.catalogue import contracts
from hookledger.providers.contract import Contract, names
from hookledger.providers.fields import Header
from hookledger.receive.app import arrival
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.identify import identify
from hookledger.receive.record import Recorder
from hookledger.receive.verify import verify
from hookledger.states import DeliveryOutcome, State
from hookledger.store.protocol import Store
from tests.builders import Raw, history
from tests.contract.conftest import OpenStore
from tests.contract.test_consistency import found as imbalances
from tests.contract.test_prune import DAY, prune
from tests.endpoints import configure
from tests.providers.example import Example
from tests.providers.made import FIRST, contract_of, endpoint_of, sent

NOW = 1763000000.0
RESENDS = 1000
ACCEPTED, DUPLICATE = DeliveryOutcome.ACCEPTED, DeliveryOutcome.DUPLICATE
CONFLICT, SAME_BODY = DeliveryOutcome.CONFLICT, DeliveryOutcome.SAME_BODY


def unsigned(contract: Contract) -> bool:
    """Whether a captured body could come again as something else."""
    keyed = bool(contract.key_fields) and not contract.id_authenticated
    return contract.body_authenticated and not contract.hint and (keyed or not contract.type_authenticated)


REPEATING = {"twilio_voice", "zendesk_triggers"}
"""They repeat bodies on purpose."""
UNSIGNED = sorted(name for name, contract in contracts().items() if unsigned(contract))


def headers_of(contract: Contract) -> tuple[set[bytes], bytes | None]:
    """The headers that anybody can change: those with ids, and the one with the type."""
    fields = (contract.id, contract.delivery_id, *contract.key_fields)
    ids = {field.name for field in fields if isinstance(field, Header) and not contract.scheme.signs(field)}
    kind = contract.type[0]
    return (ids - {kind.name}, kind.name) if isinstance(kind, Header) else (ids, None)


def resent(contract: Contract, captured: Request, number: int = RESENDS) -> Iterator[Request]:
    """Under new ids or none, as every documented type and as made-up ones."""
    ids, kind = headers_of(contract)
    types = [*sorted(contract.types | contract.repeatable), ""]
    for n in range(number):
        changed: dict[bytes, bytes] = dict.fromkeys(ids, b"" if n % 50 == 7 else b"resent-%d" % n)
        if kind is not None:
            changed[kind] = (types[n % len(types)] or f"made.up/{n}").encode()
        kept = [(name, value) for name, value in captured.headers if name not in changed]
        yield replace(captured, headers=(*kept, *((name, value) for name, value in changed.items() if value)))


def taken(endpoint: Endpoint, request: Request) -> Arrival:
    proof = verify(endpoint, request, NOW)
    return arrival(endpoint, request, proof, identify(endpoint, request, proof, NOW))


async def record(store: Store, arrivals: Iterable[Arrival]) -> list[Recorded]:
    """Through the intake's own group commit."""
    recorder = Recorder(store, queue=10_000)
    groups = await asyncio.gather(*(recorder.record(one) for one in arrivals))
    await recorder.drain()
    return [recorded for group in groups for recorded in group]


def outcomes(recorded: Iterable[Recorded]) -> Counter[str]:
    return Counter(one.outcome.value for one in recorded)


async def bodies(raw: Raw) -> int:
    return sum(len(row[0]) > 0 for row in await raw.run("SELECT body FROM requests"))


def test_the_providers_are_those_that_the_data_names() -> None:
    assert {"github", "shopify", "bitbucket", "sentry", "twilio", "woocommerce", "coinbase_cdp"} <= set(UNSIGNED)
    assert {"linear", "jira", "razorpay", "zendesk_triggers", "gitlab_signed"} <= set(UNSIGNED)
    assert {name for name, contract in contracts().items() if contract.tokens} == {"paypal", "mailgun"}


@pytest.mark.parametrize("name", UNSIGNED)
async def test_a_captured_body_is_one_event_for_each_type_that_may_share_it(
    store: Store, raw: Raw, name: str
) -> None:
    example = FIRST[name]
    endpoint, captured = endpoint_of(example), sent(example, NOW)
    first = taken(endpoint, captured)
    await record(store, [first])
    again = [taken(endpoint, request) for request in resent(endpoint.contract, captured)]
    found = await record(store, again)
    made = [one for one in found if one.outcome is ACCEPTED]
    if name in REPEATING:
        assert {(await history(store, one.event_id)).body_of for one in made[:5]} == {first.event_ids[0]}
    else:
        groups = [group.types for group in endpoint.contract.shared if first.items[0].type in group.types]
        content = json.loads(captured.body) if groups else {}
        allowed = set().union(*groups) - {first.items[0].type}
        allowed = {kind for kind in allowed if not endpoint.contract.denies(kind, content)}
        events = [(await history(store, one.event_id)).event.type for one in made]
        assert sorted(events) == sorted(allowed)
        assert len(made) + outcomes(found)["same_body"] + outcomes(found)["duplicate"] == RESENDS
        assert await bodies(raw) == 1 + len(made), "the bytes are kept once for each event"
    assert await raw.count("deliveries") == 1 + RESENDS
    assert await imbalances(store) == {}


@pytest.mark.parametrize("name", ["github", "shopify"])
async def test_a_pruned_event_does_not_give_its_body_back(store: Store, raw: Raw, clock: Clock, name: str) -> None:
    example = FIRST[name]
    endpoint, captured = endpoint_of(example), sent(example, NOW)
    await record(store, [taken(endpoint, captured)])
    await record(store, [taken(endpoint, one) for one in resent(endpoint.contract, captured, 300)])
    events = await raw.count("events")
    for row in await store.search.events(limit=events):
        await store.discard(row.id, State.PENDING, "ada", "over")
    assert (await prune(store, clock, events=DAY)).events == events
    assert await raw.count("requests") == 0
    found = await record(store, [taken(endpoint, one) for one in resent(endpoint.contract, captured, 300)])
    assert set(outcomes(found)) <= {"same_body", "duplicate"}
    assert await raw.count("events") == 0
    assert await bodies(raw) <= events, "one for each event that had it"
    assert await imbalances(store) == {}


async def test_two_receivers_at_the_same_moment(store: Store, raw: Raw, open_store: OpenStore) -> None:
    """Both have the captured body, as the types of one order and as others."""
    example = FIRST["shopify"]
    endpoint, captured = endpoint_of(example), sent(example, NOW)
    both = [store, await open_store()]
    for round_ in range(5):
        changed = replace(example, body={"id": round_, "admin_graphql_api_id": f"gid://shopify/Order/{round_}"})
        captured = sent(changed, NOW)
        halves: list[list[Arrival]] = [[], []]
        for n, one in enumerate(resent(endpoint.contract, captured, 400)):
            halves[n % 2].append(taken(endpoint, one))
        await asyncio.gather(*(record(one, half) for one, half in zip(both, halves, strict=True)))
        made = f"SELECT type FROM events WHERE object_id = 'gid://shopify/Order/{round_}'"
        types = [row[0] for row in await raw.run(made)]
        assert len(types) == len(set(types)), "no type twice"
        groups = {endpoint.contract.groups.get(kind) for kind in types}
        assert len(groups) == 1, "whichever came first decides which types may share it"
    assert await imbalances(store) == {}


# ── types that repeat identical bodies on purpose ────────────────────────────

ROLE = "company_contact company_contact_role company_location"
CYCLE = (
    "billing_attempt_expected_date contract_edit cycle_end_at cycle_index cycle_start_at edited skipped "
    "subscription_contract_id"
)
REPEATED: list[tuple[str, str, dict[str, Any]]] = [
    ("github", "workflow_dispatch", {"inputs": None, "ref": "refs/heads/main", "workflow": "deploy.yml"}),
    ("github", "membership", {"action": "removed", "scope": "team", "member": {}, "team": {}}),
    ("github", "member", {"action": "removed", "member": {}, "repository": {}, "sender": {}}),
    ("github", "team_add", {"team": {}, "repository": {}, "organization": {}, "sender": {}}),
    ("github", "organization", {"action": "member_removed", "membership": {}, "organization": {}, "sender": {}}),
    ("github", "team", {"action": "added_to_repository", "team": {}, "organization": {}, "repository": {}}),
    ("shopify", "fulfillment_orders/hold_released", {"fulfillment_order": {"id": "gid://1", "status": "open"}}),
    ("shopify", "scheduled_product_listings/remove", {"scheduled_product_listing": {"product_id": 1}}),
    ("shopify", "locales/update", {"locale": "fr", "published": True}),
    ("shopify", "markets/update", {"id": 1, "name": "x", "enabled": True, "regions": []}),
    ("shopify", "markets/update", {"id": 1, "name": "x", "status": "active", "type": "region"}),
    ("shopify", "customer.left_segment", {"customer_id": "gid://1", "segment_id": "gid://2", "shop_id": "gid://3"}),
    ("shopify", "company_contact_roles/assign", dict.fromkeys(names(ROLE))),
    ("shopify", "product_feeds/update", {"id": "gid://1", "country": "CA", "language": "EN", "status": "ACTIVE"}),
    ("shopify", "returns/close", {"admin_graphql_api_id": "gid://1", "id": 1, "order_id": 2, "status": "closed"}),
    ("shopify", "subscription_billing_cycles/skip", dict.fromkeys(names(CYCLE)) | {"skipped": True}),
]


def repeated(name: str, kind: str, body: dict[str, Any]) -> Example:
    example = FIRST[name]
    header = {"github": "X-GitHub-Event", "shopify": "X-Shopify-Topic"}[name]
    return replace(example, body=json.dumps(body).encode(), headers={**example.headers, header: kind})


@pytest.mark.parametrize(("name", "kind", "body"), REPEATED)
async def test_what_its_body_shows_is_accepted_again_and_marked(
    store: Store, name: str, kind: str, body: dict[str, Any]
) -> None:
    example = repeated(name, kind, body)
    endpoint, first = endpoint_of(example), sent(example, NOW)
    ids, header = headers_of(endpoint.contract)
    again = replace(first, headers=tuple((n, b"another" if n in ids else v) for n, v in first.headers))
    [one], [two] = [await record(store, [taken(endpoint, request)]) for request in (first, again)]
    assert (one.outcome, two.outcome) == (ACCEPTED, ACCEPTED)
    assert (await history(store, two.event_id)).body_of == one.event_id
    assert (await history(store, one.event_id)).body_of is None
    # As any other type it is quarantined, and everywhere where the source switched it off.
    other = replace(again, headers=tuple((n, b"other" if n == header else v) for n, v in again.headers))
    other = replace(other, headers=tuple((n, b"third" if n in ids else v) for n, v in other.headers))
    [three] = await record(store, [taken(endpoint, other)])
    assert (three.outcome, three.event_id) == (SAME_BODY, one.event_id)
    strict = configure("strict", contract_of(name), [example.secret], repeatable=[])
    found = [await record(store, [taken(strict, request)]) for request in (first, again)]
    assert [recorded.outcome for [recorded] in found] == [ACCEPTED, SAME_BODY]
    assert await imbalances(store) == {}


@pytest.mark.parametrize("kind", ["customers/redact", "shop/redact", "app/uninstalled"])
async def test_what_no_body_shows_is_quarantined_with_an_alert(store: Store, kind: str) -> None:
    example = repeated("shopify", kind, {"shop_id": 1, "shop_domain": "x.myshopify.com"})
    endpoint, first = endpoint_of(example), sent(example, NOW)
    renamed = tuple((n, b"new" if n == b"x-shopify-event-id" else v) for n, v in first.headers)
    one, two = taken(endpoint, first), taken(endpoint, replace(first, headers=renamed))
    assert [r.outcome for r in await record(store, [one, two])] == [ACCEPTED, SAME_BODY]
    [item] = two.items
    assert item.alert is not None
    assert [await store.alerts.warn(one.event_ids[0], item.alert) for _ in range(2)] == [True, False]
    [action] = (await history(store, one.event_ids[0])).actions
    assert (action.name, action.actor, action.reason) == ("alert", "hookledger", item.alert)
    assert await imbalances(store) == {}


async def test_a_known_body_without_stored_bytes_is_accepted(store: Store, raw: Raw, clock: Clock) -> None:
    example = FIRST["github"]
    endpoint, captured = endpoint_of(example), sent(example, NOW)
    first, second, third = (taken(endpoint, one) for one in (captured, *resent(endpoint.contract, captured, 2)))
    await record(store, [first])
    await record(store, [second, third])
    found = await store.quarantine.request(second.id)
    assert found is not None
    assert found.body == captured.body
    ident = await store.quarantine.accept(second.id, 0, second.items[0], "ada", "a second one")
    kept = (await history(store, ident)).request
    assert kept is not None
    assert kept.body == captured.body, "an event has its own bytes"
    assert await imbalances(store) == {}
    # Pruned with the event that had them, the bytes are gone, and are not made up.
    await store.discard(first.event_ids[0], State.PENDING, "ada", "over")
    await prune(store, clock, events=DAY)
    with pytest.raises(WrongState):
        await store.quarantine.accept(third.id, 0, third.items[0], "ada", "too late")
    assert (await history(store, ident)).request == kept


# ── tokens that are signed without the body ──────────────────────────────────


def with_crc(body: bytes, wanted: int) -> bytes:
    """The body followed by blanks that give it any CRC-32: the checksum is linear in which of them are tabs."""
    size = 64
    plain = zlib.crc32(body + b" " * size)
    rows: dict[int, tuple[int, int]] = {}
    for place in range(size):
        tabbed = body + b" " * place + b"\t" + b" " * (size - place - 1)
        vector, mask = zlib.crc32(tabbed) ^ plain, 1 << place
        while vector and vector.bit_length() in rows:
            other, others = rows[vector.bit_length()]
            vector, mask = vector ^ other, mask ^ others
        if vector:
            rows[vector.bit_length()] = vector, mask
    need, tabs = plain ^ wanted, 0
    while need:
        vector, mask = rows[need.bit_length()]
        need, tabs = need ^ vector, tabs ^ mask
    return body + bytes(9 if tabs >> place & 1 else 32 for place in range(size))


def forged(name: str, captured: Request, number: int) -> Request:
    """Another event under the captured signature."""
    content = json.loads(captured.body)
    if name == "mailgun":
        content["event-data"]["id"] = f"forged-{number}"
        return replace(captured, body=json.dumps(content).encode())
    content["id"], content["resource"]["amount"] = f"WH-FORGED-{number}", number
    return replace(captured, body=with_crc(json.dumps(content).encode(), zlib.crc32(captured.body)))


@pytest.mark.parametrize("name", ["mailgun", "paypal"])
async def test_a_captured_token_proves_one_event(store: Store, raw: Raw, name: str) -> None:
    example = FIRST[name]
    endpoint, captured = endpoint_of(example), sent(example, NOW)
    first = taken(endpoint, captured)
    forgeries = [taken(endpoint, forged(name, captured, n)) for n in range(RESENDS)]
    half = RESENDS // 2
    found = await record(store, [first])
    found += await record(store, forgeries[:half])
    found += await record(store, [taken(endpoint, captured), *forgeries[half:]])
    assert outcomes(found) == {"accepted": 1, "duplicate": 1, "conflict": RESENDS}
    assert {one.event_id for one in found} == {first.event_ids[0]}
    assert await raw.count("events") == 1
    assert await raw.count("deliveries") == RESENDS + 2
    assert await imbalances(store) == {}
    # The forged keys are nobody's: under tokens of their own they are events.
    genuine = arrival_with_token(endpoint, example, forgeries[3])
    assert [one.outcome for one in await record(store, [genuine])] == [ACCEPTED]
    # An operator may still take one in; what comes again is then a duplicate of that.
    ident = await store.quarantine.accept(forgeries[5].id, 0, forgeries[5].items[0], "ada", "it is real")
    again = await record(store, [taken(endpoint, forged(name, captured, 5))])
    assert again == [Recorded(DUPLICATE, ident, State.PENDING)]
    assert await imbalances(store) == {}


@pytest.mark.parametrize("first", [True, False])
async def test_unreadable_bodies_under_a_captured_token_are_one_event(store: Store, first: bool) -> None:
    """The proof finds the signed fields in what nothing else can read, and the token is what it found."""
    example = FIRST["mailgun"]
    endpoint, captured = endpoint_of(example), sent(example, NOW)
    found = await record(store, [taken(endpoint, captured)]) if first else []
    for n in range(20):
        forgery = replace(captured, body=captured.body[:-1] + b',"x":%s%d%s}' % (b"[" * 200, n, b"]" * 200))
        made = taken(endpoint, forgery)
        assert made.items[0].invalid == "the JSON is nested too deeply"
        found += await record(store, [made])
    found += await record(store, [taken(endpoint, captured)])
    assert outcomes(found) == (
        {"accepted": 1, "conflict": 20, "duplicate": 1} if first else {"invalid": 1, "conflict": 20}
    )
    assert len({one.event_id for one in found}) == 1
    assert await imbalances(store) == {}


def arrival_with_token(endpoint: Endpoint, example: Example, forgery: Arrival) -> Arrival:
    """What was forged, as the provider would send it itself."""
    content = json.loads(forgery.body)
    content.pop("signature", None)
    headers = {**example.headers, **({"PAYPAL-TRANSMISSION-ID": "its-own"} if example.contract == "paypal" else {})}
    return taken(endpoint, sent(replace(example, body=content, headers=headers), NOW))


async def test_a_new_token_of_a_known_event_is_bound_to_it(store: Store) -> None:
    """PayPal signs a redelivery under a new transmission id; that proves no other event either."""
    example = FIRST["paypal"]
    endpoint = endpoint_of(example)
    first = taken(endpoint, sent(example, NOW))
    renewed = sent(replace(example, headers={**example.headers, "PAYPAL-TRANSMISSION-ID": "tx-renewed"}), NOW)
    found = await record(store, [first])
    for one in (renewed, forged("paypal", renewed, 1), renewed):
        found += await record(store, [taken(endpoint, one)])
    assert [one.outcome for one in found] == [ACCEPTED, DUPLICATE, CONFLICT, DUPLICATE]
    assert {one.event_id for one in found} == {first.event_ids[0]}
    assert await imbalances(store) == {}


async def test_the_token_of_a_conflict_proves_no_other_event(store: Store) -> None:
    """Other content of a known event, under a token of its own: whoever captured that request has the token."""
    example = FIRST["paypal"]
    endpoint = endpoint_of(example)
    first = taken(endpoint, sent(example, NOW))
    headers = {**example.headers, "PAYPAL-TRANSMISSION-ID": "tx-of-the-conflict"}
    assert isinstance(example.body, dict)
    other = sent(replace(example, headers=headers, body={**example.body, "summary": "changed"}), NOW)
    found = await record(store, [first])
    found += await record(store, [taken(endpoint, other)])
    for number in range(5):
        found += await record(store, [taken(endpoint, forged("paypal", other, number))])
    assert [one.outcome for one in found] == [ACCEPTED, *[CONFLICT] * 6]
    assert {one.event_id for one in found} == {first.event_ids[0]}
    # An operator may still accept the conflict, and its redelivery is a duplicate of that.
    withheld = taken(endpoint, other)
    await record(store, [withheld])
    ident = await store.quarantine.accept(withheld.id, 0, withheld.items[0], "ada", "it is real")
    assert await record(store, [taken(endpoint, other)]) == [Recorded(DUPLICATE, ident, State.PENDING)]
    assert await imbalances(store) == {}
