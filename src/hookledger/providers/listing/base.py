"""The protocol of listers, and their settings."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, time
from typing import Protocol

from msgspec import Struct

from ...clock import Seconds
from ...errors import ConfigError

_AT = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


class Content(Struct, frozen=True):
    """The request of a delivery, as far as the provider still has it."""

    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Listed(Struct, frozen=True, kw_only=True):
    """One event in a provider's log, as it would be delivered."""

    body: bytes | None = None
    """None if `load` must fetch it. Without both, the event is rejected."""
    headers: tuple[tuple[str, str], ...] = ()
    """The headers with its key, type and time; names in any case."""
    id: str = ""
    """The provider's id, for display."""
    at: datetime | None = None
    """When it happened or was sent, as the provider says."""
    load: Callable[[], Awaitable[Content]] | None = None
    """Fetches its content; called only if the event is missing here. Raises ContentGone if the provider has none."""
    resend: Callable[[], Awaitable[None]] | None = None
    """Makes the provider redeliver it, if it can."""


class Changed(Struct, frozen=True, kw_only=True):
    """An object that changed, from a provider without a log of events: Hookledger can only check whether an event
    about it has arrived since."""

    object_id: str
    """As the provider's events name it."""
    at: datetime
    type: str = ""
    """The object's type, for display."""


Entry = Listed | Changed


class Lister(Protocol):
    """Yields everything that the provider sent from `since` to `until`, in any order; duplicates are allowed.

    An async generator function of these two parameters is a lister. It raises ListingFailed if it cannot continue. A
    lister that yields only `Changed` has an attribute `lists_events` that is False: then the comparison does not
    report events that the provider does not list.
    """

    def __call__(self, since: datetime, until: datetime, /) -> AsyncIterator[Entry]: ...


class ReconcileSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[sources.NAME.reconcile]`: the provider's own log, and when to compare with it."""

    token: str | None = None
    """The API's credential: `env:NAME`, `file:/path` or the token itself; read again for each request."""
    base_url: str | None = None
    """URL of the API; default: the provider's."""
    api_version: str | None = None
    """Version of the API: Stripe's `Stripe-Version` (events keep the version in which they were created), GitHub's
    `X-GitHub-Api-Version`, Shopify's in the path."""
    repository: str | None = None
    """GitHub: `OWNER/NAME`, for a repository's webhook."""
    organization: str | None = None
    """GitHub: its name, for an organization's webhook. Without both, the webhook is an app's."""
    hook: int | None = None
    """GitHub: the webhook's number; none for an app's."""
    app_id: str | None = None
    """Svix: id or uid of the application whose messages this source receives."""
    shop: str | None = None
    """Shopify: `NAME.myshopify.com`."""
    resources: tuple[str, ...] = ("orders",)
    """Shopify: the connections of its Admin API to compare, such as `orders`, `products`, `customers`."""
    at: str | None = None
    """Time of the daily comparison, in UTC, such as `03:00`; default: no daily comparison."""
    look_back: Seconds = Seconds("48h")
    """How far back a comparison goes by default."""

    def __post_init__(self) -> None:
        if self.at is not None and _AT.fullmatch(self.at) is None:
            raise ConfigError(f"reconcile: at must be a UTC time such as 03:00, not {self.at!r}")
        if self.look_back < 60:
            raise ConfigError("reconcile: look_back must be at least a minute")

    def __repr__(self) -> str:
        return f"ReconcileSettings(at={self.at}, look_back={self.look_back})"  # not the token

    @property
    def time(self) -> time | None:
        return None if self.at is None else time.fromisoformat(self.at)
