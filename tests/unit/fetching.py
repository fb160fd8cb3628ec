"""Fetchers, and events for them in the providers' own shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Struct

from hookledger import CurrentSettings
from hookledger.providers.catalogue import find
from hookledger.providers.fetching.fetcher import ReadyFetcher
from hookledger.providers.fields import Body, exact
from hookledger.providers.sample import sample
from hookledger.receive.secrets import text_of
from tests.services import objects as service
from tests.services.objects import Objects

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


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    """A provider's API, and the credentials for it in the environment."""
    monkeypatch.setenv("API_TOKEN", TOKEN)
    monkeypatch.setenv("API_USER", "made_up_client")
    with service.running() as api:
        yield api


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


REPO = "/repos/octo-org/hello"
REPOSITORY = {"id": 9, "name": "hello", "full_name": "x/y", "owner": {"login": "octo-org"}}
ACCESS = {"access_token": "access_1", "token_type": "Bearer", "expires_in": 32400, "scope": "made up"}
"""PayPal's answer to client credentials."""
