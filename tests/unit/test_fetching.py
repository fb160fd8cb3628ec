"""The ready-made fetchers: which request an event becomes, and what each answer means."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from hookledger import ConfigError, CurrentSettings, FetchFailed, Inbox, Permanent, Wait
from hookledger.model import REPAIR
from hookledger.providers.catalogue import contracts, find
from hookledger.providers.fetching import fetcher
from hookledger.providers.fetching.fetcher import LONGEST_PAUSE, ReadyFetcher
from hookledger.providers.fetching.paths import is_segment
from hookledger.providers.fields import Body, exact
from hookledger.providers.fields import field as read_field
from hookledger.providers.sample import sample
from hookledger.receive.secrets import text_of
from tests.services import objects as service
from tests.services.objects import BAD, CUT, HANG, HUGE, Objects, Reply

TOKEN = "made_up_api_token"
SETTINGS: dict[str, dict[str, Any]] = {
    "stripe": {"api_version": "2026-10-28.dahlia"},
    "github": {},
    "shopify": {"shop": "made-up.myshopify.com"},
    "paypal": {"token": None, "client_id": "env:API_USER", "client_secret": "env:API_TOKEN"},
    "square": {"api_version": "2026-09-16"},
    "gitlab": {},
    "hubspot": {"query": {"properties": "email,phone"}},
}


class Subject(Struct):
    """An event as a fetcher sees it."""

    type: str
    json: Any
    object_id: str | None = None
    provider_id: str | None = "evt_1"
    headers: list[tuple[str, str]] = []


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    monkeypatch.setenv("API_TOKEN", TOKEN)
    monkeypatch.setenv("API_USER", "made_up_client")
    with service.running() as running:
        yield running


def made(provider: str, api: Objects, **more: Any) -> ReadyFetcher:
    settings = {"token": "env:API_TOKEN", "base_url": api.url, "timeout": 10.0, **SETTINGS[provider], **more}
    return ReadyFetcher(
        "shop", find(provider), CurrentSettings(**settings), lambda place, what: text_of(place, what)[0]
    )


async def fetch(provider: str, api: Objects, event: Subject, **more: Any) -> Any:
    made_one = made(provider, api, **more)
    return await made_one.fetch(made_one.prepare(event))


def event_of(provider: str, kind: str, **changes: Any) -> Subject:
    """The provider's own shape, from the samples, as the intake reads it; with some fields changed."""
    contract, drawn = find(provider), sample(find(provider), kind)
    content = json.loads(drawn.body)
    content = content[0] if isinstance(content, list) else content
    for path, value in changes.items():
        *way, last = path.split("__")
        inner = content
        for name in way:
            inner = inner[name]
        inner[last] = value
    headers = [(name.lower(), value) for name, value in drawn.headers.items()]
    about = None
    for field in contract.object_id:
        assert isinstance(field, Body)
        inner = content
        for name in field.path:
            inner = inner.get(name) if isinstance(inner, dict) else None
        about = about or exact(inner)
    return Subject(kind, content, about.decode("utf-8", "surrogatepass") if about else None, drawn.id, headers)


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
ACCESS = {"access_token": "access_1", "token_type": "Bearer", "expires_in": 32400, "scope": "made up"}

