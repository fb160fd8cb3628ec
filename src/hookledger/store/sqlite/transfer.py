"""Export and import on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import msgspec

from ...errors import BadData
from ...identities import new_id
from ..queries import load
from ..transfer import FLAG, IDENT, TABLES, TIME, Line, Taken, arriving, is_held, met, own_identities
from .circuits import Run
from .connection import Row, connect, rows, translate

SQL = load(__package__, "transfer.sql")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OUT: dict[str, Callable[[Any], Any]] = {
    IDENT: lambda value: UUID(bytes=value),
    TIME: lambda value: _EPOCH + timedelta(microseconds=value),
    FLAG: bool,
}
_IN: dict[str, Callable[[Any], Any]] = {
    IDENT: lambda value: value.bytes,
    TIME: lambda value: (value - _EPOCH) // timedelta(microseconds=1),
    FLAG: int,
}


class SqliteTransfer:
    def __init__(self, path: Path, write: Run, now: Callable[[], int]) -> None:
        self._path = path
        self._write = write
        self._now = now

    async def identities(self, event_ids: Sequence[UUID]) -> dict[UUID, list[dict[str, Any]]]:
        return await asyncio.to_thread(self._look, lambda c: _identities(c, event_ids))

    async def rows(self, event_id: UUID) -> Line | None:
        return await asyncio.to_thread(self._look, lambda c: _rows(c, event_id))

    def _look(self, job: Callable[[apsw.Connection], Any]) -> Any:
        """On a connection and a thread of its own: it may read for long, and every ack would wait for it."""
        try:
            with closing(connect(self._path, wait=5.0)) as connection:
                connection.execute("BEGIN DEFERRED")
                return job(connection)
        except apsw.Error as error:
            raise translate(error) from error

    async def take_in(self, lines: Sequence[Line], actor: str, reason: str, *, take_over: bool = False) -> Taken:
        def job(connection: apsw.Connection) -> Taken:
            done = Taken()
            for line in lines:
                self._take(connection, line, actor, reason, take_over, done)
            return done

        taken: Taken = await self._write(job)
        return taken

    def _take(
        self, connection: apsw.Connection, line: Line, actor: str, reason: str, take_over: bool, done: Taken
    ) -> None:
        ident: UUID = line["events"][0]["id"]
        if _known(connection, ident):
            done.known += 1
            return
        other = met(line)
        if other is not None and not _known(connection, other):
            done.waiting.append(ident)
            return
        connection.execute(SQL["savepoint"])
        here = arriving(line, take_over)
        if not _own(connection, here):
            connection.execute(SQL["back"])
            done.taken.append(ident)
            return
        _insert(connection, here)
        states = (line["events"][0]["state"], here["events"][0]["state"])
        connection.execute(SQL["note"], (self._now(), new_id().bytes, actor, reason, ident.bytes, *states))
        done.new += 1
        done.held += is_held(here)


def _identities(connection: apsw.Connection, event_ids: Sequence[UUID]) -> dict[UUID, list[dict[str, Any]]]:
    found: dict[UUID, list[dict[str, Any]]] = {ident: [] for ident in event_ids}
    for row in rows(connection, SQL["identities"], (_list(event_ids),)):
        found[UUID(bytes=row["event_id"])].append(_values("identities", row))
    return found


def _rows(connection: apsw.Connection, event_id: UUID) -> Line | None:
    line: Line = {}
    for table in ("events", "deliveries", "attempts", "effects", "effect_calls", "actions"):
        found = rows(connection, SQL[table], (event_id.bytes,))
        line[table] = [_values(table, row) for row in found]
    if not line["events"]:
        return None
    needed = _list([row["request_id"] for row in line["deliveries"]])
    line["requests"] = [_values("requests", row) for row in rows(connection, SQL["requests"], (needed,))]
    return line


def _list(idents: Sequence[UUID]) -> str:
    return msgspec.json.encode([ident.hex for ident in idents]).decode()


def _values(table: str, row: Row) -> dict[str, Any]:
    return {name: _convert(_OUT, kind, row[name]) for name, kind in TABLES[table].items()}


def _convert(ways: dict[str, Callable[[Any], Any]], kind: str, value: Any) -> Any:
    return value if value is None or kind not in ways else ways[kind](value)


def _known(connection: apsw.Connection, ident: UUID) -> bool:
    return bool(rows(connection, SQL["known"], (ident.bytes,))[0][0])


def _own(connection: apsw.Connection, line: Line) -> bool:
    """Whether its own identities are nobody's here; then they are taken."""
    own = set(own_identities(line))
    return all(_add(connection, "identities", row) or row["identity"] not in own for row in line["identities"])


def _insert(connection: apsw.Connection, line: Line) -> None:
    connection.execute(SQL["know_source"], (line["events"][0]["source"],))
    for table in ("requests", "deliveries", "attempts", "actions"):
        for row in line[table]:
            _add(connection, table, row)
    if not _add(connection, "events", line["events"][0]):
        raise BadData(f"event {line['events'][0]['id']} was made of a delivery that another event has")
    new = set()
    for row in line["effects"]:
        if _add(connection, "effects", row):
            new.add(row["identity"])
    for row in line["effect_calls"]:
        if row["identity"] in new:
            _add(connection, "effect_calls", row)


def _add(connection: apsw.Connection, table: str, row: dict[str, Any]) -> bool:
    columns = TABLES[table]
    values = [_convert(_IN, kind, row[name]) for name, kind in columns.items()]
    sql = SQL["add"].replace("{table}", table).replace("{names}", ", ".join(columns))
    return bool(rows(connection, sql.replace("{values}", ", ".join("?" * len(values))), values))
