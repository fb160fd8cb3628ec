"""What a store knows of the keys that providers publish."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class PublishedKey(Struct, frozen=True):
    """A key, certificate or key set that proved a request."""

    digest: bytes
    """Of where it is published and what was asked there, which may hold credentials: those are never stored."""
    provider: str
    """The contract's name."""
    url: str
    content: bytes
    lifetime: float
    """Seconds that it is fresh after it was fetched."""
    age: float
    """Seconds since it was fetched."""


class PublishedKeys(Protocol):
    """`store.published`. Nothing here is on the way of an ack."""

    async def keep(self, key: PublishedKey, *, most: int) -> None:
        """Keep a key, unless a newer one is kept; of its provider's at most `most`, those fetched last."""
        ...

    async def kept(self) -> list[PublishedKey]:
        """All of them."""
        ...
