"""Rejected requests: all are counted, and a sample within a budget is kept with its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from ...ids import LAST_ID
from ..rows import value_of
from ..session import Operations, Session, reads, writes
from .audit import Audit, Change, record_action


class RejectedRequest(Struct, frozen=True):
    """A rejected request, as it goes into the sample."""

    id: UUID
    source: str
    reason: str
    """A code from a closed set, such as `signature_mismatch`."""
    method: str
    path: str
    query: bytes
    headers: bytes
    """As on the wire, less the secrets that the contract names."""
    body: bytes
    remote: str | None


class RejectionRow(RejectedRequest, frozen=True):
    """A rejected request of the sample, as it was kept."""

    received_at: datetime


class RejectionCount(Struct, frozen=True):
    """How often one source rejected requests for one reason; the sample holds only some of them."""

    source: str
    """"" for requests that belong to no source."""
    reason: str
    count: int
    first_at: datetime
    last_at: datetime
    kept: int
    """How many of them are in the sample."""


class Rejections(Operations):
    """`store.rejections`."""

    async def add(
        self, sample: Sequence[RejectedRequest], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None:
        """Record a sample of rejected requests, and count all of it by (source, reason).

        Per source at most `most` requests and `most_bytes` bytes (query, headers and body) stay: the oldest go. One
        that alone exceeds the budget is only counted. Not certain to survive a crash of the database.
        """
        numbers = [(*key, count) for key, count in sorted(counts.items()) if count]
        kept = _fitting(sample, most_bytes)

        async def work(db: Session) -> None:
            await db("lock_rejections")
            if numbers:
                await db("count_rejections", numbers=numbers)
            if kept:
                await db.many("keep_rejection", [msgspec.structs.asdict(rejection) for rejection in kept])
                sources = sorted({rejection.source for rejection in kept})
                await db("trim_rejections", sources=sources, most=most, most_bytes=most_bytes)

        if numbers or kept:
            await self._database.write(work)

    @reads
    async def sample(
        self,
        db: Session,
        *,
        source: str | None = None,
        reason: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[RejectionRow]:
        """The sample, the newest first, from before `before`."""
        given = {"source": source, "reason": reason, "before": before or LAST_ID, "limit": max(limit, 0)}
        return [value_of(RejectionRow, row) for row in await db("list_rejections", **given)]

    @reads
    async def rejection_counts(self, db: Session) -> list[RejectionCount]:
        """Of every source and reason."""
        return [value_of(RejectionCount, row) for row in await db("rejection_counts")]

    @writes
    async def remove_recorded(
        self, db: Session, rejection_id: UUID, event_ids: Sequence[UUID], actor: str, reason: str
    ) -> bool:
        """Drop from the sample a request that was recorded after all, with an action for each of its events; False if
        it is gone."""
        if not await db("take_rejection", id=rejection_id):
            return False
        changes = [Change(str(rejection_id), ("rejected", "recorded"), event_id) for event_id in event_ids]
        await record_action(db, "recheck", Audit(actor, reason), *changes)
        return True


def _fitting(sample: Iterable[RejectedRequest], most_bytes: int) -> list[RejectedRequest]:
    """What of the sample can be kept at all, in the order of ids, its text as every database can hold it."""
    kept = [r for r in sample if len(r.query) + len(r.headers) + len(r.body) <= most_bytes]
    return [
        msgspec.structs.replace(
            rejection,
            method=_plain(rejection.method, 32),
            path=_plain(rejection.path, 2048),
            remote=None if rejection.remote is None else _plain(rejection.remote, 255),
        )
        for rejection in sorted(kept, key=lambda rejection: rejection.id)
    ]


def _plain(text: str, most: int) -> str:
    """Strangers choose it: no NUL, no lone surrogate, no novel."""
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
