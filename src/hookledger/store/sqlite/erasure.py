"""Erasure on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import apsw

from ...errors import WrongState
from ...identities import new_id
from ...retention import Erased
from ...states import EffectKind, EffectState, State
from ..erasure import Finished, Left, check, check_effects, check_finished, check_others, key_left, reason_left
from ..queries import load
from .connection import Row, Run, rows

SQL = load(__package__, "erasure.sql")


class SqliteErasure:
    def __init__(self, write: Run, now: Callable[[], int]) -> None:
        self._write = write
        self._now = now

    async def erase(
        self,
        event_id: UUID,
        expected: State,
        seen: int,
        actor: str,
        reason: str,
        *,
        key_too: bool = False,
        whole_request: bool = False,
        dry: bool = False,
    ) -> Erased:
        def job(connection: apsw.Connection) -> Erased:
            requests, idents = _together(connection, event_id, whole_request)
            events = [_finished(row) for ident in idents for row in rows(connection, SQL["event"], (ident,))]
            check({event.id: event for event in events}.get(event_id), event_id, expected, seen)
            effects = [row for ident in idents for row in rows(connection, SQL["effects"], (ident,))]
            for event in events:
                check_finished(event)
                check_effects(event.id, [_left(row) for row in effects if row["event_id"] == event.id.bytes])
            tried, now = 0, self._now()
            if not dry:
                tried = _empty(connection, now, events, requests, key_too)
                _empty_effects(connection, effects, key_too)
                for event in events:
                    note = (now, new_id().bytes, actor, reason, event.id.bytes, event.state.value)
                    connection.execute(SQL["note"], note)
            return Erased(tuple(event.id for event in events), len(requests), len(effects), tried)

        erased: Erased = await self._write(job)
        return erased

    async def erase_effects(self, event_id: UUID, actor: str, reason: str, *, key_too: bool = False) -> int:
        def job(connection: apsw.Connection) -> int:
            effects = rows(connection, SQL["effects"], (event_id.bytes,))
            was = rows(connection, SQL["was"], (event_id.bytes,))
            if not was:
                raise WrongState(f"event {event_id} was not pruned")
            _empty_effects(connection, effects, key_too)
            connection.execute(SQL["empty_items"], (event_id.bytes,))
            note = (self._now(), new_id().bytes, actor, reason, event_id.bytes, was[0][0])
            connection.execute(SQL["note"], note)
            return len(effects)

        number: int = await self._write(job)
        return number


def _together(connection: apsw.Connection, event_id: UUID, whole: bool) -> tuple[list[bytes], list[bytes]]:
    """The requests that are to be emptied, and the events that these brought."""
    idents, requests = {event_id.bytes}, set[bytes]()
    while True:
        found = {row[0] for ident in idents for row in rows(connection, SQL["requests"], (ident,))}
        brought = {row[0] for request in found for row in rows(connection, SQL["brought"], (request,))}
        met = {row[0] for request in found for row in rows(connection, SQL["met"], (request,))}
        others = sorted((brought | met) - idents - {event_id.bytes})
        check_others(event_id, [UUID(bytes=ident) for ident in others], whole)
        if found == requests and brought <= idents:
            return sorted(requests), sorted(idents)
        requests, idents = found, idents | brought


def _empty(
    connection: apsw.Connection, now: int, events: Sequence[Finished], requests: list[bytes], key_too: bool
) -> int:
    tried = 0
    for request in requests:
        connection.execute(SQL["forget_refused"], (request,))
        connection.execute(SQL["empty_request"], (now, request))
        if key_too:
            connection.execute(SQL["empty_deliveries"], (request,))
    for event in events:
        connection.execute(SQL["forget_repair"], (event.id.bytes,))
        values = (now, event.id.bytes, reason_left(event), key_left(event.key, key_too))
        connection.execute(SQL["empty_event"], values)
        connection.execute(SQL["empty_items"], (event.id.bytes,))
        tried += len(rows(connection, SQL["empty_attempts"], (event.id.bytes,)))
        if key_too:
            connection.execute(SQL["empty_again"], (event.id.bytes,))
    return tried


def _empty_effects(connection: apsw.Connection, effects: Sequence[Row], key_too: bool) -> None:
    for row in effects:
        connection.execute(SQL["empty_effect"], (row["identity"], key_left(row["key"], key_too)))
        connection.execute(SQL["empty_calls"], (row["identity"],))
    if rows(connection, SQL["keeps_replaced"]):
        for event_id in {row["event_id"] for row in effects}:
            connection.execute(SQL["empty_actions"], (event_id,))
    for row in effects:
        connection.execute(SQL["forget_lane"], (row["name"], row["lane"]))


def _finished(row: Row) -> Finished:
    return Finished(UUID(bytes=row["id"]), State(row["state"]), row["claim"], row["reason"], row["key"])


def _left(row: Row) -> Left:
    return Left(f"{row['name']}:{row['key']}", EffectKind(row["kind"]), EffectState(row["state"]))
