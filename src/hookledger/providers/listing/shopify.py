"""List changed objects: Shopify has no log of events, but its Admin API tells which objects changed, and when.

So no event can be imported. Hookledger detects that an object changed and no event about it arrived; its repair
handler then fetches the current state.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from ...errors import ConfigError, ListingFailed
from ..http import shop_url
from .base import Changed, ReconcileSettings
from .http import TRIES, Api, Cursors, moment, read

PAGE = 250
_NAME = re.compile(r"[a-z][A-Za-z]{0,63}")
_QUERY = (
    "query($first: Int!, $after: String, $query: String) {{ {name}(first: $first, after: $after, query: $query) "
    "{{ nodes {{ id updatedAt }} pageInfo {{ hasNextPage endCursor }} }} }}"
)


class _Node(Struct, rename="camel"):
    id: str
    updated_at: str


class _PageInfo(Struct, rename="camel"):
    has_next_page: bool
    end_cursor: str | None = None


class _Connection(Struct, rename="camel"):
    nodes: list[_Node]
    page_info: _PageInfo


class _Answer(Struct):
    data: dict[str, _Connection | None] | None = None
    errors: Any = None


class ShopifyLister:
    lists_events = False

    def __init__(self, settings: ReconcileSettings, token: Callable[[], str]) -> None:
        shop = shop_url(settings.shop, "reconcile")
        if not settings.resources or not all(map(_NAME.fullmatch, settings.resources)):
            raise ConfigError("reconcile: resources must be connections of the Admin API, such as orders")
        headers = {"x-shopify-access-token": "{token}"}
        self.api: Api = Api(settings.base_url or shop, headers, token)
        self._path = f"/admin/api/{settings.api_version or '2025-01'}/graphql.json"
        self._resources = settings.resources
        self.pause: float = 1.0
        """Seconds to wait when throttled; doubles each time."""

    async def __call__(self, since: datetime, until: datetime) -> AsyncIterator[Changed]:
        """Yield each changed object once, with the time of its last change."""
        start, end = (value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for value in (since, until))
        for name in self._resources:
            cursors, after = Cursors(), None
            while True:
                values = {"first": PAGE, "after": after, "query": f"updated_at:>='{start}' updated_at:<'{end}'"}
                found = await self._ask(name, values)
                for node in found.nodes:
                    at = moment(node.updated_at)
                    if at is None:
                        raise ListingFailed(f"{name}: {node.updated_at[:40]!r} is not a time")
                    yield Changed(object_id=node.id, at=at, type=name)
                if not found.page_info.has_next_page:
                    break
                after = cursors.next(found.page_info.end_cursor or "")

    async def _ask(self, name: str, values: dict[str, Any]) -> _Connection:
        """Return one page. The API answers 200 to every query, also when it throttles."""
        found = _Answer()
        for number in range(TRIES):
            if number:
                await asyncio.sleep(self.pause * 2**number)
            answer = await self.api.post(self._path, {"query": _QUERY.format(name=name), "variables": values})
            found = read(answer, _Answer)
            if "THROTTLED" not in str(found.errors):
                break
        connection = (found.data or {}).get(name)
        if found.errors or connection is None:
            raise ListingFailed(f"{name}: the API rejected the query: {str(found.errors)[:300]}")
        return connection
