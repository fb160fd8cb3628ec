"""Refused requests, odd deliveries and keys known from elsewhere, on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw

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
from .connection import Row, Run, connect, rows, translate
from .intake import ask, insert, micros

SQL = load(__package__, "cases.sql")


_READING = (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)


def _reading(action: int, *_: str | None) -> int:
    """Lets a query read, and nothing else: no PRAGMA, no ATTACH."""
    return apsw.SQLITE_OK if action in _READING else apsw.SQLITE_DENY


class SqliteCases:
    """`store`: the store's own queries. `read` is `write` without a transaction around it."""

    def __init__(
        self, path: Path, store: Callable[[str], str], read: Run, write: Run, now: Callable[[], int], values: Rows
    ) -> None:
        self._path = path
        self._store = store
        self._run = read
        self._write = write
        self._now = now
        self._rows = values

    async def _read(self, name: str, *args: Any) -> list[Row]:
        return await self._run(lambda connection: rows(connection, SQL[name], args))

    # ── refused requests ──

    async def refuse(
        self, sample: Sequence[Refusal], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None:
        numbers, kept = counted(counts), fitting(sample, most_bytes)

        def job(connection: apsw.Connection) -> None:
            now = self._now()
            for number in numbers:
                connection.execute(SQL["count_refusals"], (now, *number))
            insert(connection, SQL["keep_refusals"], [(now, *_refusal(refusal)) for refusal in kept])
            for source in {refusal.source for refusal in kept}:
                connection.execute(SQL["trim_refusals"], (source, most, most_bytes))

        if numbers or kept:
            await self._write(job)

    async def refusals(
        self, *, source: str | None = None, reason: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> list[RefusalRow]:
        found = await self._read("refusals", source, reason, (before or LAST_ID).bytes, max(limit, 0))
        return [self._rows.refusal(row) for row in found]

    async def refusal_counts(self) -> list[RefusalCount]:
        return [self._rows.refusal_count(row) for row in await self._read("refusal_counts")]

    async def take_refusal(self, refusal_id: UUID, event_ids: Sequence[UUID], actor: str, reason: str) -> bool:
        def job(connection: apsw.Connection) -> bool:
            found = rows(connection, SQL["forget_refusal"], (refusal_id.bytes,))
            for event_id in event_ids if found else ():
                about = (new_id().bytes, event_id.bytes, str(refusal_id), "refused", "recorded")
                connection.execute(SQL["note_action"], (self._now(), "recheck", *about, actor, reason))
            return bool(found)

        return await self._write(job)

    # ── odd deliveries ──

    async def odd_deliveries(
        self,
        *,
        source: str | None = None,
        outcome: DeliveryOutcome | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[OddDelivery]:
        last, most = (before or LAST_ID).bytes, max(limit, 0)

        def job(connection: apsw.Connection) -> list[OddDelivery]:
            sources = [row[0] for row in rows(connection, SQL["odd_sources"])] if source is None else [source]
            return [
                self._rows.odd(row)
                for name in sources
                for odd in ODD
                if outcome in (None, odd)
                for row in rows(connection, SQL["odd_deliveries"], (name, odd.value, last, most))
            ]

        return page(await self._run(job), most)

    async def find_delivery(self, reference: str) -> list[tuple[UUID, int]]:
        bounds = delivery_bounds(reference)
        if bounds is None:
            return []
        first, last, item = bounds
        found = await self._read("find_delivery", first.bytes, last.bytes, item)
        return [(UUID(bytes=row[0]), row[1]) for row in found]

    async def request(self, request_id: UUID) -> RequestRow | None:
        def job(connection: apsw.Connection) -> RequestRow | None:
            for row in rows(connection, self._store("request"), (request_id.bytes,)):
                borrowed = () if row["body"] else rows(connection, SQL["bytes"], (request_id.bytes,))
                return with_bytes(self._rows.request(row), borrowed)
            return None

        return await self._run(job)

    async def admit(self, request_id: UUID, place: int, item: Item, actor: str, reason: str) -> UUID:
        event_id = new_id()
        occurred = None if item.occurred_at is None else micros(item.occurred_at)

        def job(connection: apsw.Connection) -> None:
            now = self._now()
            connection.execute(SQL["keep_bytes"], (request_id.bytes,))
            odd = self._odd(connection, request_id, place)
            met = odd.known.bytes if odd.outcome is DeliveryOutcome.SAME_BODY else None
            key = (item.identity, odd.source, event_id.bytes, item.fingerprint, met)
            connection.execute(SQL["take_key"], key)
            self._take(connection, odd, event_id, request_id, place, item)
            where = (event_id.bytes, request_id.bytes, place, odd.source)
            content = (item.key, item.type, item.provider_id, item.object_id, occurred, item.fingerprint)
            connection.execute(SQL["admit"], (now, *where, *content, item.account))
            about = (event_id.bytes, f"{request_id}:{place}", odd.outcome.value, "pending")
            connection.execute(SQL["note_action"], (now, "admit", new_id().bytes, *about, actor, reason))

        await self._write(job)
        return event_id

    def _odd(self, connection: apsw.Connection, request_id: UUID, place: int) -> Odd:
        odd = None
        for source, outcome, known, kept, admitted in rows(connection, SQL["odd"], (request_id.bytes, place)):
            as_ = UUID(bytes=admitted) if admitted else None
            odd = Odd(source, DeliveryOutcome(outcome), UUID(bytes=known), bool(kept), as_)
        return admissible(request_id, place, odd)

    def _take(
        self, connection: apsw.Connection, odd: Odd, event_id: UUID, request_id: UUID, place: int, item: Item
    ) -> None:
        for identity, kind, source, _, fingerprint in admission(odd, event_id, item):
            values = (identity, kind, source, event_id.bytes, fingerprint)
            if not insert(connection, self._store("take_identities"), [values]) and kind == "admitted":
                [owner] = rows(connection, self._store("owner"), (identity,))
                raise admitted_before(request_id, place, UUID(bytes=owner["event_id"]))

    # ── alerts ──

    async def again(self, event_ids: Sequence[UUID]) -> dict[UUID, int]:
        def job(connection: apsw.Connection) -> dict[UUID, int]:
            return {ident: rows(connection, SQL["again"], (ident.bytes,))[0][0] for ident in event_ids}

        return await self._run(job)

    async def alert(self, event_id: UUID, words: str) -> bool:
        return await self._write(lambda connection: self._alert(connection, "alert", event_id, words))

    async def warn(self, event_id: UUID, words: str) -> bool:
        return await self._write(lambda connection: self._alert(connection, "unwarned", event_id, words))

    def _alert(self, connection: apsw.Connection, query: str, event_id: UUID, words: str) -> bool:
        found = rows(connection, SQL[query], (event_id.bytes, words))
        for (state,) in found:
            about = (new_id().bytes, event_id.bytes, None, state, state)
            connection.execute(SQL["note_action"], (self._now(), "alert", *about, "hookledger", words))
        return bool(found)

    # ── keys ──

    async def import_keys(self, source: str, identities: Sequence[bytes], actor: str, reason: str) -> Imported:
        action, new, given = new_id().bytes, 0, 0
        for first, batch in enumerate(import_batches(identities)):

            def job(connection: apsw.Connection, first: int = first, batch: list[bytes] = batch) -> int:
                if first == 0:
                    about = (action, action, source, "absent", "known")
                    connection.execute(SQL["note_action"], (self._now(), "import-keys", *about, actor, reason))
                values = [(identity, "key", source, action, b"") for identity in batch]
                return insert(connection, self._store("take_identities"), values)

            new += await self._write(job)
            given += len(batch)
        return Imported(given, new, given - new)

    async def known_keys(self, identities: Sequence[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        for batch in batches(identities):

            def job(connection: apsw.Connection, batch: list[bytes] = batch) -> list[Any]:
                return ask(connection, SQL["known_keys"], [(identity,) for identity in batch])

            found.update(row[0] for row in await self._run(job))
        return found

    async def query_keys(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        # On a connection of its own, as the audit: read in threads, one batch after the other.
        try:
            with closing(await asyncio.to_thread(connect, self._path, wait=5.0)) as connection:
                connection.execute("PRAGMA query_only = ON")
                connection.authorizer = _reading
                cursor = await asyncio.to_thread(connection.execute, sql)
                while batch := await asyncio.to_thread(lambda: list(islice(cursor, IMPORT_BATCH))):
                    yield [tuple(row) for row in batch]
        except (apsw.SQLError, apsw.AuthError, apsw.ReadOnlyError) as error:
            raise ConfigError(f"the query cannot be run: {error}") from error
        except apsw.Error as error:
            raise translate(error) from error

    async def audit_keys(self, source: str, *, last: int) -> KeyAudit:
        # On a connection and a thread of its own: it may read for long, and every ack would wait for it.
        return await asyncio.to_thread(self._audit, source, max(last, 0))

    def _audit(self, source: str, last: int) -> KeyAudit:
        try:
            with closing(connect(self._path, wait=5.0)) as connection:
                connection.execute("BEGIN")  # several statements that see the same
                looked = (source, last)
                origins = rows(connection, SQL["audit_origins"], looked)
                again = rows(connection, SQL["audit_again"], looked)
                contents = rows(connection, SQL["audit_contents"], looked)
                odd = [rows(connection, SQL["audit_odd"], (*looked, outcome.value)) for outcome in ODD]
        except apsw.Error as error:
            raise translate(error) from error
        return audit(
            source,
            {KeyOrigin(row[0]): row[1] for row in origins},
            {DeliveryOutcome(row[0]): row[1] for row in again},
            contents[0]["total"] if contents else 0,
            [[_shared(row) for row in found] for found in (contents, *odd)],
        )


def _refusal(refusal: Refusal) -> tuple[Any, ...]:
    return (
        refusal.id.bytes,
        refusal.source,
        refusal.reason,
        refusal.method,
        refusal.path,
        refusal.query,
        refusal.headers,
        refusal.body,
        refusal.remote,
    )


def _shared(row: Row) -> Shared:
    sample = sorted((UUID(hex=ident) for ident in row["sample"].split(",")), reverse=True)
    return Shared(row["key"], row["fingerprint"], row["type"], row["n"], tuple(sample))