REPO = "/repos/octo-org/hello"
REPOSITORY = {"id": 9, "name": "hello", "full_name": "x/y", "owner": {"login": "octo-org"}}
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
        Subject("v1.billing.meter.error_report_triggered", {"related_object": {"id": "m_1", "type": "billing.meter"}},
                "m_1"),
        "/v1/billing/meters/m_1",
        STRIPE,
        None,
    ),
    ("stripe", Subject("x", {"data": {"object": {"id": "sub_sched_1"}}}, "sub_sched_1"),
     "/v1/subscription_schedules/sub_sched_1", STRIPE, None),
    ("stripe", Subject(REPAIR, {"object": "cus_1", "type": None}, "cus_1", None), "/v1/customers/cus_1", STRIPE, None),
    ("github", Subject("issues.opened", {"issue": {"number": 7, "url": "https://evil.example/"},
                                         "repository": REPOSITORY}), f"{REPO}/issues/7", GITHUB, None),
    ("github", Subject("pull_request_review.submitted", {"pull_request": {"number": 3}, "review": {"id": 80},
                                                         "repository": REPOSITORY}),
     f"{REPO}/pulls/3/reviews/80", GITHUB, None),
    ("github", Subject("workflow_run.completed", {"workflow_run": {"id": 5}, "repository": REPOSITORY}),
     f"{REPO}/actions/runs/5", GITHUB, None),
    ("github", Subject("label.edited", {"label": {"name": "good first issue"}, "repository": REPOSITORY}),
     f"{REPO}/labels/good%20first%20issue", GITHUB, None),
    ("shopify", event_of("shopify", "orders/updated", id=5, admin_graphql_api_id="gid://shopify/Order/5"),
     "/admin/api/2026-07/orders/5.json", SHOPIFY, "order"),
    ("shopify", event_of("shopify", "refunds/create", id=6, order_id=5, admin_graphql_api_id="gid://shopify/Refund/6"),
     "/admin/api/2026-07/orders/5/refunds/6.json", SHOPIFY, "refund"),
    ("shopify", Subject(REPAIR, {"object": "gid://shopify/Product/8", "type": None}, "gid://shopify/Product/8", None),
     "/admin/api/2026-07/products/8.json", SHOPIFY, "product"),
    ("shopify", Subject(REPAIR, {"object": "8", "type": "customers/update"}, "8", None),
     "/admin/api/2026-07/customers/8.json", SHOPIFY, "customer"),
    ("paypal", event_of("paypal", "PAYMENT.CAPTURE.COMPLETED", resource__id="C1"), "/v2/payments/captures/C1", PAYPAL,
     None),
    ("paypal", event_of("paypal", "PAYMENT.CAPTURE.REFUNDED", resource__id="R1"), "/v2/payments/refunds/R1", PAYPAL,
     None),
    ("paypal", event_of("paypal", "BILLING.SUBSCRIPTION.ACTIVATED", resource__id="I-1"),
     "/v1/billing/subscriptions/I-1", PAYPAL, None),
    ("paypal", Subject("CUSTOMER.DISPUTE.UPDATED", {"resource_type": "dispute", "resource": {"dispute_id": "PP-D-1"}}),
     "/v1/customer/disputes/PP-D-1", PAYPAL, None),
    ("square", event_of("square", "payment.updated", data__id="P1"), "/v2/payments/P1", SQUARE, "payment"),
    ("square", event_of("square", "refund.updated", data__id="F1"), "/v2/refunds/F1", SQUARE, "refund"),
    ("square", Subject("loyalty.account.updated", {}, "L1"), "/v2/loyalty/accounts/L1", SQUARE, "loyalty_account"),
    ("gitlab", event_of("gitlab", "Merge Request Hook.open", object_attributes__iid=12, project__id=4711),
     "/api/v4/projects/4711/merge_requests/12", BEARER, None),
    ("gitlab", event_of("gitlab", "Pipeline Hook", object_attributes__id=99), "/api/v4/projects/4711/pipelines/99",
     BEARER, None),
    ("hubspot", event_of("hubspot", "contact.propertyChange", objectId=51),
     "/crm/v3/objects/contacts/51?properties=email%2Cphone", BEARER, None),
    ("hubspot", Subject("object.creation", {"objectTypeId": "2-77", "objectId": 51}, "51"),
     "/crm/v3/objects/2-77/51?properties=email%2Cphone", BEARER, None),
]  # fmt: skip


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
async def test_an_odd_lifetime_of_an_access_token(api: Objects, seconds: Any) -> None:
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

EVIL = ["..", ".", "...", "../v1/accounts", "a/b", "a\\b", "a?b", "a#b", "a%2fb", "a%2e%2e", "a;b", "\r\nX: y", "a\nb",
        "\x00", "", "\ud800", "\u202e", "x" * 256, "http://evil.example", "//evil.example", "@evil.example/"]  # fmt: skip


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
        with pytest.raises(Permanent, match="cannot be a part of a URL|has no "):
            made(provider, api).prepare(event)
    assert api.asked == []


