"""Intake on SQLite: one BEGIN IMMEDIATE, one fsync, for a whole batch of arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import apsw

from ...model import Arrival, Recorded
from ...states import DeliveryOutcome, State
from ..judge import Judgement, Owner, judge, proposals
from ..rows import delivery_values, event_values, request_values

Sql = Callable[[str], str]

_NEW = frozenset({DeliveryOutcome.ACCEPTED, DeliveryOutcome.INVALID})


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def record(
    connection: apsw.Connection, sql: Sql, now: int, arrivals: Sequence[Arrival]
) -> list[list[Recorded]]:
    """Take the identities, look up who owns the taken ones, judge, write. The caller commits."""
    judgement = judge(arrivals, _owners(connection, sql, arrivals))
    _write(connection, sql, now, judgement)
    verdicts = iter(judgement.verdicts)
    return [[next(verdicts).recorded for _ in arrival.items] for arrival in arrivals]


def _owners(connection: apsw.Connection, sql: Sql, arrivals: Sequence[Arrival]) -> dict[bytes, Owner]:
    wanted = proposals(arrivals)
    owners = {p.identity: Owner(p.event_id, p.fingerprint) for p in wanted}
    values = [(p.identity, p.kind, p.source, p.event_id.bytes, p.fingerprint) for p in wanted]
    won = {row[0] for row in connection.executemany(sql("take_identities"), values)}
    for identity in owners.keys() - won:
        del owners[identity]
        for _, event_id, fingerprint, state in connection.execute(sql("owner"), (identity,)):
            owners[identity] = Owner(UUID(bytes=event_id), fingerprint, State(state) if state else None)
    return owners


def _write(connection: apsw.Connection, sql: Sql, now: int, judgement: Judgement) -> None:
    requests: dict[UUID, tuple[Any, ...]] = {}
    events: list[tuple[Any, ...]] = []
    deliveries: list[tuple[Any, ...]] = []
    for verdict in judgement.verdicts:
        outcome = verdict.recorded.outcome
        if outcome is not DeliveryOutcome.DUPLICATE and verdict.arrival.id not in requests:
            ident, *rest, signed_at = request_values(verdict.arrival)
            signed = None if signed_at is None else micros(signed_at)
            requests[ident] = (now, ident.bytes, *rest, signed)
        if outcome in _NEW:
            values = list(event_values(verdict)[:13])  # the rest belongs to the delivery
            values[0], values[9] = values[0].bytes, values[9].bytes
            values[7] = None if values[7] is None else micros(values[7])
            events.append((now, *values))
        request, item, event, *rest = delivery_values(verdict)
        deliveries.append((now, request.bytes, item, event.bytes, *rest))
    for name, batch in (
        ("keep_requests", list(requests.values())),
        ("add_events", events),
        ("add_deliveries", deliveries),
        ("repoint", [(identity, event.bytes) for identity, event in judgement.repoint.items()]),
    ):
        if batch:
            connection.executemany(sql(name), batch)
