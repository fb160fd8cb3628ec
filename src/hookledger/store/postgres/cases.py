"""Refused requests, odd deliveries and keys known from elsewhere, on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID

import asyncpg

from ...cases import Imported, KeyAudit, OddDelivery, Refusal, RefusalCount, RefusalRow
from ...errors import ConfigError
from ...identities import new_id
from ...model import Item, RequestRow
from ...states import DeliveryOutcome, KeyOrigin
from ..evidence import (
    IMPORT_BATCH,
    LAST_ID,
    ODD,
    Odd,
    Shared,
    admissible,
    admission,
    admitted_before,
    audit,
    batches,
    counted,
    delivery_bounds,
    fitting,
    import_batches,
    page,
    with_bytes,
)
from ..queries import load
from ..rows import Rows
from .connection import Connections, transaction
from .dialect import Dialect
from .intake import columns

QUERIES = load(__package__, "cases.sql")
REFUSED = ("22", "25", "2B", "2F", "42", "0A")
"""Classes of SQLSTATE that say the query itself is wrong, or would write."""
_REFUSAL = attrgetter("id", "source", "reason", "method", "path", "query", "headers", "body", "remote")


class PostgresCases:
    """`store`: the store's own queries."""

    def __init__(self, sql: Dialect, store: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._store = store
        self._connections = connections
        self._rows = Rows()

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        async with self._connections().use() as connection:
            return await connection.fetch(self._sql(name), *args)

    # ── refused requests ──

    async def refuse(
        self, sample: Sequence[Refusal], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None:
        numbers = counted(counts)
        kept = [_REFUSAL(refusal) for refusal in fitting(sample, most_bytes)]

        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin_refuse")):
                await connection.execute(self._sql("lock_sample"))
                if numbers:
                    await connection.execute(self._sql("count_refusals"), *columns(numbers))
                if kept:
                    await connection.execute(self._sql("keep_refusals"), *columns(kept))
                    sources = sorted({values[1] for values in kept})
                    await connection.execute(self._sql("trim_refusals"), sources, most, most_bytes)

        if numbers or kept:
            await self._connections().insist(work)

    async def refusals(
        self, *, source: str | None = None, reason: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> list[RefusalRow]:
        rows = await self._fetch("refusals", source, reason, before or LAST_ID, max(limit, 0))
        return [self._rows.refusal(row) for row in rows]

    async def refusal_counts(self) -> list[RefusalCount]:
        return [self._rows.refusal_count(row) for row in await self._fetch("refusal_counts")]

    async def take_refusal(self, refusal_id: UUID, event_ids: Sequence[UUID], actor: str, reason: str) -> bool:
        actions = [new_id() for _ in event_ids]
        return bool(await self._fetch("take_refusal", refusal_id, actions, list(event_ids), actor, reason))

    # ── odd deliveries ──

    async def odd_deliveries(
        self,
        *,
        source: str | None = None,
        outcome: DeliveryOutcome | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[OddDelivery]:
        sources = [row["source"] for row in await self._fetch("odd_sources")] if source is None else [source]
        outcomes = [odd.value for odd in ODD if outcome in (None, odd)]
        limit = max(limit, 0)
        rows = await self._fetch("odd_deliveries", sources, outcomes, before or LAST_ID, limit)
        return page(map(self._rows.odd, rows), limit)

    async def find_delivery(self, reference: str) -> list[tuple[UUID, int]]:
        bounds = delivery_bounds(reference)
        return [tuple(row) for row in await self._fetch("find_delivery", *bounds)] if bounds else []

    async def request(self, request_id: UUID) -> RequestRow | None:
        async with self._connections().use() as connection:
            row = await connection.fetchrow(self._store("request"), request_id)
            if row is None:
                return None
            borrowed = () if row["body"] else await connection.fetch(self._sql("bytes"), request_id)
        return with_bytes(self._rows.request(row), borrowed)

    async def admit(self, request_id: UUID, place: int, item: Item, actor: str, reason: str) -> UUID:
        event_id = new_id()

        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                await connection.execute(self._sql("keep_bytes"), request_id)
                odd = await self._odd(connection, request_id, place)
                met = odd.known if odd.outcome is DeliveryOutcome.SAME_BODY else None
                key = (item.identity, odd.source, event_id, item.fingerprint, met)
                await connection.execute(self._sql("take_key"), *key)
                await self._take(connection, odd, event_id, request_id, place, item)
                content = (item.key, item.type, item.provider_id, item.object_id, item.occurred_at, item.fingerprint)
                action = (new_id(), odd.outcome.value, actor, reason)
                values = (event_id, request_id, place, odd.source, *content, *action, item.account)
                await connection.execute(self._sql("admit"), *values)

        await self._connections().insist(work)
        return event_id

    async def _odd(self, connection: Any, request_id: UUID, place: int) -> Odd:
        await connection.execute(self._sql("lock_delivery"), request_id, place)
        row = await connection.fetchrow(self._sql("odd"), request_id, place)
        odd = row and Odd(row[0], DeliveryOutcome(row[1]), row[2], row[3], row[4])
        return admissible(request_id, place, odd)

    async def _take(
        self, connection: Any, odd: Odd, event_id: UUID, request_id: UUID, place: int, item: Item
    ) -> None:
        wanted = admission(odd, event_id, item)
        won = {row[0] for row in await connection.fetch(self._store("take_identities"), wanted)}
        for proposal in wanted:
            if proposal.kind == "admitted" and proposal.identity not in won:
                owner = await connection.fetchrow(self._store("owners"), [proposal.identity])
                raise admitted_before(request_id, place, owner["event_id"])

    # ── alerts ──

    async def again(self, event_ids: Sequence[UUID]) -> dict[UUID, int]:
        return {row["id"]: row["n"] for row in await self._fetch("again", list(set(event_ids)))}

    async def alert(self, event_id: UUID, words: str) -> bool:
        return await self._alert("alert", event_id, words)

    async def warn(self, event_id: UUID, words: str) -> bool:
        return await self._alert("warn", event_id, words)

    async def _alert(self, query: str, event_id: UUID, words: str) -> bool:
        async def work(connection: Any) -> bool:
            async with transaction(connection, self._sql("begin")):
                return bool(await connection.fetch(self._sql(query), event_id, words, new_id()))

        return await self._connections().insist(work)

    # ── keys ──

    async def import_keys(self, source: str, identities: Sequence[bytes], actor: str, reason: str) -> Imported:
        action, new, given = new_id(), 0, 0
        for first, batch in enumerate(import_batches(identities)):

            async def work(connection: Any, first: int = first, batch: list[bytes] = batch) -> int:
                async with transaction(connection, self._sql("begin")):
                    if first == 0:
                        await connection.execute(self._sql("note_import"), action, source, actor, reason)
                    return len(await connection.fetch(self._sql("import_keys"), batch, source, action))

            new += await self._connections().insist(work)
            given += len(batch)
        return Imported(given, new, given - new)

    async def known_keys(self, identities: Sequence[bytes]) -> set[bytes]:
        found = [await self._fetch("known_keys", batch) for batch in batches(identities)]
        return {row["identity"] for rows in found for row in rows}

    async def query_keys(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        # One statement at a time: with the extended protocol the query cannot end the transaction and go on.
        async with self._connections().use() as connection:
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    query = await connection.prepare(sql)
                    if not query.get_attributes():
                        raise ConfigError("the query cannot be run: it gives no columns, so it is no SELECT")
                    cursor = await query.cursor()
                    while batch := await cursor.fetch(IMPORT_BATCH):
                        yield [tuple(row) for row in batch]
            except asyncpg.PostgresError as error:
                if (error.sqlstate or "")[:2] in REFUSED:
                    raise ConfigError(f"the query cannot be run: {error}") from error
                raise

    async def audit_keys(self, source: str, *, last: int) -> KeyAudit:
        looked = (source, max(last, 0))

        async def work(connection: Any) -> KeyAudit:
            async with transaction(connection, self._sql("begin_audit")):
                origins = await connection.fetch(self._sql("audit_origins"), *looked)
                again = await connection.fetch(self._sql("audit_again"), *looked)
                contents = await connection.fetch(self._sql("audit_contents"), *looked)
                odd = [await connection.fetch(self._sql("audit_odd"), *looked, outcome.value) for outcome in ODD]
            return audit(
                source,
                {KeyOrigin(row[0]): row[1] for row in origins},
                {DeliveryOutcome(row[0]): row[1] for row in again},
                contents[0]["total"] if contents else 0,
                [[_shared(row) for row in rows] for rows in (contents, *odd)],
            )

        return await self._connections().insist(work)


def _shared(row: Any) -> Shared:
    return Shared(row["key"], row["fingerprint"], row["type"], row["n"], tuple(row["sample"]))
