"""The ready-made listers, against a server that speaks the providers' shapes, and breaks as they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hookledger.errors import ConfigError, ListingFailed
from hookledger.providers.catalogue import find
from hookledger.providers.listing import http
from hookledger.providers.listing.base import Changed, Lister, ReconcileSettings
from hookledger.providers.listing.http import Api
from hookledger.providers.listing.ready import lister
from tests.services import apis as service
from tests.services.apis import BAD, HUGE, LOOP, TOKEN, Apis

SECRET = "made_up_github_secret"
FIELDS: dict[str, dict[str, Any]] = {
    "stripe": {},
    "github": {"repository": "octocat/hello-world", "hook": 7},
    "svix": {"app_id": "app_1"},
    "shopify": {"shop": "made-up.myshopify.com"},
}
PROVIDERS = tuple(FIELDS)


@pytest.fixture
def apis() -> Iterator[Apis]:
    with service.running() as running:
        yield running


def made(provider: str, apis: Apis, *, token: str = TOKEN, **more: Any) -> Lister:
    settings = ReconcileSettings(**{"token": token, "base_url": apis.url, **FIELDS[provider], **more})
    found = lister(find(provider), settings, lambda: token)
    assert found is not None
    found.api._first = 0.001  # type: ignore[attr-defined]
    if provider == "shopify":
        found.pause = 0.001  # type: ignore[attr-defined]
    return found


async def everything(found: Lister, hours: float = 24) -> list[Any]:
    until = datetime.now(UTC)
    return [entry async for entry in found(until - timedelta(hours=hours), until)]


def names(entries: list[Any]) -> list[str]:
    return [entry.object_id if isinstance(entry, Changed) else entry.id for entry in entries]


def fill(apis: Apis, provider: str, number: int) -> list[str]:
    """So many events of the last hour, and one of last week; the names of the former, the newest first."""
    now, week = time.time(), 7 * 86400
    for n in range(number + 1):
        at = now - week if n == 0 else now - 3600 + n
        match provider:
            case "stripe":
                apis.sent_by_stripe(f"evt_{n}", at=at)
            case "github":
                apis.sent_by_github(n, {"n": n}, SECRET, at=at)
            case "svix":
                apis.sent_by_svix(f"msg_{n}", {"type": "test", "n": n}, at=at)
            case _ if n:
                apis.changed_at_shopify(n, at=at)
    match provider:
        case "stripe":
            return [event["id"] for event in apis.stripe[:number]]
        case "github":
            return [delivery["guid"] for delivery in apis.github[:number]]
        case "svix":
            return [message["id"] for message in apis.svix[:number]]
    return [order["id"] for order in apis.shopify]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_page_and_nothing_before_the_window(apis: Apis, provider: str) -> None:
    apis.page = 3
    sent = fill(apis, provider, 7)
    assert names(await everything(made(provider, apis))) == sent


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_empty_log(apis: Apis, provider: str) -> None:
    assert await everything(made(provider, apis)) == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_wrong_token_is_reported_immediately(apis: Apis, provider: str) -> None:
    with pytest.raises(ListingFailed, match=r"401.*token") as failed:
        await everything(made(provider, apis, token="another_token"))
    assert len(apis.asked) == 1
    assert "another_token" not in str(failed.value)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("trouble", [429, 500, 503])
async def test_a_busy_provider_is_asked_again(apis: Apis, provider: str, trouble: int) -> None:
    """In the middle of the log: nothing is left out, and nothing comes twice."""
    apis.page, apis.retry_after = 2, "0"
    sent = fill(apis, provider, 5)
    apis.trouble.extend([None, trouble, trouble])
    assert names(await everything(made(provider, apis))) == sent


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_dead_provider_ends_it(apis: Apis, provider: str) -> None:
    apis.page = 2
    fill(apis, provider, 5)
    apis.trouble.extend([None, *[502] * http.TRIES])
    with pytest.raises(ListingFailed, match=f"answered 502, {http.TRIES} times"):
        await everything(made(provider, apis))


async def test_a_long_pause_is_not_slept_through(apis: Apis) -> None:
    apis.retry_after = "3600"
    apis.trouble.append(429)
    with pytest.raises(ListingFailed, match="pause of 3600 s"):
        await everything(made("stripe", apis))


async def test_githubs_own_limit(apis: Apis) -> None:
    """It answers 403, and says when to come back; any other 403 is final."""
    apis.retry_after = "0"
    sent = fill(apis, "github", 1)
    apis.trouble.append(403)
    assert names(await everything(made("github", apis))) == sent
    apis.retry_after = None
    apis.trouble.append(403)
    with pytest.raises(ListingFailed, match="403"):
        await everything(made("github", apis))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_is_no_json(apis: Apis, provider: str) -> None:
    fill(apis, provider, 1)
    apis.trouble.append(BAD)
    with pytest.raises(ListingFailed, match="unreadable"):
        await everything(made(provider, apis))


@pytest.mark.parametrize("provider", ["stripe", "github", "svix"])
async def test_a_log_that_leads_back_to_itself(apis: Apis, provider: str) -> None:
    apis.page = 2
    fill(apis, provider, 3)
    apis.trouble.extend([LOOP] * 10)
    with pytest.raises(ListingFailed, match="repeats a page"):
        await everything(made(provider, apis))
    assert len(apis.asked) <= 3


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_log_without_end(apis: Apis, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages are all new ones, and there is always one more."""
    monkeypatch.setattr(http, "MOST_PAGES", 3)
    apis.page = 2
    fill(apis, provider, 20)
    with pytest.raises(ListingFailed, match="more than 3 pages"):
        await everything(made(provider, apis))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_without_end(apis: Apis, provider: str) -> None:
    found = made(provider, apis)
    found.api._max_bytes = 1_000_000  # type: ignore[attr-defined]
    apis.trouble.append(HUGE)
    with pytest.raises(ListingFailed, match="more than 1,000,000 bytes"):
        await everything(found)