@pytest.mark.parametrize("odd", [None, True, 1.5, [], {}, ["a"], {"a": 1}, 10**400, -(10**400)], ids=ascii)
def test_an_id_of_another_type(api: Objects, odd: Any) -> None:
    event = Subject("issues.opened", {"issue": {"number": odd}, "repository": REPOSITORY})
    with pytest.raises(Permanent, match="cannot be a part of a URL|has no "):
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
    with pytest.raises(Permanent, match="cannot be a header"):
        made("stripe", api).prepare(event)


@pytest.mark.parametrize("content", [[], None, "text", 7, {"data": None}, {"data": {"object": []}}], ids=ascii)
def test_content_of_another_shape(api: Objects, content: Any) -> None:
    with pytest.raises(Permanent, match="no path|has no"):
        made("stripe", api).prepare(Subject("invoice.paid", content, None))


@pytest.mark.parametrize(
    ("provider", "event", "words"),
    [
        ("stripe", Subject("balance.available", {"data": {"object": {"object": "balance"}}}), "no path of Stripe's API"),
        ("stripe", Subject(REPAIR, {"object": "x_1", "type": "invoice.paid"}, "x_1"), "a repair of 'x_1', 'invoice.paid'"),
        ("square", Subject("gift_card.activity.created", {}, "gcact_1"), "no path"),
        ("square", Subject("customer.custom_attribute.owned.updated", {}, "x"), "no path"),
        ("github", Subject("push", {"repository": REPOSITORY}), "declare @source.current"),
        ("github", Subject(REPAIR, {"object": "9:7", "type": "issues.opened"}, "9:7"), "a repair has only the object's id"),
        ("shopify", Subject("customers/redact", {}, None), "has no object id"),
    ],
)  # fmt: skip
def test_what_has_no_path_says_what_to_do(api: Objects, provider: str, event: Subject, words: str) -> None:
    with pytest.raises(Permanent, match=words):
        made(provider, api).prepare(event)


# ── answers ──────────────────────────────────────────────────────────────────

CUSTOMER = event_of("stripe", "customer.updated", data__object__id="cus_1")
PATH = "/v1/customers/cus_1"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 425])
async def test_a_broken_api_is_transient(api: Objects, status: int) -> None:
    api.trouble.append(Reply(status, {}, {"Retry-After": "7"}))
    with pytest.raises(FetchFailed, match=f"127.0.0.1 answered {status}") as failed:
        await fetch("stripe", api, CUSTOMER)
    assert failed.value.after == 7
    assert len(api.asked) == 1, "the event is retried, not the request"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [(BAD, "no JSON"), (CUT, "cannot be reached"), (Reply(200, []), "something else"), (Reply(200, b""), "no JSON"),
     (Reply(204, b""), "no JSON"), (Reply(200, b"[" * 100_000), "no JSON"), (Reply(200, b"\xff"), "no JSON")],
)  # fmt: skip
async def test_what_is_no_object_is_transient(api: Objects, trouble: Any, words: str) -> None:
    api.trouble.append(trouble)
    with pytest.raises(FetchFailed, match=words):
        await fetch("stripe", api, CUSTOMER)


async def test_the_field_of_the_object_is_missing(api: Objects) -> None:
    api.trouble.append(Reply(200, {"errors": []}))
    with pytest.raises(FetchFailed, match="without the field payment"):
        await fetch("square", api, event_of("square", "payment.updated", data__id="P1"))


async def test_a_silent_api_is_transient(api: Objects) -> None:
    api.trouble.append(HANG)
    with pytest.raises(FetchFailed, match=r"did not answer within 0.05 s"):
        await fetch("stripe", api, CUSTOMER, timeout=0.05)


async def test_no_listener_is_transient(api: Objects) -> None:
    with pytest.raises(FetchFailed, match="cannot be reached"):
        await fetch("stripe", api, CUSTOMER, base_url="http://127.0.0.1:9")


async def test_an_answer_without_end_is_cut_off(api: Objects) -> None:
    api.trouble.append(HUGE)
    with pytest.raises(Permanent, match=f"more than {fetcher.MAX_BYTES:,} bytes"):
        await fetch("stripe", api, CUSTOMER)


