"""Values that tests need often: arrivals with sensible defaults, events driven to a state, raw SQL on a store."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal
from uuid import UUID

from hookledger.clock import Clock
from hookledger.ids import body_identity, key_identity, new_id, token_identity
from hookledger.model import Arrival, Claimed, Headers, Item, Kind, Outcome, Proof, Recorded, pack_headers
from hookledger.states import KeyOrigin, State
from hookledger.store.history import EventRow, History
from hookledger.store.ops.workers import Reclaim
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.connection import rows
from hookledger.store.sqlite.store import SqliteStore

SOURCE = "stripe"
TYPE = "invoice.paid"
KIND = Kind(SOURCE, TYPE)
WORKER = "worker-1"
LEASE = 60.0

Way = Literal["complete", "skip", "reschedule", "wait", "fail", "review", "release"]
WAYS: tuple[Way, ...] = ("complete", "skip", "reschedule", "wait", "fail", "review", "release")


# ── arrivals ─────────────────────────────────────────────────────────────────


def item(
    key: str = "evt_1",
    body: bytes = b"{}",
    *,
    source: str = SOURCE,
    type: str = TYPE,  # noqa: A002 - the model's own word
    unsigned: bool = False,
    group: str = "",
    token: str = "",
    **other: Any,
) -> Item:
    """One event of a request; with `unsigned`, its body is a second identity, which types of one `group` may share;
    `token`: what is signed of it."""
    fingerprint = sha256(body).digest()
    return Item(
        key=key,
        key_origin=KeyOrigin.UNSIGNED_ID if unsigned else KeyOrigin.SIGNED_ID,
        identity=key_identity(source, key.encode()),
        fingerprint=fingerprint,
        type=type,
        body_identity=body_identity(source, fingerprint) if unsigned else None,
        type_identity=body_identity(source, fingerprint, type) if group else None,
        body_group=group.encode(),
        token_identities=(token_identity(source, token.encode()),) if token else (),
        **other,
    )


def arrival(
    *items: Item,
    source: str = SOURCE,
    body: bytes = b"{}",
    query: bytes = b"",
    headers: Headers = (),
    remote: str | None = None,
    proof: Proof | None = None,
) -> Arrival:
    """One authentic request that carries these items; one plain item if none is given."""
    items = items or (item(body=body, source=source),)
    event_ids = tuple(new_id() for _ in items)
    return Arrival(
        id=event_ids[0],
        source=source,
        query=query,
        headers=pack_headers(headers),
        body=body,
        remote=remote,
        proof=proof or Proof("hmac-sha256", "f1ng3r"),
        items=items,
        event_ids=event_ids,
    )


def delivered(key: str = "evt_1", body: bytes = b"{}", **other: Any) -> Arrival:
    """One request with one event in it."""
    return arrival(item(key, body, **other), body=body, source=other.get("source", SOURCE))


# ── a store, driven ──────────────────────────────────────────────────────────


async def record(store: Store, *arrivals: Arrival) -> list[Recorded]:
    """Record all in one batch; the verdicts in one list."""
    return [recorded for group in await store.record(arrivals) for recorded in group]


async def recorded(store: Store, key: str = "evt_1", body: bytes = b"{}", **other: Any) -> UUID:
    """The id of a new event."""
    [verdict] = await record(store, delivered(key, body, **other))
    return verdict.event_id


async def claim(store: Store, kind: Kind = KIND, *, worker: str = WORKER, lease: float = LEASE) -> Claimed:
    """The one event of this kind that is due."""
    [claimed] = await store.claim(worker, [kind], 1, lease)
    return claimed


async def claimed(store: Store, key: str = "evt_1", **other: Any) -> Claimed:
    """A new event, claimed. It must be the only one due of its kind."""
    await recorded(store, key, **other)
    return await claim(store, Kind(other.get("source", SOURCE), other.get("type", TYPE)))


def way_out(owner: Claimed, way: Way, **other: Any) -> Outcome:
    """An outcome with what its target state demands."""
    if way in ("skip", "fail", "review"):
        other.setdefault("reason", "because")
    return Outcome(owner.id, owner.claim, way, **other)


async def settle(store: Store, owner: Claimed, way: Way, **other: Any) -> bool:
    """Whether the outcome was accepted."""
    return await store.settle([way_out(owner, way, **other)]) == {owner.id}


async def crash(store: Store, clock: Clock, kind: Kind = KIND, *, due_in: float | None = 0.0) -> Claimed:
    """Claim the one due event of this kind, let the lease run out, and rescue it."""
    owner = await claim(store, kind)
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, due_in, "the worker died")]) == 1
    return owner


async def history(store: Store, event_id: UUID) -> History:
    found = await store.history(event_id)
    assert found is not None
    return found


async def event(store: Store, event_id: UUID) -> EventRow:
    return (await history(store, event_id)).event


_LEAVE: dict[State, Way] = {
    State.RETRYING: "reschedule",
    State.PROCESSED: "complete",
    State.SKIPPED: "skip",
    State.FAILED: "fail",
    State.NEEDS_REVIEW: "review",
    State.DISCARDED: "fail",
}


async def reach(store: Store, state: State, kind: Kind) -> EventRow:
    """A new event of this kind in this state, by legal transitions. The kind must have nothing else due."""
    ident = await recorded(store, key=f"{kind.type}:{new_id()}", source=kind.source, type=kind.type)
    if state is not State.PENDING:
        owner = await claim(store, kind)
        if state is not State.PROCESSING:
            assert await settle(store, owner, _LEAVE[state])
    if state is State.DISCARDED:
        await store.discard(ident, State.FAILED, "ada", "closed")
    row = await event(store, ident)
    assert row.state is state
    return row


# ── raw SQL ──────────────────────────────────────────────────────────────────


class Raw:
    """SQL on the store's own connection, in one transaction; tables are named without their schema."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        store = self._store
        if isinstance(store, SqliteStore):
            return [tuple(row) for row in await store._write(lambda connection: rows(connection, sql))]
        assert isinstance(store, PostgresStore)
        async with store._opened().bare() as connection, connection.transaction():
            await connection.execute(store.sql.render("SET LOCAL search_path = {schema}, public"))
            return [tuple(row) for row in await connection.fetch(sql)]

    async def all(self, table: str) -> list[tuple[Any, ...]]:
        """Every row of one table, whole, in a stable order."""
        return sorted(await self.run(f"SELECT * FROM {table}"), key=repr)

    async def count(self, table: str) -> int:
        [(n,)] = await self.run(f"SELECT count(*) FROM {table}")
        assert isinstance(n, int)
        return n

    def ident(self, value: UUID) -> str:
        """An id as a literal."""
        return f"x'{value.hex}'" if isinstance(self._store, SqliteStore) else f"'{value}'::uuid"

    @property
    def now(self) -> str:
        """Some moment, as an expression."""
        return "1700000000000000" if isinstance(self._store, SqliteStore) else "to_timestamp(1700000000)"

    @property
    def never(self) -> str:
        """When an ordered event is due whose turn it is not."""
        return "253370764800000000" if isinstance(self._store, SqliteStore) else "'9999-01-01 00:00:00+00'"


def keys(rows_: Sequence[Claimed]) -> list[str]:
    return [row.key for row in rows_]
