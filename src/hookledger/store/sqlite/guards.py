"""Guards in a handler's transaction on SQLite: the write lock is held, so what is read stays so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import apsw

from ...errors import ChangedVersion
from ...ledger import Guard, GuardAnswer, GuardRequest, answered, changed_kind, tie_of
from ..rows import value_of
from .connection import EPOCH, read_rows

Queries = Callable[[str], str]
MICROSECOND = timedelta(microseconds=1)


def ask(connection: apsw.Connection, sql: Queries, now: int, request: GuardRequest) -> GuardAnswer:
    """Return the answer, recorded."""
    found = read_rows(connection, sql("guard"), (request.identity,))
    guard = value_of(Guard, found[0]) if found else None
    if guard is not None and guard.kind != request.kind and not request.approved:
        raise ChangedVersion(changed_kind(request, guard.kind, guard.version, guard.event_id))
    tie = None if guard is None else tie_of(request, guard)
    if guard is not None and _is_stale(request, guard):
        answer = answered(request, False, tie, guard.version, guard.event_id, guard.event_key)
        note_stale(connection, sql, now, answer)
        return answer
    if guard is None:
        answer = answered(request, True, None, None, None, None)
    elif guard.event_id == request.event_id:
        answer = answered(request, True, guard.tie, guard.replaced_version, guard.replaced_event_id, None)
    else:
        answer = answered(request, True, tie, guard.version, guard.event_id, None)
    ties = (0 if guard is None else guard.ties) + (tie is not None)
    connection.execute(sql("set_guard"), (now, *_values(request), ties, *_other(answer)))
    _record(connection, sql, now, answer)
    return answer


def note_stale(connection: apsw.Connection, sql: Queries, now: int, answer: GuardAnswer) -> None:
    """Record a stale answer, and count a tie."""
    _record(connection, sql, now, answer)
    if answer.tie is not None:
        connection.execute(sql("count_tie"), (answer.identity,))


def _is_stale(request: GuardRequest, guard: Guard) -> bool:
    same = guard.event_id == request.event_id or guard.kind != request.kind
    return not same and request.order < guard.order


def _record(connection: apsw.Connection, sql: Queries, now: int, answer: GuardAnswer) -> None:
    about = answer.event_id.bytes, answer.claim, answer.identity, answer.name, answer.key
    version = answer.kind, answer.version, answer.position, answer.rank
    connection.execute(sql("answer"), (now, *about, *version, answer.applied, *_other(answer)))


def _values(request: GuardRequest) -> tuple[Any, ...]:
    received = (request.received_at - EPOCH) // MICROSECOND
    named = request.identity, request.source, request.name, request.key
    version = request.kind, request.version, request.position, request.rank
    return *named, *version, received, request.event_id.bytes, request.event_key, request.claim


def _other(answer: GuardAnswer) -> tuple[Any, ...]:
    return answer.tie, answer.other_version, answer.other_event_id and answer.other_event_id.bytes
