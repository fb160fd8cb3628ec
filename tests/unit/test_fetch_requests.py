"""Which request an event becomes: of each provider, and of events that mean harm."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookledger import Permanent
from hookledger.ids import show
from hookledger.model import REPAIR
from hookledger.providers.catalogue import contracts
from hookledger.providers.fetching.paths import is_segment
from hookledger.providers.fields import Body
from hookledger.providers.fields import field as read_field
from tests.services.objects import Objects, Reply
from tests.unit.fetching import ACCESS, REPO, REPOSITORY, TOKEN, Subject, event_of, fetch, made, running


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    with running(monkeypatch) as one:
        yield one


# ── each provider's request ──────────────────────────────────────────────────

STRIPE = {"authorization": f"Bearer {TOKEN}", "stripe-version": "2026-10-28.dahlia"}
GITHUB = {
    "authorization": f"Bearer {TOKEN}",
    "accept": "application/vnd.github+json",
    "x-github-api-version": "2022-11-28",
}
SQUARE = {"authorization": f"Bearer {TOKEN}", "accept": "application/json", "square-version": "2026-09-16"}
PAYPAL = {"authorization": "Bearer access_1", "accept": "application/json"}
SHOPIFY = {"x-shopify-access-token": TOKEN}
BEARER = {"authorization": f"Bearer {TOKEN}"}

CASES: list[tuple[str, Subject, str, dict[str, str], str | None]] = [
    ("stripe", event_of("stripe", "customer.updated", data__object__id="cus_1"), "/v1/customers/cus_1", STRIPE, None),
    (
        "stripe",
        event_of("stripe", "customer.subscription.deleted", data__object__id="sub_1"),
        "/v1/subscriptions/sub_1",
        STRIPE,
        None,
    ),
    ("stripe", event_of("stripe", "invoice.paid", data__object__id="in_1"), "/v1/invoices/in_1", STRIPE, None),
    (
        "stripe",  # of a connected account
        event_of("stripe", "invoice.paid", data__object__id="in_1", account="acct_1"),
        "/v1/invoices/in_1",
        STRIPE | {"stripe-account": "acct_1"},
        None,
    ),
    (
        "stripe",
        event_of("stripe", "checkout.session.completed", data__object__id="cs_test_1"),
        "/v1/checkout/sessions/cs_test_1",
        STRIPE,
        None,
    ),
    (
        "stripe",  # a thin event
        Subject(
            "v1.billing.meter.error_report_triggered",
            {"related_object": {"id": "m_1", "type": "billing.meter"}},
            "m_1",
        ),
        "/v1/billing/meters/m_1",
        STRIPE,
        None,
    ),
    (
        "stripe",
        Subject("x", {"data": {"object": {"id": "sub_sched_1"}}}, "sub_sched_1"),
        "/v1/subscription_schedules/sub_sched_1",
        STRIPE,
        None,
    ),
    (
        "stripe",
        Subject(REPAIR, {"object": "cus_1", "type": None}, "cus_1", None),
        "/v1/customers/cus_1",
        STRIPE,
        None,
    ),
    (
        "github",
        Subject("issues.opened", {"issue": {"number": 7, "url": "https://evil.example/"}, "repository": REPOSITORY}),
        f"{REPO}/issues/7",
        GITHUB,
        None,
    ),
    (
        "github",
        Subject(
            "pull_request_review.submitted",
            {"pull_request": {"number": 3}, "review": {"id": 80}, "repository": REPOSITORY},
        ),
        f"{REPO}/pulls/3/reviews/80",
        GITHUB,
        None,
    ),
    (
        "github",
        Subject("workflow_run.completed", {"workflow_run": {"id": 5}, "repository": REPOSITORY}),
        f"{REPO}/actions/runs/5",
        GITHUB,
        None,
    ),
    (
        "github",
        Subject("label.edited", {"label": {"name": "good first issue"}, "repository": REPOSITORY}),
        f"{REPO}/labels/good%20first%20issue",
        GITHUB,
        None,
    ),
    (
        "shopify",
        event_of("shopify", "orders/updated", id=5, admin_graphql_api_id="gid://shopify/Order/5"),
        "/admin/api/2026-07/orders/5.json",
        SHOPIFY,
        "order",
    ),
    (
        "shopify",
        event_of("shopify", "refunds/create", id=6, order_id=5, admin_graphql_api_id="gid://shopify/Refund/6"),
        "/admin/api/2026-07/orders/5/refunds/6.json",
        SHOPIFY,
        "refund",
    ),
    (
        "shopify",
        Subject(REPAIR, {"object": "gid://shopify/Product/8", "type": None}, "gid://shopify/Product/8", None),
        "/admin/api/2026-07/products/8.json",
        SHOPIFY,
        "product",
    ),
    (
        "shopify",
        Subject(REPAIR, {"object": "8", "type": "customers/update"}, "8", None),
        "/admin/api/2026-07/customers/8.json",
        SHOPIFY,
        "customer",
    ),
    (
        "paypal",
        event_of("paypal", "PAYMENT.CAPTURE.COMPLETED", resource__id="C1"),
        "/v2/payments/captures/C1",
        PAYPAL,
        None,
    ),
    (
        "paypal",
        event_of("paypal", "PAYMENT.CAPTURE.REFUNDED", resource__id="R1"),
        "/v2/payments/refunds/R1",
        PAYPAL,
        None,
    ),
    (
        "paypal",
        event_of("paypal", "BILLING.SUBSCRIPTION.ACTIVATED", resource__id="I-1"),
        "/v1/billing/subscriptions/I-1",
        PAYPAL,
        None,
    ),
    (
        "paypal",
        Subject("CUSTOMER.DISPUTE.UPDATED", {"resource_type": "dispute", "resource": {"dispute_id": "PP-D-1"}}),
        "/v1/customer/disputes/PP-D-1",
        PAYPAL,
        None,
    ),
    ("square", event_of("square", "payment.updated", data__id="P1"), "/v2/payments/P1", SQUARE, "payment"),
    ("square", event_of("square", "refund.updated", data__id="F1"), "/v2/refunds/F1", SQUARE, "refund"),
    ("square", Subject("loyalty.account.updated", {}, "L1"), "/v2/loyalty/accounts/L1", SQUARE, "loyalty_account"),
    (
        "gitlab",
        event_of("gitlab", "Merge Request Hook.open", object_attributes__iid=12, project__id=4711),
        "/api/v4/projects/4711/merge_requests/12",
        BEARER,
        None,
    ),
    (
        "gitlab",
        event_of("gitlab", "Pipeline Hook", object_attributes__id=99),
        "/api/v4/projects/4711/pipelines/99",
        BEARER,
        None,
    ),
    (
        "hubspot",
        event_of("hubspot", "contact.propertyChange", objectId=51),
        "/crm/v3/objects/contacts/51?properties=email%2Cphone",
        BEARER,
        None,
    ),
    (
        "hubspot",
        Subject("object.creation", {"objectTypeId": "2-77", "objectId": 51}, "51"),
        "/crm/v3/objects/2-77/51?properties=email%2Cphone",
        BEARER,
        None,
    ),
]


@pytest.mark.parametrize(("provider", "event", "target", "headers", "inside"), CASES, ids=lambda part: str(part)[:40])
async def test_the_request_of_each_provider(
    api: Objects, provider: str, event: Subject, target: str, headers: dict[str, str], inside: str | None
) -> None:
    there = {"id": "what is there now"}
    api.objects = {target: {inside: there} if inside else there}
    if provider == "paypal":
        api.objects["/v1/oauth2/token"] = ACCESS
    assert await fetch(provider, api, event) == there
    *before, asked = api.asked
    assert (asked.method, asked.target, asked.body) == ("GET", target, b"")
    ours = {"accept-encoding": "identity", "user-agent": "hookledger"}
    sent = {name: value for name, value in asked.headers.items() if name not in ("host", "connection")}
    assert {"accept": "*/*"} | headers | ours == sent
    assert len(before) == (provider == "paypal")


async def test_an_access_token_is_asked_for_once(api: Objects) -> None:
    event = event_of("paypal", "PAYMENT.CAPTURE.COMPLETED", resource__id="C1")
    api.objects = {"/v1/oauth2/token": ACCESS, "/v2/payments/captures/C1": {"id": "C1"}}
    paypal = made("paypal", api)
    for _ in range(3):
        assert await paypal.fetch(paypal.prepare(event)) == {"id": "C1"}
    assert api.targets == ["/v1/oauth2/token"] + ["/v2/payments/captures/C1"] * 3
    first = api.asked[0]
    basic = base64.b64encode(f"made_up_client:{TOKEN}".encode()).decode()
    assert (first.method, first.body) == ("POST", b"grant_type=client_credentials")
    assert first.headers["authorization"] == f"Basic {basic}"
    assert first.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_an_access_token_that_ended_is_replaced_once(api: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    event = event_of("paypal", "PAYMENT.CAPTURE.COMPLETED", resource__id="C1")
    api.objects = {"/v1/oauth2/token": ACCESS, "/v2/payments/captures/C1": {"id": "C1"}}
    paypal = made("paypal", api)
    api.trouble.extend([None, Reply(401, {}), None, None])
    assert await paypal.fetch(paypal.prepare(event)) == {"id": "C1"}
    capture, oauth = "/v2/payments/captures/C1", "/v1/oauth2/token"
    assert api.targets == [oauth, capture, oauth, capture]
    api.asked.clear()
    api.trouble.extend([Reply(401, {}), None, Reply(401, {})])
    with pytest.raises(Permanent, match=r"401.*client_id \(env:API_USER\) and client_secret"):
        await paypal.fetch(paypal.prepare(event))
    assert len(api.asked) == 3
    monkeypatch.setenv("API_TOKEN", "another")
    api.asked.clear()
    await paypal.fetch(paypal.prepare(event))
    assert api.targets == [oauth, capture], "new credentials, new token"


@pytest.mark.parametrize("seconds", [None, -5, "soon", True, 1e300, 30])
async def test_a_strange_lifetime_of_an_access_token(api: Objects, seconds: Any) -> None:
    api.objects = {"/v1/oauth2/token": ACCESS | {"expires_in": seconds}, "/v2/payments/captures/C1": {"id": "C1"}}
    assert await fetch("paypal", api, event_of("paypal", "PAYMENT.CAPTURE.COMPLETED", resource__id="C1"))


@pytest.mark.parametrize("provider", [name for name, contract in contracts().items() if contract.fetcher])
def test_every_path_can_be_read(provider: str) -> None:
    """Each names fields that exist in the language of contracts, stays below its host, and has a grade."""
    facts = contracts()[provider].fetcher
    assert facts is not None
    for path in (*facts.path_of.values(), facts.witness):
        assert path.startswith("/")
        assert not {"//", "..", "?", "#", " "} & {path[n : n + 2] for n in range(len(path))}, path
        for name in path.split("{")[1:]:
            given, _, _ = name.partition("}")
            assert given in ("id", "event_id", "version") or isinstance(read_field(given), Body)
    assert {kind for _, kind in facts.ids} <= facts.path_of.keys()
    assert dict(facts.inside).keys() <= facts.path_of.keys()
    assert facts.unsure <= facts.path_of.keys()
    assert contracts()[provider].confirmed.fetch in ("run", "code", "docs")
    assert not facts.base_url or facts.base_url.startswith("https://")


# ── hostile events ───────────────────────────────────────────────────────────

EVIL = [
    "..",
    ".",
    "...",
    "../v1/accounts",
    "a/b",
    "a\\b",
    "a?b",
    "a#b",
    "a%2fb",
    "a%2e%2e",
    "a;b",
    "\r\nX: y",
    "a\nb",
    "\x00",
    "",
    "\ud800",
    "\u202e",
    "x" * 256,
    "http://evil.example",
    "//evil.example",
    "@evil.example/",
    show(b"x" * 300),  # what the intake made of a long id is another one
    show(b"a\x07b"),
]


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
async def test_an_id_never_changes_the_path(api: Objects, evil: str) -> None:
    events = [
        ("stripe", event_of("stripe", "customer.updated", data__object__id=evil)),
        ("github", Subject("issues.opened", {"issue": {"number": 7}, "repository": REPOSITORY | {"name": evil}})),
        ("github", Subject("issues.opened", {"issue": {"number": evil}, "repository": REPOSITORY})),
        ("shopify", Subject("orders/updated", {}, f"gid://shopify/Order/{evil}")),
        ("gitlab", Subject("Release Hook.create", {"project": {"id": 1}, "tag": evil})),
        ("hubspot", Subject("object.creation", {"objectTypeId": evil}, "5")),
    ]
    for provider, event in events:
        if event.object_id is not None and provider == "stripe":
            event.object_id = evil
        with pytest.raises(Permanent, match=r"cannot be a part of a URL|has no "):
            made(provider, api).prepare(event)
    assert api.asked == []


@pytest.mark.parametrize("odd", [None, True, 1.5, [], {}, ["a"], {"a": 1}, 10**400, -(10**400)], ids=ascii)
def test_an_id_of_another_type(api: Objects, odd: Any) -> None:
    event = Subject("issues.opened", {"issue": {"number": odd}, "repository": REPOSITORY})
    with pytest.raises(Permanent, match=r"cannot be a part of a URL|has no "):
        made("github", api).prepare(event)


@given(st.text(max_size=300))
def test_whatever_is_let_through_is_one_segment(text: str) -> None:
    if is_segment(text):
        url = f"https://api.example.com/v1/things/{quote(text, safe='')}"
        parts = urlsplit(url)
        assert (parts.netloc, parts.query, parts.fragment) == ("api.example.com", "", "")
        assert unquote(parts.path) == f"/v1/things/{text}"
        assert parts.path.count("/") == unquote(unquote(parts.path)).count("/") == 3


@pytest.mark.parametrize("account", ["acct_1\r\nX-Evil: y", "", "ä", {"id": "acct_1"}, "x" * 300], ids=ascii)
def test_an_account_that_is_no_header(api: Objects, account: Any) -> None:
    event = event_of("stripe", "invoice.paid", data__object__id="in_1", account=account)
    with pytest.raises(Permanent, match=r"cannot be a header"):
        made("stripe", api).prepare(event)


@pytest.mark.parametrize("content", [[], None, "text", 7, {"data": None}, {"data": {"object": []}}], ids=ascii)
def test_content_of_another_shape(api: Objects, content: Any) -> None:
    with pytest.raises(Permanent, match=r"no path|has no"):
        made("stripe", api).prepare(Subject("invoice.paid", content, None))


@pytest.mark.parametrize(
    ("provider", "event", "words"),
    [
        (
            "stripe",
            Subject("balance.available", {"data": {"object": {"object": "balance"}}}),
            "no path of Stripe's API",
        ),
        (
            "stripe",
            Subject(REPAIR, {"object": "x_1", "type": "invoice.paid"}, "x_1"),
            "a repair of 'x_1', 'invoice.paid'",
        ),
        ("square", Subject("gift_card.activity.created", {}, "gcact_1"), "no path"),
        ("square", Subject("customer.custom_attribute.owned.updated", {}, "x"), "no path"),
        ("github", Subject("push", {"repository": REPOSITORY}), "declare @source.current"),
        (
            "github",
            Subject(REPAIR, {"object": "9:7", "type": "issues.opened"}, "9:7"),
            "a repair has only the object's id",
        ),
        ("shopify", Subject("customers/redact", {}, None), "has no object id"),
    ],
)
def test_what_has_no_path_says_what_to_do(api: Objects, provider: str, event: Subject, words: str) -> None:
    with pytest.raises(Permanent, match=words):
        made(provider, api).prepare(event)
