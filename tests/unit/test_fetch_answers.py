"""What each answer of a provider's API means for the event; and the settings of fetchers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookledger import ConfigError, CurrentSettings, FetchFailed, Inbox, Permanent, Wait
from hookledger.model import REPAIR
from hookledger.providers.catalogue import find
from hookledger.providers.fetching import fetcher
from hookledger.providers.fetching.fetcher import LONGEST_PAUSE
from tests.services.objects import BAD, CUT, HANG, HUGE, Objects, Reply
from tests.unit.fetching import ACCESS, REPO, REPOSITORY, TOKEN, Subject, event_of, fetch, made, running
from tests.unit.https_server import Server, answer, contexts


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    with running(monkeypatch) as one:
        yield one


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
    [
        (BAD, "no JSON"),
        (CUT, "cannot be reached"),
        (Reply(200, []), "something else"),
        (Reply(200, b""), "no JSON"),
        (Reply(204, b""), "no JSON"),
        (Reply(200, b"[" * 100_000), "no JSON"),
        (Reply(200, b"\xff"), "no JSON"),
    ],
)
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


async def test_tls_is_verified(api: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose certificate nothing vouches for gets no request; one that the context trusts does."""
    serving, trusting = contexts(tmp_path, ["localhost"])
    server = Server()
    server.answer = answer(b'{"id": "cus_1"}')
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=serving)
    base = f"https://localhost:{listening.sockets[0].getsockname()[1]}"
    stripe = made("stripe", api, base_url=base)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "no such file"))  # the environment changes no trust
    async with listening:
        with pytest.raises(FetchFailed, match="cannot be reached"):
            await stripe.fetch(stripe.prepare(CUSTOMER))
        assert server.asked == []
        stripe._client._context = trusting
        assert await stripe.fetch(stripe.prepare(CUSTOMER)) == {"id": "cus_1"}
    assert len(server.asked) == 1


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
        ({"Retry-After": "31536000"}, LONGEST_PAUSE),
        ({"Retry-After": "soon"}, fetcher.DEFAULT_PAUSE),
        ({"Retry-After": "-5"}, fetcher.DEFAULT_PAUSE),
        ({"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}, LONGEST_PAUSE),
        ({"Retry-After": "Fri, 01 Jan 99999999999999999999 00:00:00 GMT"}, fetcher.DEFAULT_PAUSE),
        ({"Retry-After": "Fri, 01 Jan 2100 00:00:00 +99999999999999999999"}, fetcher.DEFAULT_PAUSE),
        ({"Retry-After": "Fri, 01 Jan 2100 00:00:00 -0000"}, fetcher.DEFAULT_PAUSE),
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
    [
        "https://evil.example/",
        "//evil.example/x",
        "http://127.0.0.1.evil.example/",
        "/elsewhere",
        "../../../../x",
        "{url}/../../x",
        "{url}/%2e%2e/x",
        "http://a]b/",
        "//[",
        "{url}x",
        "{url}@evil.example/",
        "",
        "ftp://127.0.0.1/",
    ],
)
async def test_a_redirect_elsewhere_gets_no_token(api: Objects, place: str) -> None:
    base = f"{api.url}/api/v3"
    api.objects = {f"/api/v3{PATH}": Reply(302, {}, {"Location": place.format(url=base)})}
    with pytest.raises(Permanent, match=r"redirects .* to another place|too many redirects"):
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
    [
        ("github", "repository.deleted"),
        ("shopify", "orders/delete"),
        ("shopify", "products/delete"),
        ("hubspot", "contact.deletion"),
        ("hubspot", "contact.privacyDeletion"),
        ("square", "customer.deleted"),
    ],
)
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
        (
            "square",
            Subject("payment.updated", {"merchant_id": "M1"}, "P1"),
            "/v2/merchants/me",
            {"merchant": {"id": "M1"}},
            {"merchant": {"id": "M2"}},
        ),
        (
            "hubspot",
            Subject("contact.creation", {"portalId": 33}, "5"),
            "/account-info/v3/details",
            {"portalId": 33},
            {"portalId": 34},
        ),
        (
            "shopify",
            Subject("products/update", {}, "5", "e", [("x-shopify-shop-domain", "made-up.myshopify.com")]),
            "/admin/api/2026-07/shop.json",
            {"shop": {"myshopify_domain": "made-up.myshopify.com"}},
            {"shop": {"myshopify_domain": "another.myshopify.com"}},
        ),
    ],
)
async def test_a_404_counts_only_for_the_events_own_account(
    api: Objects, provider: str, event: Subject, witness: str, mine: Any, other: Any
) -> None:
    api.objects = {witness: mine}
    assert await fetch(provider, api, event) is None
    wrongs: list[Any] = [other, {}, {"merchant": None, "shop": [], "portalId": None}]
    for wrong in wrongs:
        api.objects = {witness: wrong}
        with pytest.raises(Permanent, match="of another account"):
            await fetch(provider, api, event)


@pytest.mark.parametrize(
    ("provider", "event", "answers"),
    [
        ("github", Subject("issues.edited", {"issue": {"number": 7}, "repository": REPOSITORY}), {REPO: {"id": 9}}),
        (
            "gitlab",
            event_of("gitlab", "Pipeline Hook", object_attributes__id=99),
            {"/api/v4/projects/4711": {"id": 1}},
        ),
        (
            "paypal",
            Subject("PAYMENT.CAPTURE.DENIED", {"resource_type": "capture"}, "C1", "WH-1"),
            {"/v1/notifications/webhooks-events/WH-1": {"id": "WH-1"}},
        ),
    ],
)
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
)
def test_useless_settings(provider: str, current: Any, words: str) -> None:
    url: dict[str, Any] = {"public_url": "https://hooks.example.com/x"} if find(provider).needs_public_url else {}
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
        "source 'shop': event.current() will fail: the token in environment variable STRIPE_API_KEY is not set: set "
        "it and start again"
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
