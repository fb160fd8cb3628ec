"""A source's settings of how to fetch the current state."""

from __future__ import annotations

import re

from msgspec import Struct

from ...clock import Seconds
from ...errors import ConfigError

_VERSION = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PLACE = re.compile(r"(env|file):.+", re.DOTALL)


class CurrentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sources.NAME.current]`: how `event.current()` fetches an object from the provider's API."""

    token: str | None = None
    """The API's credential: `env:NAME` or `file:/path`; read again for each request. `current = "env:NAME"` is short
    for a table with only this key."""
    client_id: str | None = None
    """PayPal: the app's client id, as `env:NAME` or `file:/path`."""
    client_secret: str | None = None
    """PayPal: the app's secret, as `env:NAME` or `file:/path`."""
    base_url: str | None = None
    """URL of the API; default: the provider's. For a sandbox, GitHub Enterprise Server
    (`https://HOST/api/v3`) or your own GitLab (`https://HOST`)."""
    api_version: str | None = None
    """Version of the API: Stripe's `Stripe-Version`, GitHub's `X-GitHub-Api-Version`, Square's `Square-Version`,
    Shopify's in the path. Set that of your webhook, so that objects have the shape of its events."""
    shop: str | None = None
    """Shopify: `NAME.myshopify.com`."""
    query: dict[str, str] = {}
    """Parameters of each request, such as `{ "expand[]" = "customer" }` for Stripe or
    `{ properties = "email,lifecyclestage" }` for HubSpot."""
    timeout: Seconds = Seconds("10s")
    """How long a request may take."""

    def __post_init__(self) -> None:
        for name in ("token", "client_id", "client_secret"):
            place = getattr(self, name)
            if place is not None and _PLACE.fullmatch(place) is None:
                raise ConfigError(f"current: {name} must be env:NAME or file:/path, not the credential itself")
        if self.api_version is not None and _VERSION.fullmatch(self.api_version) is None:
            raise ConfigError(f"current: {self.api_version!r} is not a version: write one such as 2022-11-28")
        if not 0 < self.timeout <= 300:
            raise ConfigError("current: timeout must be more than 0 and at most 5 minutes")

    def __repr__(self) -> str:
        return f"CurrentSettings(base_url={self.base_url!r}, shop={self.shop!r})"


def current_settings(given: str | CurrentSettings) -> CurrentSettings:
    """Return the settings; a text is the token's place."""
    return CurrentSettings(token=given) if isinstance(given, str) else given
