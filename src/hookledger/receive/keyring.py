"""Fetch the keys and certificates that providers publish, when a request first needs them, and cache them.

Anyone can cause a fetch, by naming a URL that a contract allows or a key id that does not exist. So failures are
cached, newer keys are fetched at most once a minute, and unknown keys have a budget (`key_budget.py`). The database
keeps keys that verified a request (`kept_keys.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..errors import Unauthentic, Unavailable
from ..providers.schemes.base import KeyNeeded, Where
from ..store.ops.published import PublishedKey
from .key_budget import KeyBudget

if TYPE_CHECKING:
    import ssl

log: logging.Logger = logging.getLogger(__name__)

TIMEOUT = 5.0
MAX_BYTES = 64 * 1024
MAX_ENTRIES = 256
LONGEST = 86400.0
"""Seconds that a certificate is cached, and a key set at most; and how much longer while it cannot be renewed."""
SHORTEST = 300.0
FAILURE = 30.0
"""Seconds that a failure is cached."""
AGAIN = 60.0
"""Seconds that a fetched key counts as the newest."""

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?(\d{1,9})", re.ASCII | re.IGNORECASE)


class _Entry(Struct):
    content: bytes
    fetched_at: float
    fresh_until: float
    provider: str = ""


class _Failure(Struct, frozen=True):
    until: float
    message: str
    reason: str | None = None
    """Why requests with this key are rejected; None: the key may be available later."""

    def error(self) -> Exception:
        if self.reason is not None:
            return Unauthentic(self.reason, self.message)
        return Unavailable(self.message).because("keys")


class Fetched:
    """A keyring that fetches over HTTPS. One per inbox; callers on one event loop share its fetches.

    `connect` maps a host to another address and port, like /etc/hosts, and `verify` sets the trusted TLS
    certificates: for tests and for networks with a gateway. TLS still verifies the host's name.
    """

    def __init__(
        self,
        *,
        trust_env: bool = False,
        connect: Mapping[str, tuple[str, int]] | None = None,
        verify: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self._trust_env = trust_env
        self._connect = {} if connect is None else connect
        self._context = verify
        self._timeout = timeout
        self._clock = clock
        self._entries: OrderedDict[Where, _Entry] = OrderedDict()
        self._failures: OrderedDict[Where, _Failure] = OrderedDict()
        self._flights: dict[tuple[asyncio.AbstractEventLoop, Where], asyncio.Task[None]] = {}
        self._budget = KeyBudget(clock, chance)
        self._restored: dict[bytes, _Entry] = {}
        self._proved: OrderedDict[Where, None] = OrderedDict()
        self._unsaved: OrderedDict[Where, None] = OrderedDict()

    def get(self, where: Where) -> bytes:
        """Return what was fetched from there; raise KeyNeeded if it must be fetched first, or again."""
        entry = self._entry(where)
        if entry is None or not self._usable(where, entry):
            raise KeyNeeded(where)
        with contextlib.suppress(KeyError):  # the operator's thread reads, too
            self._entries.move_to_end(where)
        return entry.content

    async def fetch(self, where: Where, *, provider: str = "", again: bool = False, who: str = "") -> None:
        """Fetch it if needed, so that `get` finds it. `again`: fetch it even if `get` has an older one. `provider`, a
        contract's name, and the client `who` have budgets.

        Raises Unavailable if the provider cannot be reached, Unauthentic if it has no such key. Concurrent callers
        share one fetch, which continues if one of them is cancelled.
        """
        mine = asyncio.get_running_loop(), where
        flight = self._flights.get(mine)
        if flight is None and self._due(where, again):
            self._spend(where, provider, who)
            flight = self._flights[mine] = asyncio.create_task(self._load(where, provider))
            flight.add_done_callback(lambda _: self._flights.pop(mine, None))
        if flight is not None:
            try:
                await asyncio.shield(flight)
            except asyncio.CancelledError:
                if flight.cancelled():  # by `close`; otherwise this caller is cancelled
                    raise Unavailable("no key is fetched: the inbox is closing").because("keys") from None
                raise
        failure = self._failures.get(where)
        entry = self._entry(where)
        served = entry is not None and self._usable(where, entry)
        if failure is not None and self._clock() < failure.until and (again or not served):
            raise failure.error()

    async def visit(self, url: str) -> None:
        """Send a GET request for its effect, such as confirming a subscription; raise Unavailable unless it
        succeeds."""
        try:
            status, _, _ = await self._answer(Where(url))
        except _FetchFailed as failed:
            raise Unavailable(f"the request to {_host(url)} failed: it {failed}").because("keys") from None
        if not 200 <= status < 300:
            raise Unavailable(f"the request to {_host(url)} failed: it answered {status}").because("keys")

    async def close(self) -> None:
        """Cancel the fetches on this event loop."""
        here = asyncio.get_running_loop()
        flights = [flight for (loop, _), flight in self._flights.items() if loop is here]
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    # ── persistence ──

    def proved(self, where: Where) -> None:
        """Note that a key from there verified a request: it is stored, and its host gets a larger budget."""
        if where not in self._proved:
            entry = self._entries.get(where)
            if entry is not None:
                self._proved[where] = self._unsaved[where] = None
                _trim(self._proved)
                self._budget.trust(entry.provider, _host(where.url))

    def restore(self, kept: Iterable[PublishedKey]) -> None:
        """Load stored keys into the cache, with their age."""
        now = self._clock()
        for key in kept:
            if len(key.content) <= MAX_BYTES and _readable(key.content):
                fetched_at = now - max(key.age, 0.0)
                fresh_until = fetched_at + min(key.lifetime, LONGEST)
                self._restored[key.digest] = _Entry(key.content, fetched_at, fresh_until, key.provider)
                self._budget.trust(key.provider, _host(key.url))

    def unsaved(self) -> list[tuple[Where, PublishedKey]]:
        """Return the keys that have verified a request and are not stored yet."""
        now, found = self._clock(), []
        for where in list(self._unsaved):
            entry = self._entries.get(where)
            if entry is None:
                self._unsaved.pop(where, None)
                continue
            times = (entry.fresh_until - entry.fetched_at, now - entry.fetched_at)
            found.append((where, PublishedKey(_digest(where), entry.provider, where.url, entry.content, *times)))
        return found

    def saved(self, where: Where, key: PublishedKey) -> None:
        entry = self._entries.get(where)
        if entry is not None and entry.content == key.content:
            self._unsaved.pop(where, None)

    def _entry(self, where: Where) -> _Entry | None:
        """Return what was fetched from there, before or after the last restart."""
        entry = self._entries.get(where)
        if entry is None and self._restored:
            entry = self._restored.pop(_digest(where), None)
            if entry is not None:
                self._entries[where], self._proved[where] = entry, None
                _trim(self._entries)
        return entry

    # ── freshness ──

    def _usable(self, where: Where, entry: _Entry) -> bool:
        now = self._clock()
        if now < entry.fresh_until:
            return True
        # Use a stale key only while the provider cannot be reached, for a limited time.
        failure = self._failures.get(where)
        out_of_reach = failure is not None and failure.reason is None and now < failure.until
        return out_of_reach and now < entry.fresh_until + LONGEST

    def _due(self, where: Where, again: bool) -> bool:
        now = self._clock()
        failure, entry = self._failures.get(where), self._entry(where)
        if failure is not None and now < failure.until:
            return False
        if entry is None:
            return True
        return now >= entry.fresh_until or (again and now - entry.fetched_at >= AGAIN)

    def _spend(self, where: Where, provider: str, who: str) -> None:
        """Raise Unavailable if the budget is used up, such as by random key ids or regions that do not exist."""
        if where.fixed or where in self._proved or self._entry(where) is not None:
            return
        host = _host(where.url)
        if not self._budget.spend(provider, host, who):
            raise Unavailable(f"the fetch budget for unknown keys of {host} is used up").because("keys")

    # ── fetching ──

    async def _load(self, where: Where, provider: str) -> None:
        """Fetch a key and store an entry or a failure; never raises."""
        host = _host(where.url)
        try:
            status, content, caching = await self._answer(where)
            _check(status, content)
        except _FetchFailed as failed:
            log.warning("no key from %s: it %s", host, failed)
            self._failures.pop(where, None)
            reason = None if where.fixed else failed.reason
            self._failures[where] = _Failure(self._clock() + FAILURE, f"no key from {host}: it {failed}", reason)
            _trim(self._failures)
        else:
            now = self._clock()
            self._failures.pop(where, None)
            self._entries.pop(where, None)
            self._entries[where] = _Entry(content, now, now + _lifetime(content, caching), provider)
            _trim(self._entries)
            if where in self._proved:
                self._unsaved[where] = None

    async def _answer(self, where: Where) -> tuple[int, bytes, str]:
        """Return status, content and Cache-Control; raise _FetchFailed for any failure."""
        import httpx2

        parts = urlsplit(where.url)
        if parts.scheme != "https" or not parts.hostname or parts.netloc != parts.hostname:
            raise _FetchFailed("is not a plain https address", "key_unknown")
        host, port = self._connect.get(parts.hostname, (parts.hostname, 443))
        url = httpx2.URL(where.url).copy_with(host=host, port=port)
        headers = {"host": parts.hostname, "accept-encoding": "identity"}
        if where.post is not None:
            headers["content-type"] = "application/json"
        if self._context is None:
            self._context = httpx2.create_ssl_context(trust_env=self._trust_env)
        try:
            async with (
                asyncio.timeout(self._timeout),
                httpx2.AsyncClient(
                    verify=self._context, trust_env=self._trust_env, follow_redirects=False, timeout=self._timeout
                ) as client,
                client.stream(
                    "GET" if where.post is None else "POST",
                    url,
                    content=where.post,
                    headers=headers,
                    extensions={"sni_hostname": parts.hostname},  # also the name that TLS verifies
                ) as response,
            ):
                content = bytearray()
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > MAX_BYTES:
                        raise _FetchFailed(f"sent more than {MAX_BYTES} bytes", "key_unknown")
                return response.status_code, bytes(content), response.headers.get("cache-control", "")
        except TimeoutError:
            raise _FetchFailed(f"did not answer within {self._timeout:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            raise _FetchFailed(f"failed with {type(error).__name__}: {error}") from None


class _FetchFailed(Exception):
    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


def _check(status: int, content: bytes) -> None:
    if status >= 500 or status in (408, 429):
        raise _FetchFailed(f"answered {status}")
    if status != 200:  # also a redirect: the contract does not allow its target
        raise _FetchFailed(f"answered {status}", "key_unknown")
    if not _readable(content):
        raise _FetchFailed("sent neither a certificate nor JSON", "key_unknown")


def _digest(where: Where) -> bytes:
    """Return an identifier that does not reveal the request, which may hold credentials."""
    return hashlib.sha256(b"hookledger published key\0%b\0%b" % (where.url.encode(), where.post or b"")).digest()


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _is_certificate(content: bytes) -> bool:
    return content.lstrip().startswith(b"-----BEGIN CERTIFICATE-----")


def _readable(content: bytes) -> bool:
    if _is_certificate(content):
        return True
    try:
        return isinstance(msgspec.json.decode(content), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _lifetime(content: bytes, caching: str) -> float:
    """Return how long to cache it: a certificate's URL never changes its content; a key set has a max-age."""
    if _is_certificate(content):
        return LONGEST
    age = _MAX_AGE.search(caching)
    return min(max(float(age[1]) if age else 0.0, SHORTEST), LONGEST)


def _trim(kept: OrderedDict[Where, Any]) -> None:
    while len(kept) > MAX_ENTRIES:
        kept.popitem(last=False)
