"""What a store knows of requests, deliveries and keys that did not plainly become events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from ..cases import Imported, KeyAudit, OddDelivery, Refusal, RefusalCount, RefusalRow
from ..model import Item, RequestRow
from ..states import DeliveryOutcome


class Cases(Protocol):
    """`store.cases`. Nothing here is on the way of an ack."""

    # ── refused requests ──
    async def refuse(
        self, sample: Sequence[Refusal], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None:
        """Keep a sample of what was refused, and count all of it by (source, reason).

        Per source at most `most` requests and `most_bytes` bytes (query, headers and body) stay: the oldest go. One
        that is over the budget by itself is only counted. Not certain to survive a crash of the database.
        """
        ...

    async def refusals(
        self, *, source: str | None = None, reason: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> list[RefusalRow]:
        """The sample, the newest first, from before `before`."""
        ...

    async def refusal_counts(self) -> list[RefusalCount]: ...

    async def take_refusal(self, refusal_id: UUID, event_ids: Sequence[UUID], actor: str, reason: str) -> bool:
        """Drop from the sample what was taken in after all, with an action for each of its events; False when it is
        not there any more."""
        ...

    # ── odd deliveries ──
    async def odd_deliveries(
        self,
        *,
        source: str | None = None,
        outcome: DeliveryOutcome | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[OddDelivery]:
        """Conflicts and known bodies under other ids, the newest request first, from before the request `before`.

        The deliveries of one request stay together, so that there may be a few more than `limit`.
        """
        ...

    async def find_delivery(self, reference: str) -> list[tuple[UUID, int]]:
        """Request and item of odd deliveries by `REQUEST` (or the beginning of its id), or `REQUEST:ITEM`; at most
        ten."""
        ...

    async def request(self, request_id: UUID) -> RequestRow | None:
        """A request that was kept, with its bytes; its `source` is the delivery's."""
        ...

    async def admit(self, request_id: UUID, place: int, item: Item, actor: str, reason: str) -> UUID:
        """An odd delivery → an event of its own, pending, audited; returns its id.

        The event has the delivery's request and place in it, and its key says so: `KEY~2` for the second event of
        that key, and so on. From then on the same content under the same key is a duplicate of the new event; so the
        other deliveries that brought it were admitted with this one.
        Raises WrongState when there is no such odd delivery, its bytes are gone, or it was admitted before; the
        words then say as which event.
        """
        ...

    # ── alerts ──
    async def again(self, event_ids: Sequence[UUID]) -> dict[UUID, int]:
        """How many deliveries came of each of these events after its first, counted up to 1,000."""
        ...

    async def alert(self, event_id: UUID, words: str) -> bool:
        """Mark an event that is failed, retrying, processing or in review for a person's attention, audited; False
        when it is marked already or stands otherwise. The mark goes when it is processed, skipped, discarded, or
        sent round again by a person."""
        ...

    async def warn(self, event_id: UUID, words: str) -> bool:
        """Note a quarantined delivery in the audit of the event that it met, whatever its state; False if that was
        noted in the same words before."""
        ...

    # ── keys ──
    async def import_keys(self, source: str, identities: Sequence[bytes], actor: str, reason: str) -> Imported:
        """Take identities whose events were processed elsewhere, one audited action; whatever content comes with one
        of them is a duplicate.

        In several transactions, so that no delivery waits long: when it fails in the middle, some are taken and the
        rest can be imported again. Raises BadData, and takes none, when one is no identity.
        """
        ...

    async def known_keys(self, identities: Sequence[bytes]) -> set[bytes]:
        """Those of these identities that are taken."""
        ...

    def query_keys(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        """The rows of the user's own SELECT, in batches of a thousand, read in a transaction that can write nothing.

        Raises ConfigError with the database's words when it refuses the query.
        """
        ...

    async def audit_keys(self, source: str, *, last: int) -> KeyAudit:
        """What the last so many events of a source, and all deliveries of those, say about its keys."""
        ...
