"""Intake on SQLite: one BEGIN IMMEDIATE, one fsync, for a whole batch of arrivals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any
from uuid import UUID

import apsw

from ...model import Arrival, Recorded
from ...states import FINAL, DeliveryOutcome, State
from ..causes import failure_cause
from ..classify import Classification, Owner, Proposal, Verdict, all_new, classify, conflicts, first_state, proposals
from ..rows import NEW, Content, keeping, unheld

Sql = Callable[[str], str]

_SIZES = (64, 32, 16, 4, 1)
_ACCEPTED, _PENDING = DeliveryOutcome.ACCEPTED, State.PENDING


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def record(connection: apsw.Connection, sql: Sql, now: int, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
    """Take the identities, look up who owns them unless all are ours, classify, write. The caller commits."""
    wanted = proposals(arrivals)
    values = [(p.identity, p.kind, p.source, p.event_id.bytes, p.fingerprint) for p in wanted]
    won = insert(connection, sql("take_identities"), values)
    classification = all_new(arrivals, won) or classify(arrivals, _owners(connection, sql, arrivals, wanted))
    _write(connection, sql, now, classification)
    return classification.by_arrival(arrivals)


def _owners(
    connection: apsw.Connection, sql: Sql, arrivals: Sequence[Arrival], wanted: Iterable[Proposal]
) -> dict[bytes, Owner]:
    owners = dict(_known(connection, sql, [p.identity for p in wanted]))
    owners.update(_known(connection, sql, conflicts(arrivals, owners)))
    return owners


def _known(connection: apsw.Connection, sql: Sql, identities: Iterable[bytes]) -> Iterator[tuple[bytes, Owner]]:
    for identity in identities:
        for _, event_id, fingerprint, state, content in connection.execute(sql("owner"), (identity,)):
            yield identity, Owner(UUID(bytes=event_id), fingerprint, State(state) if state else None, content)


def _write(connection: apsw.Connection, sql: Sql, now: int, classification: Classification) -> None:
    requests: list[tuple[Any, ...]] = []
    events: list[tuple[Any, ...]] = []
    deliveries: list[tuple[Any, ...]] = []
    for verdict, body in keeping(classification.verdicts, _held(connection, sql, classification)):
        outcome = verdict.recorded.outcome
        request_id, event_id = verdict.arrival.id.bytes, verdict.recorded.event_id.bytes
        if body is not None:
            requests.append(_request(now, request_id, verdict.arrival, body))
        if outcome is _ACCEPTED or outcome in NEW:  # it is in there too, but to hash a member of an enum is a call
            events.append(_event(now, request_id, event_id, verdict))
        deliveries.append(_delivery(now, request_id, event_id, verdict))
    insert(connection, sql("keep_requests"), requests)
    insert(connection, sql("add_events"), events)
    insert(connection, sql("add_deliveries"), deliveries)
    for identity, (event, fingerprint) in classification.repoint.items():
        connection.execute(sql("repoint"), (identity, event.bytes, fingerprint))
    for identity in classification.release:
        connection.execute(sql("release"), (identity,))


def _held(connection: apsw.Connection, sql: Sql, classification: Classification) -> list[Content]:
    asked = sql("bodies_held")
    return [
        (event_id, fingerprint)
        for event_id, fingerprint in unheld(classification.verdicts)
        if connection.execute(asked, (event_id.bytes, fingerprint)).fetchall()
    ]


def insert(connection: apsw.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """How many of them were not there before."""
    before = connection.total_changes()
    ask(connection, statement, rows)
    return connection.total_changes() - before


def ask(connection: apsw.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Many rows a statement: each one that runs gives up the interpreter's lock and has to win it back."""
    answers: list[Any] = []
    start = 0
    while start < len(rows):
        size = next(size for size in _SIZES if size <= len(rows) - start)
        values = list(chain.from_iterable(rows[start : start + size]))
        answers += connection.execute(_repeated(statement, size), values).fetchall()
        start += size
    return answers


@cache
def _repeated(statement: str, size: int) -> str:
    """Return the statement with its one row of placeholders repeated `size` times."""
    row = re.search(r"\((?:\?, )*\?\)", statement)
    assert row is not None
    return statement.replace(row[0], ", ".join([row[0]] * size))


def _delivery(now: int, request_id: bytes, event_id: bytes, verdict: Verdict) -> tuple[Any, ...]:
    arrival, place, item, recorded, _ = verdict
    return (
        now,
        request_id,
        place,
        event_id,
        arrival.source,
        recorded.outcome,
        recorded.state,
        item.delivery_id,
        item.fingerprint,
        item.retry,
    )


def _request(now: int, request_id: bytes, arrival: Arrival, body: bytes) -> tuple[Any, ...]:
    proof = arrival.proof
    signed = None if proof.signed_at is None else micros(proof.signed_at)
    return (
        now,
        request_id,
        arrival.source,
        arrival.query,
        arrival.headers,
        body,
        arrival.remote,
        proof.scheme,
        proof.secret,
        signed,
    )


def _event(now: int, request_id: bytes, event_id: bytes, verdict: Verdict) -> tuple[Any, ...]:
    arrival, place, item, *_ = verdict
    state, reason = first_state(item)
    due = now if state is _PENDING else None
    finished = now if due is None and state in FINAL else None
    return (
        now,
        now,
        due,
        finished,
        event_id,
        arrival.source,
        item.type,
        item.key,
        item.key_origin,
        item.provider_id,
        item.object_id,
        None if item.occurred_at is None else micros(item.occurred_at),
        item.fingerprint,
        request_id,
        place,
        state,
        reason,
        failure_cause(state, reason),
        item.account,
        item.entity,
        None if not item.ordered else now if item.order_at is None else micros(item.order_at),
        int(item.hold),
        item.version,
    )
