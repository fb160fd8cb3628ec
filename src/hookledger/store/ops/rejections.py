"""Rejected requests: all are counted, and a sample within a budget is kept with its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from ...identities import LAST_ID
from ..session import Operations, Session, reads, writes
from .audit import Audit, record_action


class Refusal(Struct, frozen=True):
    """A request that was refused, as it goes into the sample."""

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


class RefusalRow(Struct, frozen=True):
    """A refused request of the sample, as it was kept."""

    id: UUID
    source: str
    reason: str
    received_at: datetime
    method: str
    path: str
    query: bytes
    headers: bytes
    body: bytes
    remote: str | None


class RefusalCount(Struct, frozen=True):
    """How often one source refused for one reason; the sample holds only some of them."""

    source: str
    """"" for requests that belong to no source."""
    reason: str
    count: int
    first_at: datetime
    last_at: datetime
    kept: int
    """How many of them are in the sample."""


class Rejections(Operations):
    """Part of `store.cases`."""

    async def refuse(
        self, sample: Sequence[Refusal], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None:
        """Keep a sample of what was refused, and count all of it by (source, reason).

        Per source at most `most` requests and `most_bytes` bytes (query, headers and body) stay: the oldest go. One
        that is over the budget by itself is only counted. Not certain to survive a crash of the database.
        """
        numbers = [(*key, count) for key, count in sorted(counts.items()) if count]
        kept = _fitting(sample, most_bytes)

        async def work(db: Session) -> None:
            await db("lock_rejections")
            if numbers:
                await db("count_rejections", numbers=numbers)
            if kept:
                await db.many("keep_rejection", [msgspec.structs.asdict(refusal) for refusal in kept])
                sources = sorted({refusal.source for refusal in kept})
                await db("trim_rejections", sources=sources, most=most, most_bytes=most_bytes)

        if numbers or kept:
            await self._database.write(work)

    @reads
    async def refusals(
        self,
        db: Session,
        *,
        source: str | None = None,
        reason: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[RefusalRow]:
        """The sample, the newest first, from before `before`."""
        given = {"source": source, "reason": reason, "before": before or LAST_ID, "limit": max(limit, 0)}
        fields = RefusalRow.__struct_fields__
        return [RefusalRow(*(row[name] for name in fields)) for row in await db("list_rejections", **given)]

    @reads
    async def refusal_counts(self, db: Session) -> list[RefusalCount]:
        """Of every source and reason."""
        fields = RefusalCount.__struct_fields__
        return [RefusalCount(*(row[name] for name in fields)) for row in await db("rejection_counts")]

    @writes
    async def take_refusal(
        self, db: Session, refusal_id: UUID, event_ids: Sequence[UUID], actor: str, reason: str
    ) -> bool:
        """Drop from the sample what was taken in after all, with an action for each of its events; False when it is
        not there any more."""
        if not await db("take_rejection", id=refusal_id):
            return False
        by, subject, states = Audit(actor, reason), str(refusal_id), ("refused", "recorded")
        for event_id in event_ids:
            await record_action(db, "recheck", by, subject=subject, states=states, event_id=event_id)
        return True


def _fitting(sample: Iterable[Refusal], most_bytes: int) -> list[Refusal]:
    """What of the sample can be kept at all, in the order of ids, its text as every database can hold it."""
    kept = [r for r in sample if len(r.query) + len(r.headers) + len(r.body) <= most_bytes]
    return [
        msgspec.structs.replace(
            refusal,
            method=_plain(refusal.method, 32),
            path=_plain(refusal.path, 2048),
            remote=None if refusal.remote is None else _plain(refusal.remote, 255),
        )
        for refusal in sorted(kept, key=lambda refusal: refusal.id)
    ]


def _plain(text: str, most: int) -> str:
    """Strangers choose it: no NUL, no lone surrogate, no novel."""
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
