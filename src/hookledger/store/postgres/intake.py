"""Intake on PostgreSQL: one transaction, one fsync, for a whole batch of arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from asyncpg import Connection

from ...model import Arrival, Recorded
from ...states import DeliveryOutcome, State
from ..judge import Judgement, Owner, judge, proposals
from ..rows import delivery_values, event_values, request_values

Sql = Callable[[str], str]

_NEW = frozenset({DeliveryOutcome.ACCEPTED, DeliveryOutcome.INVALID})


def columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as one array per column, for unnest()."""
    return [list(column) for column in zip(*rows, strict=True)]


async def record(connection: Connection[Any], sql: Sql, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
    """Take the identities, look up who owns the taken ones, judge, write, commit."""
    await connection.execute(sql("begin_intake"))
    try:
        judgement = judge(arrivals, await _owners(connection, sql, arrivals))
        await _write(connection, sql, judgement)
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return by_arrival(arrivals, judgement)


async def _owners(connection: Connection[Any], sql: Sql, arrivals: Sequence[Arrival]) -> dict[bytes, Owner]:
    wanted = proposals(arrivals)
    taken = {p.identity for p in wanted}
    for row in await connection.fetch(sql("take_identities"), *columns(wanted)):
        taken.discard(row[0])
    owners = {p.identity: Owner(p.event_id, p.fingerprint) for p in wanted}
    if taken:
        for identity in taken:
            del owners[identity]
        for identity, event_id, fingerprint, state in await connection.fetch(sql("owners"), list(taken)):
            owners[identity] = Owner(event_id, fingerprint, State(state) if state else None)
    return owners


async def _write(connection: Connection[Any], sql: Sql, judgement: Judgement) -> None:
    new = [v for v in judgement.verdicts if v.recorded.outcome in _NEW]
    again = [v for v in judgement.verdicts if v.recorded.outcome not in _NEW]
    kept = {
        v.arrival.id: v.arrival
        for v in judgement.verdicts
        if v.recorded.outcome is not DeliveryOutcome.DUPLICATE
    }
    if kept:
        await connection.execute(sql("keep_requests"), *columns(map(request_values, kept.values())))
    if new:
        await connection.execute(sql("add_events"), *columns(map(event_values, new)))
    if again:
        await connection.execute(sql("add_deliveries"), *columns(map(delivery_values, again)))
    if judgement.repoint:
        await connection.execute(sql("repoint"), *columns(judgement.repoint.items()))


def by_arrival(arrivals: Sequence[Arrival], judgement: Judgement) -> list[list[Recorded]]:
    """The verdicts, grouped as the arrivals were."""
    verdicts = iter(judgement.verdicts)
    return [[next(verdicts).recorded for _ in arrival.items] for arrival in arrivals]
