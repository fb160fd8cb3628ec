"""What a lister is, and what it is configured with."""

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
    """The request that a delivery would have been, as far as the provider still has it."""

    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Listed(Struct, frozen=True, kw_only=True):
    """One event in a provider's log, as it would be delivered."""

    body: bytes | None = None
    """None where it must be asked for by itself: see `load`. With neither, it is refused."""
    headers: tuple[tuple[str, str], ...] = ()
    """Those that its key, type and time are read from; names in any case."""
    id: str = ""
    """What the provider calls it, for people."""
    at: datetime | None = None
    """When the provider says that it happened, or was sent."""
    load: Callable[[], Awaitable[Content]] | None = None
    """Fetches the rest of it; asked only where it is missing here. Raises ContentGone where the provider has none."""
    resend: Callable[[], Awaitable[None]] | None = None
    """Has the provider deliver it again, where it can."""


class Changed(Struct, frozen=True, kw_only=True):
    """An object that changed, from a provider that has no log of events: all that can be told is whether any event
    about it came since then."""

    object_id: str
    """As the provider's events name it."""
    at: datetime
    type: str = ""
    """Of what kind it is, for people."""


Entry = Listed | Changed


class Lister(Protocol):
    """Everything that the provider sent from `since` to `until`, in any order, an event once or more often.

    An async generator function of these two is a lister. Raises ListingFailed where it cannot go on. One that yields
    only `Changed` has an attribute `lists_events` that is False: then nothing here is called unknown there.
    """

    def __call__(self, since: datetime, until: datetime, /) -> AsyncIterator[Entry]: ...


class ReconcileSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[sources.NAME.reconcile]`: the provider's own log, and when to compare with it."""

    token: str | None = None
    """The API's credential: `env:NAME`, `file:/path` or the token itself; read anew for each request."""
    base_url: str | None = None
    """Where the API is; the provider's own address if none."""
    api_version: str | None = None
    """Of the API: Stripe's `Stripe-Version` (its events stay in the version they were made in), GitHub's
    `X-GitHub-Api-Version`, Shopify's in the path."""
    repository: str | None = None
    """GitHub: `OWNER/NAME`, for the webhook of a repository."""
    organization: str | None = None
    """GitHub: its name, for the webhook of an organization. With neither, the webhook is an app's."""
    hook: int | None = None
    """GitHub: the webhook's number; none for an app's."""
    app_id: str | None = None
    """Svix: the id or uid of the application whose messages come here."""
    shop: str | None = None
    """Shopify: `NAME.myshopify.com`."""
    resources: tuple[str, ...] = ("orders",)
    """Shopify: the connections of its Admin API to look at, such as `orders`, `products`, `customers`."""
    at: str | None = None
    """Compare every day at this time, in UTC, such as `03:00`; never by itself if none."""
    look_back: Seconds = Seconds("48h")
    """How far back a comparison goes that names no time."""

    def __post_init__(self) -> None:
        if self.at is not None and _AT.fullmatch(self.at) is None:
            raise ConfigError(f"reconcile: at is a time such as 03:00, in UTC, not {self.at!r}")
        if self.look_back < 60:
            raise ConfigError("reconcile: look_back is at least a minute")

    def __repr__(self) -> str:
        return f"ReconcileSettings(at={self.at}, look_back={self.look_back})"  # not the token

    @property
    def time(self) -> time | None:
        return None if self.at is None else time.fromisoformat(self.at)
