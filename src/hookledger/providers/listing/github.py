"""List GitHub's deliveries of one webhook: of a repository, an organization or an app.

The list has only ids and types, so missing events are fetched individually. They have the delivery's own headers,
with its signature; the API serializes the payload, often to exactly the signed bytes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
from msgspec import Struct

from ...errors import ConfigError, ContentGone
from ..http import Answer
from .base import Content, Listed, ReconcileSettings
from .http import Api, Cursors, moment, read

PAGE = 100
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next"?')
_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]+")


class _Delivery(Struct):
    id: int
    guid: str
    delivered_at: str
    event: str


class _Request(Struct):
    headers: dict[str, object] | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Detail(Struct):
    request: _Request


class GitHubLister:
    def __init__(self, settings: ReconcileSettings, token: Callable[[], str]) -> None:
        headers = {"authorization": "Bearer {token}", "accept": "application/vnd.github+json"}
        headers["x-github-api-version"] = settings.api_version or "2022-11-28"
        self.api: Api = Api(settings.base_url or "https://api.github.com", headers, token)
        self._path = _path(settings)

    async def __call__(self, since: datetime, until: datetime) -> AsyncIterator[Listed]:
        """Yield deliveries, newest first, each guid once: a redelivery has its event's guid."""
        cursors, cursor, seen = Cursors(), "", set()
        while True:
            more = [("cursor", cursor)] if cursor else []
            answer = await self.api.get(self._path, [("per_page", PAGE), *more])
            oldest = None
            for delivery in read(answer, list[_Delivery]):
                oldest = moment(delivery.delivered_at)
                if delivery.guid not in seen and (oldest is None or since <= oldest < until):
                    seen.add(delivery.guid)
                    yield self._listed(delivery, oldest)
            cursor = _cursor(answer)
            if not cursor or (oldest is not None and oldest < since):
                return
            cursors.next(cursor)

    def _listed(self, delivery: _Delivery, at: datetime | None) -> Listed:
        async def load() -> Content:
            answer = await self.api.get(f"{self._path}/{delivery.id}")
            request = read(answer, _Detail).request
            if bytes(request.payload) == b"null":
                raise ContentGone("GitHub has no payload of this delivery")
            given = {name.lower(): str(value) for name, value in (request.headers or {}).items()}
            return Content(bytes(request.payload), tuple((given | dict(own)).items()))

        async def resend() -> None:
            await self.api.post(f"{self._path}/{delivery.id}/attempts")

        own = (("x-github-delivery", delivery.guid), ("x-github-event", delivery.event))
        return Listed(headers=own, id=delivery.guid, at=at, load=load, resend=resend)


def _path(settings: ReconcileSettings) -> str:
    if settings.repository and settings.organization:
        raise ConfigError("reconcile: a webhook has a repository or an organization: set one of them")
    if settings.repository is None and settings.organization is None:
        if settings.hook is not None:
            raise ConfigError("reconcile: the hook needs its repository or organization: set one of them")
        return "/app/hook/deliveries"
    if settings.hook is None:
        raise ConfigError("reconcile: hook is missing: set it to the number in the webhook's URL at GitHub")
    names = (settings.repository or settings.organization or "").split("/")
    if len(names) != (2 if settings.repository else 1) or not all(map(_NAME.fullmatch, names)):
        raise ConfigError("reconcile: repository must be OWNER/NAME, organization a name")
    owner = "/".join(map(quote, names))
    return f"/{'repos' if settings.repository else 'orgs'}/{owner}/hooks/{settings.hook}/deliveries"


def _cursor(answer: Answer) -> str:
    """Return the cursor of the next page; "" on the last. The rest of the link is ignored: the URL stays ours."""
    link = _NEXT.search(answer.headers.get("link", ""))
    values = parse_qs(urlsplit(link[1]).query).get("cursor") if link else None
    return values[0] if values else ""
