"""List Stripe's events of the last 30 days, with their objects as of the event.

The API renders an event in the account's API version at its creation, and an endpoint may use another version: the
same event can differ. Thin events (/v2) and those of connected accounts are not in this log.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import msgspec
from msgspec import Struct

from ...errors import ListingFailed
from .base import Listed, ReconcileSettings
from .http import Api, Cursors, moment, read

PAGE = 100


class _Page(Struct):
    data: list[msgspec.Raw]
    has_more: bool


class _Event(Struct):
    id: str
    created: int


class StripeLister:
    def __init__(self, settings: ReconcileSettings, token: Callable[[], str]) -> None:
        headers = {"authorization": "Bearer {token}"}
        if settings.api_version:
            headers["stripe-version"] = settings.api_version
        self.api: Api = Api(settings.base_url or "https://api.stripe.com", headers, token)

    async def __call__(self, since: datetime, until: datetime) -> AsyncIterator[Listed]:
        """Yield events, newest first."""
        window = [("created[gte]", math.floor(since.timestamp())), ("created[lt]", math.ceil(until.timestamp()))]
        cursors, after = Cursors(), ""
        while True:
            more = [("starting_after", after)] if after else []
            answer = await self.api.get("/v1/events", [("limit", PAGE), *window, *more])
            page = read(answer, _Page)
            for raw in page.data:
                try:
                    event = msgspec.json.decode(raw, type=_Event)
                except msgspec.MsgspecError as error:
                    raise ListingFailed(f"an event in the API's response is unreadable: {error}") from None
                after = event.id
                yield Listed(body=bytes(raw), id=event.id, at=moment(event.created))
            if not page.has_more:
                return
            if not page.data:
                raise ListingFailed("the API announces another page and returns an empty one")
            after = cursors.next(after)
