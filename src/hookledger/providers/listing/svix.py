"""List Svix's messages of one application, with their payloads; needs the sender's credentials.

The list has messages of all types, even those that an endpoint does not receive: set the source's `types` then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from urllib.parse import quote

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from .base import Listed, ReconcileSettings
from .http import Api, Cursors, moment, read

PAGE = 100


class _Message(Struct, rename="camel"):
    id: str
    timestamp: str
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Page(Struct, rename="camel"):
    data: list[_Message]
    done: bool
    iterator: str | None = None


class SvixLister:
    """`header`: the header with the message's id in a delivery."""

    def __init__(self, settings: ReconcileSettings, token: Callable[[], str], header: str = "svix-id") -> None:
        if not settings.app_id:
            raise ConfigError("reconcile: app_id is missing: set it to the application's id or uid")
        headers = {"authorization": "Bearer {token}"}
        self.api: Api = Api(settings.base_url or "https://api.svix.com", headers, token)
        self._path = f"/api/v1/app/{quote(settings.app_id, safe='')}/msg"
        self._header = header

    async def __call__(self, since: datetime, until: datetime) -> AsyncIterator[Listed]:
        """Yield messages, newest first. Filters by `since` here: older servers accept only one of `before` and
        `after`."""
        cursors, iterator = Cursors(), ""
        window: list[tuple[str, str | int]] = [("limit", PAGE), ("with_content", "true")]
        window.append(("before", until.isoformat()))
        while True:
            more = [("iterator", iterator)] if iterator else []
            page = read(await self.api.get(self._path, [*window, *more]), _Page)
            oldest = None
            for message in page.data:
                oldest = moment(message.timestamp)
                if oldest is None or since <= oldest < until:
                    headers = ((self._header, message.id),)
                    body = None if _is_gone(message.payload) else bytes(message.payload)
                    yield Listed(body=body, headers=headers, id=message.id, at=oldest)
            if page.done or not page.iterator or (oldest is not None and oldest < since):
                return
            iterator = cursors.next(page.iterator)


def _is_gone(payload: msgspec.Raw) -> bool:
    """Whether the payload is a placeholder: Svix deletes payloads after some days or on request."""
    return len(payload) < 32 and msgspec.json.decode(payload) in (None, {"expired": True})