@pytest.mark.parametrize(
    ("headers", "least"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": "2.0"}, 2.0),  # as Shopify writes it
        ({"Retry-After": "0"}, 1.0),
        ({"Retry-After": "999999999"}, LONGEST_PAUSE),
        ({"Retry-After": "soon"}, fetcher.DEFAULT_PAUSE),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 1.0),
        ({}, fetcher.DEFAULT_PAUSE),
    ],
)
async def test_a_rate_limit_is_waited_for(api: Objects, headers: dict[str, str], least: float) -> None:
    """By this event, and without a request by all others until then."""
    api.trouble.append(Reply(429, {}, headers))
    stripe = made("stripe", api)
    with pytest.raises(Wait, match="too many requests") as waits:
        await stripe.fetch(stripe.prepare(CUSTOMER))
    assert least <= waits.value.after <= 1.25 * least
    with pytest.raises(Wait, match="asked for a pause"):
        stripe.prepare(CUSTOMER)
    assert len(api.asked) == 1


async def test_githubs_limit_is_a_403(api: Objects) -> None:
    event = Subject("issues.opened", {"issue": {"number": 7}, "repository": REPOSITORY})
    reset = int(time.time()) + 600
    api.trouble.append(Reply(403, {}, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(reset)}))
    with pytest.raises(Wait) as waits:
        await fetch("github", api, event)
    assert 590 <= waits.value.after <= 1.25 * 600


@pytest.mark.parametrize("status", [401, 403])
async def test_a_wrong_token_names_its_setting(api: Objects, status: int) -> None:
    api.trouble.append(Reply(status, {"error": {"message": f"Invalid API Key provided: {TOKEN}"}}))
    with pytest.raises(
        Permanent, match=rf"{status}.*token \(env:API_TOKEN\) in \[sources\.shop\.current\]"
    ) as failed:
        await fetch("stripe", api, CUSTOMER)
    assert TOKEN not in str(failed.value)


@pytest.mark.parametrize("status", [400, 402, 409, 422, 451])
async def test_another_status_is_permanent(api: Objects, status: int) -> None:
    api.trouble.append(Reply(status, {}))
    with pytest.raises(Permanent, match=f"answered {status} to {PATH}"):
        await fetch("stripe", api, CUSTOMER)


# ── redirects ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_below_the_configured_url_is_followed(api: Objects, status: int) -> None:
    """GitHub's way of saying that a repository was renamed."""
    event = Subject("issues.opened", {"issue": {"number": 7}, "repository": REPOSITORY})
    api.objects = {
        "/api/v3" + REPO + "/issues/7": Reply(status, {}, {"Location": f"{api.url}/api/v3/repositories/9/issues/7"}),
        "/api/v3/repositories/9/issues/7": {"number": 7},
    }
    assert await fetch("github", api, event, base_url=f"{api.url}/api/v3") == {"number": 7}
    assert [asked.headers["authorization"] for asked in api.asked] == [f"Bearer {TOKEN}"] * 2


@pytest.mark.parametrize(
    "place",
    ["https://evil.example/", "//evil.example/x", "http://127.0.0.1.evil.example/", "/elsewhere", "../../../../x", "{url}x",
     "{url}@evil.example/", "", "ftp://127.0.0.1/"],
)  # fmt: skip
async def test_a_redirect_elsewhere_gets_no_token(api: Objects, place: str) -> None:
    base = f"{api.url}/api/v3"
    api.objects = {f"/api/v3{PATH}": Reply(302, {}, {"Location": place.format(url=base)})}
    with pytest.raises(Permanent, match="redirects .* to another place|too many redirects"):
        await fetch("stripe", api, CUSTOMER, base_url=base)
    assert {asked.target for asked in api.asked} == {f"/api/v3{PATH}"}


async def test_redirects_come_to_an_end(api: Objects) -> None:
    api.objects = {PATH: Reply(302, {}, {"Location": PATH})}
    with pytest.raises(Permanent, match="too many redirects"):
        await fetch("stripe", api, CUSTOMER)
    assert len(api.asked) == 1 + fetcher.REDIRECTS


# ── gone ─────────────────────────────────────────────────────────────────────


async def test_an_object_that_is_gone_is_none(api: Objects) -> None:
    """Only if the token sees the event's account: for anything else many APIs answer 404, too."""
    api.objects = {f"/v1/events/{CUSTOMER.provider_id}": {"id": CUSTOMER.provider_id}}
    assert await fetch("stripe", api, CUSTOMER) is None
    assert api.targets == [PATH, f"/v1/events/{CUSTOMER.provider_id}"]


