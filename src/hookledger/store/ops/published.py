"""The keys that providers publish. Nothing here is on the way of an ack."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from ..rows import value_of
from ..session import Operations, Session, reads, writes_lightly


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


class PublishedKeys(Operations):
    """`store.published`."""

    @writes_lightly
    async def keep(self, db: Session, key: PublishedKey, *, most: int) -> None:
        """Keep a key, unless a newer one is kept; of its provider's at most `most`, those fetched last."""
        await db("keep_published_key", **asdict(key))
        await db("trim_published_keys", provider=key.provider, most=most)

    @reads
    async def kept(self, db: Session) -> list[PublishedKey]:
        """All of them."""
        return [value_of(PublishedKey, row) for row in await db("published_keys")]
