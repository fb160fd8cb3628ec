"""Call a provider's API, limited in time and size, with retries, and without following redirects."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ...errors import ConfigError, ContentGone, ListingFailed

if TYPE_CHECKING:
    import ssl

log: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

TIMEOUT = 30.0
MAX_BYTES = 64 * 1024 * 1024
"""Size of one response; no page of a log is larger."""
TRIES = 5
MOST_PAGES = 50_000
"""Pages of one log: five million events."""
LONGEST = 120.0
"""Seconds to wait if a provider asks for a pause; a longer one fails the run."""
FIRST = 1.0
"""Seconds before the second try; doubles before each further one, with jitter."""

Parameters = Sequence[tuple[str, str | int]]


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    content: bytes

    def read(self, kind: type[T]) -> T:
        """Return the fields of its JSON that `kind` names; raise ListingFailed if it does not fit."""
        try:
            return msgspec.json.decode(self.content, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ListingFailed(f"the API's response is unreadable: {error}") from None


class Api:
    """A client for one API. `token` is called for each request and replaces {token} in `headers`."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        token: Callable[[], str],
        *,
        timeout: float = TIMEOUT,
        max_bytes: int = MAX_BYTES,
        first: float = FIRST,
    ) -> None:
        parts = urlsplit(base_url)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
            raise ConfigError(
                f"reconcile: base_url must be https://HOST, because it gets the token, not {base_url!r}"
            )
        self._base = base_url.rstrip("/")
        self._headers = headers
        self._token = token
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._first = first
        self._context: ssl.SSLContext | Literal[False] | None = None

    async def get(self, path: str, parameters: Parameters = ()) -> Answer:
        return await self._ask("GET", path, parameters, None)

    async def post(self, path: str, content: Any = None) -> Answer:
        return await self._ask("POST", path, (), None if content is None else msgspec.json.encode(content))

    async def _ask(self, method: str, path: str, parameters: Parameters, content: bytes | None) -> Answer:
        """Return a successful response; raise ListingFailed if the API rejects the request or all tries fail, and
        ContentGone for 404 and 410."""
        problem, wait = "", 0.0
        for number in range(TRIES):
            if number:
                await asyncio.sleep(wait)
            try:
                answer = await self._once(method, path, parameters, content)
            except _Transient as failure:
                problem, wait = str(failure), self._backoff(number)
                continue
            if 200 <= answer.status < 300:
                return answer
            problem = f"{_host(self._base)} answered {answer.status}"
            if answer.status not in (408, 425, 429) and answer.status < 500 and not _limited(answer):
                kind = ContentGone if answer.status in (404, 410) else ListingFailed
                raise kind(f"{problem} to {method} {path}{_hint(answer)}")
            asked = _asked(answer)
            if asked is not None and asked > LONGEST:
                raise ListingFailed(f"{problem} and asks for a pause of {asked:.0f} s: run it again later")
            wait = self._backoff(number) if asked is None else asked
            log.info("%s: retrying in %.1f s", problem, wait)
        raise ListingFailed(f"{problem}, {TRIES} times: run it again later")

    def _backoff(self, number: int) -> float:
        return self._first * float(2**number) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    async def _once(self, method: str, path: str, parameters: Parameters, content: bytes | None) -> Answer:
        import httpx2

        if self._context is None:  # created once: slower than most responses
            self._context = httpx2.create_ssl_context(trust_env=False) if self._base.startswith("https:") else False
        token = self._token()
        headers = {name: value.replace("{token}", token) for name, value in self._headers.items()}
        headers |= {"accept-encoding": "identity", "user-agent": "hookledger"}
        if content is not None:
            headers["content-type"] = "application/json"
        try:
            async with (
                asyncio.timeout(self._timeout),
                httpx2.AsyncClient(
                    verify=self._context, follow_redirects=False, timeout=self._timeout, trust_env=False
                ) as client,
                client.stream(
                    method, self._base + path, params=list(parameters) or None, content=content, headers=headers
                ) as response,
            ):
                received = bytearray()
                async for chunk in response.aiter_raw():
                    received += chunk
                    if len(received) > self._max_bytes:
                        raise ListingFailed(f"{_host(self._base)} sent more than {self._max_bytes:,} bytes")
                return Answer(response.status_code, dict(response.headers), bytes(received))
        except TimeoutError:
            raise _Transient(f"{_host(self._base)} did not answer within {self._timeout:g} s") from None
        except httpx2.InvalidURL as error:
            raise ListingFailed(f"{path} cannot be requested: {error}") from None
        except (
            httpx2.HTTPError,
            httpx2.StreamError,
            OSError,
        ) as error:  # without their messages, which may quote headers
            raise _Transient(f"{_host(self._base)} cannot be reached: {type(error).__name__}") from None
        except UnicodeEncodeError:
            raise ConfigError("reconcile: the token has characters that a header cannot hold: check it") from None


class _Transient(Exception):
    pass


class Cursors:
    """Raises ListingFailed for a repeated cursor and for too many pages: such a log would never end."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def next(self, cursor: str) -> str:
        if cursor in self._seen:
            raise ListingFailed(f"the API repeats a page: {cursor[:80]!r}")
        if len(self._seen) >= MOST_PAGES:
            raise ListingFailed(f"the log has more than {MOST_PAGES:,} pages: choose a shorter period")
        self._seen.add(cursor)
        return cursor


def moment(value: object) -> datetime | None:
    """Return an API's time, ISO 8601 or Unix seconds; None if it is neither."""
    try:
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
            return read if read.tzinfo else read.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _limited(answer: Answer) -> bool:
    """Whether a rate limit was reached: GitHub answers 403 then."""
    return answer.status == 403 and (
        "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"
    )


def _asked(answer: Answer) -> float | None:
    """Return how many seconds the API asks to wait."""
    given = answer.headers.get("retry-after")
    if given is None:
        until = answer.headers.get("x-ratelimit-reset", "")
        if answer.headers.get("x-ratelimit-remaining") == "0" and until.isdecimal():
            return max(0.0, float(until[:12]) - datetime.now(UTC).timestamp())
        return None
    if given.isdecimal():
        return float(given[:9])
    try:
        return max(0.0, (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _hint(answer: Answer) -> str:
    if answer.status in (401, 403):
        return ": check the token and its permissions"
    if answer.status == 404:
        return ": check the name and the token's permissions"
    return ": redirects are not followed" if 300 <= answer.status < 400 else ""