async def test_410_is_none(api: Objects) -> None:
    api.objects = {PATH: Reply(410, {})}
    assert await fetch("stripe", api, CUSTOMER) is None
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("provider", "kind"),
    [("github", "repository.deleted"), ("shopify", "orders/delete"), ("shopify", "products/delete"),
     ("hubspot", "contact.deletion"), ("hubspot", "contact.privacyDeletion"), ("square", "customer.deleted")],
)  # fmt: skip
async def test_the_event_itself_says_that_it_is_gone(api: Objects, provider: str, kind: str) -> None:
    assert await fetch(provider, api, Subject(kind, {"repository": REPOSITORY}, "5")) is None
    assert len(api.asked) == 1


async def test_a_404_of_another_account_deletes_nothing(api: Objects) -> None:
    """A token of test mode, or of another account, sees neither the object nor the event."""
    with pytest.raises(
        Permanent, match=r"another account; check token \(env:API_TOKEN\) in \[sources\.shop\.current\]"
    ):
        await fetch("stripe", api, CUSTOMER)


@pytest.mark.parametrize("trouble", [Reply(500, {}), Reply(429, {}), BAD])
async def test_a_404_whose_witness_does_not_answer_is_asked_again(api: Objects, trouble: Any) -> None:
    api.trouble.extend([None, trouble])
    with pytest.raises((FetchFailed, Wait)):
        await fetch("stripe", api, CUSTOMER)


@pytest.mark.parametrize(
    ("provider", "event", "witness", "mine", "other"),
    [
        ("square", Subject("payment.updated", {"merchant_id": "M1"}, "P1"), "/v2/merchants/me",
         {"merchant": {"id": "M1"}}, {"merchant": {"id": "M2"}}),
        ("hubspot", Subject("contact.creation", {"portalId": 33}, "5"), "/account-info/v3/details",
         {"portalId": 33}, {"portalId": 34}),
        ("shopify", Subject("products/update", {}, "5", "e", [("x-shopify-shop-domain", "made-up.myshopify.com")]),
         "/admin/api/2026-07/shop.json", {"shop": {"myshopify_domain": "made-up.myshopify.com"}},
         {"shop": {"myshopify_domain": "another.myshopify.com"}}),
    ],
)  # fmt: skip
async def test_a_404_counts_only_for_the_events_own_account(
    api: Objects, provider: str, event: Subject, witness: str, mine: Any, other: Any
) -> None:
    api.objects = {witness: mine}
    assert await fetch(provider, api, event) is None
    for wrong in (other, {}, {"merchant": None, "shop": [], "portalId": None}):
        api.objects = {witness: wrong}
        with pytest.raises(Permanent, match="of another account"):
            await fetch(provider, api, event)


@pytest.mark.parametrize(
    ("provider", "event", "answers"),
    [
        ("github", Subject("issues.edited", {"issue": {"number": 7}, "repository": REPOSITORY}), {REPO: {"id": 9}}),
        ("gitlab", event_of("gitlab", "Pipeline Hook", object_attributes__id=99), {"/api/v4/projects/4711": {"id": 1}}),
        ("paypal", Subject("PAYMENT.CAPTURE.DENIED", {"resource_type": "capture"}, "C1", "WH-1"),
         {"/v1/notifications/webhooks-events/WH-1": {"id": "WH-1"}}),
    ],
)  # fmt: skip
async def test_a_404_in_a_place_that_the_token_sees(
    api: Objects, provider: str, event: Subject, answers: dict[str, Any]
) -> None:
    api.objects = {"/v1/oauth2/token": ACCESS, **answers}
    assert await fetch(provider, api, event) is None
    api.objects = {"/v1/oauth2/token": ACCESS}
    with pytest.raises(Permanent, match="another account"):
        await fetch(provider, api, event)


