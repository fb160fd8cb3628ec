"""Comparisons with a provider's log, and repairs, on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

import apsw
import msgspec

from ...identities import new_id
from ...model import Arrival, Recorded
from ...reconciling import Begun, Counts, Known, Reconciliation
from ...states import State
from ..queries import load
from ..reconciling import INTERRUPTED, OPEN, how_far, result, still_open, taken_up, with_recorded
from ..rows import Rows
from .connection import Run, rows
from .intake import micros, record

SQL = load(__package__, "reconciling.sql")


class SqliteReconciling:
    """`store`: the store's own queries. `read` is `write` without a transaction around it."""

    def __init__(
        self, store: Callable[[str], str], read: Run, write: Run, now: Callable[[], int], values: Rows
    ) -> None:
        self._store = store
        self._read = read
        self._write = write
        self._now = now
        self._rows = values

    async def known(self, identities: Sequence[bytes]) -> dict[bytes, Known]:
        def job(connection: apsw.Connection) -> dict[bytes, Known]:
            found = {}
            for identity in identities:
                for event, state in connection.execute(SQL["known"], (identity,)):
                    found[identity] = Known(UUID(bytes=event), State(state) if state else None)
            return found

        return await self._read(job)

    async def begin(
        self,
        source: str,
        since: datetime,
        until: datetime,
        actor: str,
        reason: str,
        *,
        lease: float,
        slot: datetime | None = None,
    ) -> Begun | None:
        planned = None if slot is None else _moment(slot)

        def job(connection: apsw.Connection) -> Begun | None:
            self._close_abandoned(connection, source, planned)
            window = (_moment(since), _moment(until))
            values = (new_id().bytes, source, planned, *window, actor, reason, self._now(), micros(lease))
            for row in rows(connection, SQL["begin_run"], values):
                self._note(connection, "reconcile", actor, reason, None, f"source:{source}", "", "started")
                window_of = (self._rows.time(row["since"]), self._rows.time(row["until"]))
                return Begun(UUID(bytes=row["id"]), source, row["fence"], *window_of)
            return None

        return await self._write(job)

    def _close_abandoned(self, connection: apsw.Connection, source: str, slot: int | None) -> None:
        now = self._now()
        for row in rows(connection, SQL["abandoned"], (source, now)):
            counts, words = how_far(row["counts"])
            if row["slot"] is None or row["slot"] != slot:  # else it is taken up
                connection.execute(SQL["close"], (row["id"], INTERRUPTED, counts, now))
            about = (None, f"source:{source}", "started", words)
            self._note(connection, "reconcile", row["actor"], row["reason"], *about)

    async def record(self, begun: Begun, arrivals: Sequence[Arrival], counts: Counts) -> list[list[Recorded]]:
        def job(connection: apsw.Connection) -> list[list[Recorded]]:
            results = record(connection, self._store, self._now(), arrivals)
            now = with_recorded(counts, results)
            if not rows(connection, SQL["count"], (begun.id.bytes, begun.fence, now)):
                raise taken_up(begun)
            return results

        results: list[list[Recorded]] = await self._write(job)
        return results

    async def renew(self, begun: Begun, lease: float) -> bool:
        def job(connection: apsw.Connection) -> bool:
            values = (begun.id.bytes, begun.fence, self._now() + micros(lease))
            return bool(rows(connection, SQL["renew"], values))

        return await self._write(job)

    async def end(
        self, begun: Begun, counts: Counts, problem: str | None = None, *, again_in: float | None = None
    ) -> bool:
        later = None if again_in is None else micros(again_in)

        def job(connection: apsw.Connection) -> bool:
            told = (msgspec.json.encode(counts).decode(), problem)
            found = rows(connection, SQL["end"], (begun.id.bytes, begun.fence, *told, self._now(), later))
            for row in found:
                about = (None, f"source:{begun.source}", "started", result(counts, problem))
                self._note(connection, "reconcile", row["actor"], row["reason"], *about)
            return bool(found)

        return await self._write(job)

    async def last(self) -> list[Reconciliation]:
        found = await self._read(lambda connection: rows(connection, SQL["last"]))
        return [self._rows.reconciliation(row) for row in found]

    async def repair(self, arrival: Arrival, about: UUID | None, actor: str, reason: str) -> UUID:
        [item], [event_id] = arrival.items, arrival.event_ids
        assert item.object_id is not None, "a repair is of an object"
        thing = (arrival.source, item.object_id)

        def job(connection: apsw.Connection) -> None:
            for known, state in connection.execute(SQL["last_repair"], thing):
                if state in OPEN:
                    raise still_open(thing[1], UUID(bytes=known), state)
            connection.execute(SQL["repair_object"], (*thing, event_id.bytes))
            record(connection, self._store, self._now(), [arrival])
            subject = f"event {about}" if about else f"object {thing[1]}"
            self._note(connection, "repair", actor, reason, event_id, subject, "", "pending")
            if about is not None:
                state = next((row[0] for row in connection.execute(SQL["state"], (about.bytes,))), "")
                self._note(connection, "repair", actor, reason, about, f"repair {event_id}", state, state)

        await self._write(job)
        return event_id

    def _note(
        self,
        connection: apsw.Connection,
        name: str,
        actor: str,
        reason: str,
        event_id: UUID | None,
        subject: str,
        before: str,
        after: str,
    ) -> None:
        ident = None if event_id is None else event_id.bytes
        values = (self._now(), new_id().bytes, name, actor, reason, ident, subject, before, after)
        connection.execute(SQL["note_action"], values)


def _moment(value: datetime) -> int:
    return micros(value.timestamp())
