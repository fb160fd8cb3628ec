"""Keys and certificates that providers publish, fetched when a request first needs them and kept in memory.

Who can make us fetch? Anyone who names an address that a contract pins, or a key id that nobody has. So a failure is
remembered, newer keys are asked for once a minute, and what was never seen before has a budget for each provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..errors import Unauthentic, Unavailable
from ..providers.schemes.base import KeyNeeded, Where

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

TIMEOUT = 5.0
MAX_BYTES = 64 * 1024
MAX_ENTRIES = 256
LONGEST = 86400.0
"""How long a certificate is kept, and anything else at most; and how long after that while it cannot be renewed."""
SHORTEST = 300.0
FAILURE = 30.0
"""How long a failure is remembered."""
AGAIN = 60.0
"""How long what was fetched counts as the newest there is."""
BUDGET = 160
"""Fetches of what was never seen before, a minute, for each provider."""
BUDGET_EACH = 40
"""The same, for each address that asks; behind a proxy that is everybody."""

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?(\d{1,9})", re.ASCII | re.IGNORECASE)


class _Entry(Struct):
    content: bytes
    fetched_at: float
    fresh_until: float


class _Failure(Struct, frozen=True):
    until: float
    message: str
    reason: str | None = None
    """Why the key is refused for good; None: it may be there later."""

    def error(self) -> Exception:
        return Unavailable(self.message) if self.reason is None else Unauthentic(self.reason, self.message)


class Fetched:
    """A keyring that is filled over HTTPS. One for an inbox, used from one event loop at a time.

    `connect` sends a host to another address, as /etc/hosts would and with a port, and `verify` says whose TLS
    certificates to believe: for tests and for networks with a gateway. The host's name is verified all the same.
    """

    def __init__(
        self,
        *,
        trust_env: bool = False,
        connect: Mapping[str, tuple[str, int]] | None = None,
        verify: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trust_env = trust_env
        self._connect = {} if connect is None else connect
        self._context = verify
        self._timeout = timeout
        self._clock = clock
        self._entries: OrderedDict[Where, _Entry] = OrderedDict()
        self._failures: OrderedDict[Where, _Failure] = OrderedDict()
        self._flights: dict[Where, asyncio.Task[None]] = {}
        self._strange: OrderedDict[str, deque[float]] = OrderedDict()

    def get(self, where: Where) -> bytes:
        """What was fetched from there; KeyNeeded if nothing was, or too long ago and nobody has tried to renew it."""
        entry = self._entries.get(where)
        if entry is None or not self._usable(where, entry):
            raise KeyNeeded(where)
        with contextlib.suppress(KeyError):  # the operator's thread reads here, too
            self._entries.move_to_end(where)
        return entry.content

    async def fetch(self, where: Where, *, again: bool = False, who: str = "") -> None:
        """See that `get` finds it; `again`: if it may be newer than what `get` finds. `who` asks has a budget.

        Unavailable if the provider cannot be reached now, Unauthentic if it has no such key. Many who ask at once
        share one fetch, and it goes on for the others when one of them leaves.
        """
        flight = self._flights.get(where)
        if flight is None and self._due(where, again):
            self._spend(where, who)
            flight = self._flights[where] = asyncio.create_task(self._load(where))
            flight.add_done_callback(lambda _: self._flights.pop(where, None))
        if flight is not None:
            try:
                await asyncio.shield(flight)
            except asyncio.CancelledError:
                if flight.cancelled():  # by `close`; else it is this caller who leaves
                    raise Unavailable("no key is fetched any more: the inbox closes") from None
                raise
        failure = self._failures.get(where)
        entry = self._entries.get(where)
        served = entry is not None and self._usable(where, entry)
        if failure is not None and self._clock() < failure.until and (again or not served):
            raise failure.error()

    async def visit(self, url: str) -> None:
        """Get a page for what that does, such as confirming a subscription; Unavailable unless it is answered 2xx."""
        try:
            status, _, _ = await self._answer(Where(url))
        except _Refused as refused:
            raise Unavailable(f"{_host(url)} was not visited: {refused}") from None
        if not 200 <= status < 300:
            raise Unavailable(f"{_host(url)} answered {status} to a visit")

    async def close(self) -> None:
        """End what is under way."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    # ── when ──

    def _usable(self, where: Where, entry: _Entry) -> bool:
        now = self._clock()
        if now < entry.fresh_until:
            return True
        # Stale: only while the provider is known to be out of reach, and not for ever.
        failure = self._failures.get(where)
        out_of_reach = failure is not None and failure.reason is None and now < failure.until
        return out_of_reach and now < entry.fresh_until + LONGEST

    def _due(self, where: Where, again: bool) -> bool:
        now = self._clock()
        failure, entry = self._failures.get(where), self._entries.get(where)
        if failure is not None and now < failure.until:
            return False
        if entry is None:
            return True
        return now >= entry.fresh_until or (again and now - entry.fetched_at >= AGAIN)

    def _spend(self, where: Where, who: str) -> None:
        """Unavailable where strangers have had us fetch too much: random key ids, or regions that do not exist."""
        if where in self._entries or where.fixed:
            return
        now = self._clock()
        provider = ".".join(_host(where.url).split(".")[-2:])
        accounts = [self._spent(provider, now), self._spent(f"{provider} {who}", now)]
        if len(accounts[0]) >= BUDGET or len(accounts[1]) >= BUDGET_EACH:
            raise Unavailable(f"too many unknown keys of {_host(where.url)} are asked for")
        for account in accounts:
            account.append(now)

    def _spent(self, name: str, now: float) -> deque[float]:
        """When somebody had us fetch in the last minute; the longest unheard of are forgotten."""
        spent = self._strange.setdefault(name, deque())
        self._strange.move_to_end(name)
        while len(self._strange) > MAX_ENTRIES:
            self._strange.popitem(last=False)
        while spent and spent[0] <= now - 60.0:
            spent.popleft()
        return spent

    # ── how ──

    async def _load(self, where: Where) -> None:
        """Never raises: it leaves an entry or a failure behind."""
        host = _host(where.url)
        try:
            status, content, caching = await self._answer(where)
            _check(status, content)
        except _Refused as refused:
            log.warning("no key from %s: %s", host, refused)
            self._failures.pop(where, None)
            reason = None if where.fixed else refused.reason
            self._failures[where] = _Failure(self._clock() + FAILURE, f"no key from {host}: {refused}", reason)
            _trim(self._failures)
        else:
            now = self._clock()
            self._failures.pop(where, None)
            self._entries.pop(where, None)
            self._entries[where] = _Entry(content, now, now + _lifetime(content, caching))
            _trim(self._entries)

    async def _answer(self, where: Where) -> tuple[int, bytes, str]:
        """Status, content and Cache-Control; _Refused for whatever goes wrong on the way."""
        import httpx2

        parts = urlsplit(where.url)
        if parts.scheme != "https" or not parts.hostname or parts.netloc != parts.hostname:
            raise _Refused("not a plain https address", "key_unknown")
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
                        raise _Refused(f"sent more than {MAX_BYTES} bytes", "key_unknown")
                return response.status_code, bytes(content), response.headers.get("cache-control", "")
        except TimeoutError:
            raise _Refused(f"did not answer within {self._timeout:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            raise _Refused(f"{type(error).__name__}: {error}") from None


class _Refused(Exception):
    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


def _check(status: int, content: bytes) -> None:
    if status >= 500 or status in (408, 429):
        raise _Refused(f"answered {status}")
    if status != 200:  # a redirect too: where it leads is not pinned
        raise _Refused(f"answered {status}", "key_unknown")
    if not _readable(content):
        raise _Refused("sent neither a certificate nor JSON", "key_unknown")


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
    """A certificate never changes under its address; a key set says how long it holds."""
    if _is_certificate(content):
        return LONGEST
    age = _MAX_AGE.search(caching)
    return min(max(float(age[1]) if age else 0.0, SHORTEST), LONGEST)


def _trim(kept: OrderedDict[Where, _Entry] | OrderedDict[Where, _Failure]) -> None:
    while len(kept) > MAX_ENTRIES:
        kept.popitem(last=False)
