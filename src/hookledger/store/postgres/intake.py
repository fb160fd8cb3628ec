"""Intake on PostgreSQL: one transaction, one fsync, for a whole batch of arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from asyncpg import Connection

from ...model import Arrival, Recorded
from ...states import DeliveryOutcome, State
from ..causes import failure_cause
from ..classify import Classification, Owner, Verdict, classify, conflicts, first_state, new_outcome, proposals
from ..first_claim import first_claim, may_begin
from ..ops.answers import Claim
from ..rows import Content, keeping, unheld
from .connection import BEGIN, transaction

Sql = Callable[[str], str]


def columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as one array per column, for unnest()."""
    return [list(column) for column in zip(*rows, strict=True)]


async def record_new(
    connection: Connection[Any], sql: Sql, arrivals: Sequence[Arrival]
) -> list[list[Recorded] | None]:
    """What is plainly new, in one round trip; None for what has to be looked at."""
    hopeful: dict[bytes, tuple[Arrival, list[Recorded]]] = {}
    rows = []
    for arrival in arrivals:
        if is_plain(arrival):
            [item], [event_id] = arrival.items, arrival.event_ids
            if item.identity not in hopeful:
                new = Recorded(new_outcome(item), event_id)
                hopeful[item.identity] = arrival, [new]
                rows.append(_arrival(Verdict(arrival, 0, item, new), arrival.body))
    if not rows:
        return [None] * len(arrivals)
    won = await connection.fetch(sql("add_new"), rows, None, None)
    if len(won) == len(arrivals):  # as most groups are
        return [recorded for _, recorded in hopeful.values()]
    found = {}
    for identity, _ in won:
        arrival, recorded = hopeful[identity]
        found[id(arrival)] = recorded
    return [found.get(id(arrival)) for arrival in arrivals]


def is_plain(arrival: Arrival) -> bool:
    """Whether one identity alone decides whether it is new."""
    return len(arrival.items) == 1 and arrival.items[0].by_key_alone


async def claim_new(
    connection: Connection[Any], sql: Sql, arrivals: Sequence[Arrival], worker: str, lease: float
) -> list[Claim | None]:
    """What is plainly new and may be claimed, in one round trip; None for what has to be looked at."""
    hopeful: dict[bytes, Arrival] = {}
    for arrival in arrivals:
        if is_plain(arrival) and may_begin(arrival):
            hopeful.setdefault(arrival.items[0].identity, arrival)
    rows = [_claimed_arrival(arrival) for arrival in hopeful.values()]
    found = {}
    for identity, now in await connection.fetch(sql("add_new"), rows, worker, lease) if rows else ():
        arrival = hopeful[identity]
        recorded = Recorded(DeliveryOutcome.ACCEPTED, arrival.event_ids[0])
        found[id(arrival)] = Claim(recorded, first_claim(arrival, now), None)
    return [found.get(id(arrival)) for arrival in arrivals]


def _claimed_arrival(arrival: Arrival) -> tuple[Any, ...]:
    """Of an event that begins in `processing`."""
    recorded = Recorded(DeliveryOutcome.ACCEPTED, arrival.event_ids[0])
    return _arrival(Verdict(arrival, 0, arrival.items[0], recorded), arrival.body, State.PROCESSING)


async def record(connection: Connection[Any], sql: Sql, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
    """Take the identities, look up who owns the taken ones, classify, write, commit."""
    if not any(arrival.items for arrival in arrivals):
        return [[] for _ in arrivals]
    async with transaction(connection, BEGIN):
        classification = await record_inside(connection, sql, arrivals)
    return classification.by_arrival(arrivals)


async def record_inside(connection: Connection[Any], sql: Sql, arrivals: Sequence[Arrival]) -> Classification:
    """The same inside the caller's transaction, which must be read committed."""
    classification = classify(arrivals, await _owners(connection, sql, arrivals))
    await _write(connection, sql, classification)
    return classification


async def _owners(connection: Connection[Any], sql: Sql, arrivals: Sequence[Arrival]) -> dict[bytes, Owner]:
    wanted = proposals(arrivals)
    taken = {p.identity for p in wanted}
    for row in await connection.fetch(sql("take_identities"), wanted):
        taken.discard(row[0])
    owners = {p.identity: Owner(p.event_id, p.fingerprint) for p in wanted}
    if taken:
        for identity in taken:
            del owners[identity]
        owners |= await _known(connection, sql, taken)
    if conflicting := conflicts(arrivals, owners):
        owners |= await _known(connection, sql, conflicting)
    return owners


async def _known(connection: Connection[Any], sql: Sql, identities: set[bytes]) -> dict[bytes, Owner]:
    rows = await connection.fetch(sql("owners"), list(identities))
    return {
        identity: Owner(event_id, fingerprint, State(state) if state else None, content)
        for identity, event_id, fingerprint, state, content in rows
    }


async def _write(connection: Connection[Any], sql: Sql, classification: Classification) -> None:
    held: list[Content] = []
    if wanted := unheld(classification.verdicts):
        held = [tuple(row) for row in await connection.fetch(sql("bodies_held"), *columns(wanted))]
    rows = [_arrival(verdict, body) for verdict, body in keeping(classification.verdicts, held)]
    await connection.execute(sql("write"), rows)
    if classification.repoint:
        repointed = columns((identity, *owner) for identity, owner in classification.repoint.items())
        await connection.execute(sql("repoint"), *repointed)
    if classification.release:
        await connection.execute(sql("release"), list(classification.release))


def _arrival(verdict: Verdict, body: bytes | None, begins: State | None = None) -> tuple[Any, ...]:
    """The composite type `arrival_with_version`; a request that is not kept has no body there. `begins`: the event's
    state, if that is not its first."""
    arrival, place, item, recorded, _ = verdict
    proof = arrival.proof
    state, reason = first_state(item)
    return (
        arrival.id,
        place,
        arrival.source,
        arrival.query,
        arrival.headers,
        body,
        arrival.remote,
        proof.scheme,
        proof.secret,
        proof.signed_at,
        recorded.event_id,
        item.type,
        item.key,
        item.key_origin,
        item.provider_id,
        item.object_id,
        item.occurred_at,
        item.fingerprint,
        begins or state,
        reason,
        recorded.outcome,
        recorded.state,
        item.delivery_id,
        item.identity,
        item.account,
        item.retry,
        item.entity,
        item.ordered,
        item.order_at,
        item.hold,
        item.version,
        failure_cause(state, reason),
    )