async def test_an_old_order_of_a_shop_is_not_gone(api: Objects) -> None:
    """Without a further scope Shopify hides orders of more than 60 days."""
    api.objects = {"/admin/api/2026-07/shop.json": {"shop": {"myshopify_domain": "made-up.myshopify.com"}}}
    with pytest.raises(Permanent, match="also does for an object that this token does not see"):
        await fetch("shopify", api, Subject("orders/updated", {}, "5"))


async def test_a_404_of_a_repair(api: Objects) -> None:
    with pytest.raises(Permanent, match="nothing in the event tells"):
        await fetch("stripe", api, Subject(REPAIR, {"object": "cus_1", "type": None}, "cus_1", None))


# ── settings ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("provider", "current", "words"),
    [
        ("stripe", "sk_live_made_up", "env:NAME or file:/path, not the credential itself"),
        ("stripe", {"token": "sk_live_made_up"}, "not the credential itself"),
        ("stripe", {"token": "env:"}, "not the credential itself"),
        ("stripe", {"tokn": "env:X"}, "unknown key current.tokn: did you mean current.token?"),
        ("stripe", {}, "token missing: Stripe needs a secret key"),
        ("stripe", {"token": "env:X", "shop": "a.myshopify.com"}, "Stripe does not use shop: remove it"),
        ("stripe", {"token": "env:X", "client_id": "env:Y"}, "Stripe does not use client_id"),
        ("stripe", {"token": "env:X", "base_url": "http://api.stripe.com"}, "base_url must be https"),
        ("stripe", {"token": "env:X", "base_url": "https://user:pw@api.stripe.com"}, "neither query nor user"),
        ("stripe", {"token": "env:X", "base_url": "https://api.stripe.com?x=1"}, "neither query nor user"),
        ("stripe", {"token": "env:X", "api_version": "../x"}, "is not a version"),
        ("stripe", {"token": "env:X", "timeout": 0}, "timeout must be"),
        ("hubspot", {"token": "env:X", "api_version": "v4"}, "HubSpot does not use api_version"),
        ("shopify", "env:X", "shop must be NAME.myshopify.com"),
        ("shopify", {"token": "env:X", "shop": "evil.example"}, "shop must be NAME.myshopify.com"),
        ("paypal", "env:X", "client_id and client_secret missing"),
        ("twilio", "env:X", "Twilio has no ready-made fetcher: .*@source.current"),
    ],
)  # fmt: skip
def test_useless_settings(provider: str, current: Any, words: str) -> None:
    url = {"public_url": "https://hooks.example.com/x"} if find(provider).needs_public_url else {}
    with pytest.raises(ConfigError, match=f"source 'shop': .*{words}"):
        Inbox().source("shop", provider=provider, secrets=["x" * 32], current=current, **url)


def test_two_ways_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Inbox().source("shop", provider="stripe", secrets=["x" * 32], current="env:STRIPE_API_KEY")
    with pytest.raises(ConfigError, match="declared twice"):
        source.current(lambda event: None)


def test_a_missing_token_is_found_when_the_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before: a receiver does without it."""
    monkeypatch.delenv("STRIPE_API_KEY", raising=False)
    inbox = Inbox()
    inbox.source("shop", provider="stripe", secrets=["x" * 32], current="env:STRIPE_API_KEY")
    assert inbox.currents.problems() == [
        "source 'shop': event.current() will fail: the token in environment variable STRIPE_API_KEY is not set: set it "
        "and start again"
    ]
    monkeypatch.setenv("STRIPE_API_KEY", "made up")
    assert inbox.currents.problems() == []


async def test_a_token_that_no_header_can_hold(api: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("with\nnewline", "mit-ümlaut", "zero\x00"[:4] + "\t"):
        monkeypatch.setenv("API_TOKEN", token)
        with pytest.raises(ConfigError, match="characters that a header cannot hold") as failed:
            await fetch("stripe", api, CUSTOMER)
        assert token not in str(failed.value)
    assert api.asked == []


def test_the_token_is_in_no_repr() -> None:
    assert "env:" not in repr(CurrentSettings(token="env:SECRET_PLACE"))


async def test_a_cancelled_fetch_leaves_nothing_behind(api: Objects) -> None:
    api.trouble.append(HANG)
    stripe = made("stripe", api)
    task = asyncio.create_task(stripe.fetch(stripe.prepare(CUSTOMER)))
    while not api.asked:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
