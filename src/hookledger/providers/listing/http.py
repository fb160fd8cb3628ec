"""Call a provider's API for its log: with retries, until the whole log is read."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from ...errors import ContentGone, ListingFailed
from ..http import Answer, Client, Outgoing, Parameters, Unreachable, Unusable, is_rate_limit, pause

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


def read(answer: Answer, kind: type[T]) -> T:
    """Return the fields of its JSON that `kind` names; raise ListingFailed if it does not fit."""
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ListingFailed(f"the API's response is unreadable: {error}") from None


class Api(Client):
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
        super().__init__(base_url, what="reconcile", timeout=timeout, max_bytes=max_bytes)
        self._headers = headers
        self._token = token
        self._first = first

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
            except Unreachable as failure:
                problem, wait = str(failure), self._backoff(number)
                continue
            except Unusable as failure:
                raise ListingFailed(str(failure)) from None
            if 200 <= answer.status < 300:
                return answer
            problem = f"{self.host} answered {answer.status}"
            if answer.status not in (408, 425) and answer.status < 500 and not is_rate_limit(answer):
                kind = ContentGone if answer.status in (404, 410) else ListingFailed
                raise kind(f"{problem} to {method} {path}{_hint(answer)}")
            asked = pause(answer)
            if asked is not None and asked > LONGEST:
                raise ListingFailed(f"{problem} and asks for a pause of {asked:.0f} s: run it again later")
            wait = self._backoff(number) if asked is None else asked
            log.info("%s: retrying in %.1f s", problem, wait)
        raise ListingFailed(f"{problem}, {TRIES} times: run it again later")

    def _backoff(self, number: int) -> float:
        return self._first * float(2**number) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    async def _once(self, method: str, path: str, parameters: Parameters, content: bytes | None) -> Answer:
        token = self._token()
        headers = {name: value.replace("{token}", token) for name, value in self._headers.items()}
        if content is not None:
            headers["content-type"] = "application/json"
        sent = Outgoing(method=method, path=path, parameters=parameters, headers=headers, content=content)
        return await self.request(sent)


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
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _hint(answer: Answer) -> str:
    if answer.status in (401, 403):
        return ": check the token and its permissions"
    if answer.status == 404:
        return ": check the name and the token's permissions"
    return ": redirects are not followed" if 300 <= answer.status < 400 else ""