async def test_a_silent_provider(apis: Apis) -> None:
    found = made("stripe", apis)
    found.api._timeout = 0.05  # type: ignore[attr-defined]
    apis.trouble.extend([service.HANG] * http.TRIES)
    with pytest.raises(ListingFailed, match="did not answer"):
        await everything(found)


async def test_a_redirect_gets_no_credential(apis: Apis) -> None:
    apis.trouble.append(307)
    with pytest.raises(ListingFailed, match="redirects are not followed"):
        await everything(made("stripe", apis))
    assert len(apis.asked) == 1


async def test_no_listener(apis: Apis) -> None:
    found = made("stripe", apis, base_url="http://127.0.0.1:9")
    with pytest.raises(ListingFailed, match="cannot be reached"):
        await everything(found)


async def test_githubs_payload_is_fetched_separately(apis: Apis) -> None:
    """Only when somebody wants it; and the redelivery of one that is listed already is no second entry."""
    body = apis.sent_by_github(1, {"ref": "refs/heads/main", "note": "ä"}, SECRET)
    apis.github.insert(0, {**apis.github[0], "id": 2, "redelivery": True})
    [entry] = await everything(made("github", apis))
    assert apis.asked == ["GET /repos/octocat/hello-world/hooks/7/deliveries"]
    content = await entry.load()
    assert content.body == body
    assert dict(content.headers)["x-github-event"] == "push"
    await entry.resend()
    assert apis.resent == [2], "the newest attempt stands for the event"


async def test_shopify_throttles_with_200(apis: Apis) -> None:
    with pytest.raises(ListingFailed, match="rejected the query"):
        await everything(made("shopify", apis, resources=["nonsense"]))


@pytest.mark.parametrize(
    ("provider", "fields", "words"),
    [
        ("github", {"repository": "octocat/hello-world", "hook": None}, "hook is"),
        ("github", {"repository": "octocat", "hook": 1}, "OWNER/NAME"),
        ("github", {"repository": "a/b", "organization": "c", "hook": 1}, "set one of them"),
        ("github", {"repository": None, "hook": 1}, "needs its repository"),
        ("github", {"repository": "../x", "hook": 1}, "OWNER/NAME"),
        ("svix", {"app_id": ""}, "app_id"),
        ("shopify", {"shop": "evil.example"}, "myshopify"),
        ("shopify", {"shop": "a.myshopify.com", "resources": ["orders{id}"]}, "resources"),
        ("stripe", {"base_url": "http://api.stripe.com"}, "https"),
        ("stripe", {"base_url": "ftp://127.0.0.1"}, "https"),
    ],
)
def test_useless_settings(apis: Apis, provider: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(provider, apis, **fields)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"repository": None, "organization": "github", "hook": 3}, "/orgs/github/hooks/3/deliveries"),
        ({"repository": None, "hook": None}, "/app/hook/deliveries"),
    ],
)
async def test_other_hooks_of_github(apis: Apis, fields: dict[str, Any], path: str) -> None:
    await everything(made("github", apis, **fields))
    assert apis.asked == [f"GET {path}"]


@pytest.mark.parametrize("at", ["3:00", "24:00", "03:60", "3am", ""])
def test_a_time_of_day(at: str) -> None:
    with pytest.raises(ConfigError, match="03:00"):
        ReconcileSettings(at=at)


def test_the_token_is_in_no_repr() -> None:
    assert TOKEN not in repr(ReconcileSettings(token=TOKEN))


async def test_a_cancelled_listing_leaves_nothing_behind(apis: Apis) -> None:
    api = Api(apis.url, {"authorization": "Bearer {token}"}, lambda: TOKEN)
    apis.trouble.append(service.HANG)
    task = asyncio.create_task(api.get("/v1/events"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
