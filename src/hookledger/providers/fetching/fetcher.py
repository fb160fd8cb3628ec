"""Fetches the object of an event from the provider's API, and says what each answer means.

| answer | meaning |
|---|---|
| 2xx with an object | the object |
| 410; 404 if the token certainly sees the account, or the event says that the object was deleted | None |
| 429, or 403 of a rate limit | Wait: as long as the API asks |
| 5xx, 408, 425, no answer, no JSON | FetchFailed: transient, and a failure of the downstream |
| 401, 403, any other 404, another status, a redirect to elsewhere | Permanent, naming the setting to check |
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from ...errors import ConfigError, FetchFailed, Permanent, UnreadableError, Wait
from ..contract import Contract
from ..fields import Body, inside
from ..http import Answer, Client, Outgoing, Parameters, Unreachable, Unusable, is_rate_limit, pause, shop_url
from ..tolerant import decode_json
from .facts import Fetcher
from .oauth import AccessToken
from .paths import Request, Subject, request
from .settings import CurrentSettings

MAX_BYTES = 8 * 1024 * 1024
"""Size of one object."""
DEFAULT_PAUSE = 30.0
"""Seconds after a 429 that names none."""
LONGEST_PAUSE = 3600.0
"""Seconds until the API is asked again, whatever it asks for."""
REDIRECTS = 3

Read = Callable[[str, str], str]
"""Returns the text at `env:NAME` or `file:/path`; the second parameter says what it is."""


class ReadyFetcher:
    """Fetches objects for one source. `read` is called for each request, so that a new token needs no restart."""

    def __init__(self, source: str, contract: Contract, settings: CurrentSettings, read: Read) -> None:
        if contract.fetcher is None:
            raise ConfigError(
                f"current: {contract.title} has no ready-made fetcher: remove current, and declare @source.current"
            )
        self._facts: Fetcher = contract.fetcher
        self._title = contract.title
        self._place = f"[sources.{source}.current]"
        self._settings = settings
        self._read = read
        _check(self._facts, settings, contract.title)
        base = settings.base_url or self._facts.base_url or shop_url(settings.shop, "current")
        self._client = Client(base, what="current", timeout=settings.timeout, max_bytes=MAX_BYTES)
        self._base = base.rstrip("/")
        self._version = settings.api_version or self._facts.version
        self._access = AccessToken()
        self._rests_until = 0.0

    @property
    def downstream(self) -> str:
        """The name of its circuit."""
        return self._client.host

    @property
    def longest(self) -> float:
        """Seconds that a fetch may take: a token, redirects, and a witness of a 404 included."""
        return (3 + 2 * REDIRECTS) * self._settings.timeout

    def problem(self) -> str | None:
        """Return why its credentials cannot be read; None if they can."""
        try:
            self._credentials()
        except ConfigError as error:
            return str(error)
        return None

    def prepare(self, event: Subject) -> Request:
        """Return the request for an event's object. Raises Permanent if there is none for it, and Wait while the API
        wants a pause."""
        left = self._rests_until - time.monotonic()
        if left > 0:
            raise Wait(f"{self._client.host} asked for a pause", after=_spread(left))
        return request(self._facts, event, self._title, self._version)

    async def fetch(self, asked: Request) -> Any:
        """Return the object as it is now; None if it is gone."""
        answer = await self._get(asked.path, asked, self._query)
        if 200 <= answer.status < 300:
            return self._object(answer, asked.inside)
        if answer.status in (404, 410):
            await self._believe(answer, asked)
            return None
        raise self._rejection(answer, asked.path)

    @property
    def _query(self) -> Parameters:
        return list(self._settings.query.items())

    async def _get(self, path: str, asked: Request, parameters: Parameters = ()) -> Answer:
        """Return the answer; follow redirects below the configured URL, and get another access token once."""
        headers = {**asked.headers, **await self._headers()}
        answer = await self._send(Outgoing(path=path, parameters=parameters, headers=headers))
        if answer.status == 401 and self._facts.oauth:
            self._access.forget()
            headers |= await self._headers()
            answer = await self._send(Outgoing(path=path, parameters=parameters, headers=headers))
        for _ in range(REDIRECTS):
            if answer.status not in (301, 302, 307, 308):
                break
            path = self._redirected(answer, path)
            answer = await self._send(Outgoing(path=path, headers=headers))
        return answer

    def _redirected(self, answer: Answer, path: str) -> str:
        """Return the path of a redirect. The token goes to the configured URL only."""
        try:
            there = urljoin(self._base + path, answer.headers.get("location", ""))
            climbs = ".." in unquote(urlsplit(there).path).split("/")
        except ValueError:  # such as half an IPv6 address
            there, climbs = "", False
        if climbs or not there.startswith(f"{self._base}/"):
            raise Permanent(
                f"{self._client.host} redirects {path} to another place, which gets no token: check base_url in "
                f"{self._place}"
            )
        return there.removeprefix(self._base)

    async def _send(self, sent: Outgoing) -> Answer:
        """Return an answer that is final. Raises FetchFailed and Wait for those that are not."""
        try:
            answer = await self._client.request(sent)
        except Unreachable as failure:
            raise FetchFailed(str(failure)) from None
        except Unusable as failure:
            raise Permanent(f"{failure}, for {sent.path}") from None
        if is_rate_limit(answer):
            raise self._limit(answer)
        if answer.status >= 500 or answer.status in (408, 425):
            after = pause(answer)
            said = f"{self._client.host} answered {answer.status} to {sent.method} {sent.path}"
            raise FetchFailed(said, after=None if after is None else min(after, LONGEST_PAUSE))
        return answer

    def _limit(self, answer: Answer) -> Wait:
        """Ask nothing more for as long as the API says, for this event and for all others."""
        asked = pause(answer)
        seconds = min(max(DEFAULT_PAUSE if asked is None else asked, 1.0), LONGEST_PAUSE)
        self._rests_until = max(self._rests_until, time.monotonic() + seconds)
        said = f"{self._client.host} answered {answer.status}: too many requests"
        return Wait(said, after=_spread(seconds))

    # ── credentials ──

    def _credentials(self) -> tuple[str, str]:
        settings = self._settings
        if self._facts.oauth:
            assert settings.client_id is not None and settings.client_secret is not None
            return self._read(settings.client_id, "client_id"), self._read(settings.client_secret, "client_secret")
        assert settings.token is not None
        return "", self._read(settings.token, "token")

    @property
    def _settings_to_check(self) -> str:
        if self._facts.oauth:
            names = f"client_id ({self._settings.client_id}) and client_secret ({self._settings.client_secret})"
        else:
            names = f"token ({self._settings.token})"
        return f"check {names} in {self._place}"

    async def _headers(self) -> dict[str, str]:
        user, token = self._credentials()
        if self._facts.oauth:
            token = await self._access.get(user, token, self._access_token)
        headers = {name: value.replace("{token}", token) for name, value in self._facts.headers}
        if self._facts.version_header and self._version:
            headers[self._facts.version_header] = self._version
        return headers

    async def _access_token(self, headers: Mapping[str, str], content: bytes) -> Any:
        """Return the API's answer to client credentials."""
        sent = Outgoing(method="POST", path=self._facts.oauth, headers=headers, content=content)
        answer = await self._send(sent)
        if not 200 <= answer.status < 300:
            raise self._rejection(answer, self._facts.oauth)
        return self._object(answer, None)

    # ── answers ──

    def _object(self, answer: Answer, name: str | None) -> dict[str, Any]:
        try:
            found = decode_json(answer.content)
        except UnreadableError as error:
            raise FetchFailed(f"{self._client.host} sent no JSON: {error}") from None
        if name is not None and isinstance(found, dict):
            found = found.get(name)
        if not isinstance(found, dict):
            what = f"an object without the field {name}" if name else "something else than an object"
            raise FetchFailed(f"{self._client.host} sent {what}")
        return found

    async def _believe(self, answer: Answer, asked: Request) -> None:
        """Raise Permanent if a 404 does not prove that the object is gone: many APIs answer 404 where a token may not
        see an object, and who takes that for a deletion deletes too much."""
        if answer.status == 410 or asked.deleted:
            return
        said = f"{self._client.host} answered 404 to GET {asked.path}"
        if asked.kind in self._facts.unsure:
            raise Permanent(f"{said}, which it also does for an object that this token does not see")
        if asked.witness is None:
            raise Permanent(f"{said}, and nothing in the event tells whether this token sees its account")
        witness = await self._get(asked.witness, asked)
        if not 200 <= witness.status < 300:
            raise Permanent(
                f"{said}, and {witness.status} to GET {asked.witness}: the object is gone, or the token is of "
                f"another account; {self._settings_to_check}"
            )
        found = self._object(witness, None)
        for name, value in asked.says.items():
            if str(inside(Body(tuple(name.split("."))), found)) != str(value):
                raise Permanent(f"{said}: the event is of another account ({name}); {self._settings_to_check}")

    def _rejection(self, answer: Answer, path: str) -> Permanent:
        said = f"{self._client.host} answered {answer.status} to {path}"
        if answer.status in (401, 403):
            return Permanent(f"{said}: {self._settings_to_check}, and its permissions")
        if 300 <= answer.status < 400:
            return Permanent(f"{said}: too many redirects, or one without a place; check base_url in {self._place}")
        return Permanent(said)


def _spread(seconds: float) -> float:
    """More by up to a quarter: those that waited together do not ask together."""
    return max(1.0, seconds) * random.uniform(1.0, 1.25)  # noqa: S311 - spreads load, not for security


def _check(facts: Fetcher, settings: CurrentSettings, title: str) -> None:
    """Raise ConfigError for settings that the provider needs and that are missing, or that it does not use."""
    wanted = ("client_id", "client_secret") if facts.oauth else ("token",)
    missing = [name for name in wanted if getattr(settings, name) is None]
    if missing:
        raise ConfigError(f"current: {' and '.join(missing)} missing: {title} needs {facts.token}")
    unused = {"token", "client_id", "client_secret"} - set(wanted)
    unused |= set() if not facts.base_url else {"shop"}
    unused |= set() if facts.version or facts.version_header else {"api_version"}
    for name in sorted(unused):
        if getattr(settings, name) is not None:
            raise ConfigError(f"current: {title} does not use {name}: remove it")
