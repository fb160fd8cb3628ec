"""One request to a provider's API: limited in time and size, with a configured host, and no redirect followed.

Listers and fetchers share it; each decides what a status means and whether to ask again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import ConfigError

if TYPE_CHECKING:
    import ssl

Parameters = Sequence[tuple[str, str | int]]
_SHOP = re.compile(r"[a-z0-9][a-z0-9-]*\.myshopify\.com")


class Outgoing(Struct, frozen=True, kw_only=True):
    """A request; the client adds the host, and what all requests have."""

    method: str = "GET"
    path: str
    headers: Mapping[str, str]
    parameters: Parameters = ()
    content: bytes | None = None


class Answer(Struct, frozen=True):
    """A response; the names of its headers are lower-case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Unreachable(Exception):
    """There was no response, or not all of it: the next request may get one."""


class Unusable(Exception):
    """The request cannot be sent, or its response is too large: the next one would be the same."""


class Client:
    """Sends requests to one host. `what` is the table of the settings that named it, for errors."""

    def __init__(self, base_url: str, *, what: str, timeout: float, max_bytes: int) -> None:
        parts = urlsplit(base_url)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
            raise ConfigError(f"{what}: base_url must be https://HOST, because it gets the token, not {base_url!r}")
        if parts.query or parts.fragment or parts.username is not None:
            raise ConfigError(f"{what}: base_url must have neither query nor user: write https://HOST")
        self._base = base_url.rstrip("/")
        self._what = what
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._context: ssl.SSLContext | Literal[False] | None = None

    @property
    def host(self) -> str:
        return urlsplit(self._base).hostname or ""

    async def request(self, sent: Outgoing) -> Answer:
        """Return the response, whatever its status. Raises Unreachable or Unusable; no message quotes a header."""
        try:
            import httpx2
        except ImportError:
            raise ConfigError(f"{self._what} needs the extra server: pip install 'hookledger[server]'") from None

        if self._context is None:  # created once: slower than most responses
            self._context = httpx2.create_ssl_context(trust_env=False) if self._base.startswith("https:") else False
        if not all(value.isascii() and value.isprintable() for value in sent.headers.values()):
            raise ConfigError(f"{self._what}: the token has characters that a header cannot hold: check it")
        headers = {**sent.headers, "accept-encoding": "identity", "user-agent": "hookledger"}
        try:
            async with (
                asyncio.timeout(self._timeout),
                httpx2.AsyncClient(
                    verify=self._context, follow_redirects=False, timeout=self._timeout, trust_env=False
                ) as client,
                client.stream(
                    sent.method,
                    self._base + sent.path,
                    params=list(sent.parameters) or None,
                    content=sent.content,
                    headers=headers,
                ) as response,
            ):
                received = bytearray()
                async for chunk in response.aiter_raw():
                    received += chunk
                    if len(received) > self._max_bytes:
                        raise Unusable(f"{self.host} sent more than {self._max_bytes:,} bytes")
                return Answer(response.status_code, dict(response.headers), bytes(received))
        except TimeoutError:
            raise Unreachable(f"{self.host} did not answer within {self._timeout:g} s") from None
        except httpx2.InvalidURL as error:
            raise Unusable(f"{sent.path} cannot be requested: {error}") from None
        except (
            httpx2.HTTPError,
            httpx2.StreamError,
            OSError,
        ) as error:  # without their messages, which may quote headers
            raise Unreachable(f"{self.host} cannot be reached: {type(error).__name__}") from None


def shop_url(shop: str | None, what: str) -> str:
    """Return the URL of a shop at Shopify, from the settings' table `what`."""
    if not shop or _SHOP.fullmatch(shop) is None:
        raise ConfigError(f"{what}: shop must be NAME.myshopify.com")
    return f"https://{shop}"


def is_rate_limit(answer: Answer) -> bool:
    """Whether the client sent too many requests: GitHub may answer 403 then."""
    if answer.status == 429:
        return True
    return answer.status == 403 and (
        "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"
    )


def pause(answer: Answer) -> float | None:
    """Return how many seconds the API asks to wait; None if it does not say."""
    given = answer.headers.get("retry-after")
    if given is None:
        return _until_reset(answer.headers)
    if given.isascii() and given.replace(".", "", 1).isdecimal():  # Shopify's has a decimal point
        return float(given[:9])
    try:
        return max(0.0, (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):  # the last for a year, or a zone, of many digits
        return None


def _until_reset(headers: Mapping[str, str]) -> float | None:
    """GitHub's and GitLab's way: the time at which the limit starts again."""
    for prefix in ("x-ratelimit", "ratelimit"):
        until = headers.get(f"{prefix}-reset", "")
        if headers.get(f"{prefix}-remaining") == "0" and until.isascii() and until.isdecimal():
            return max(0.0, float(until[:12]) - datetime.now(UTC).timestamp())
    return None
