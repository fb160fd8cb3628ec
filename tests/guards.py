"""Requests to guards, as `event.newer` makes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hookledger.effects.version import read_version
from hookledger.ids import identity
from hookledger.ledger import MIDDLE, Guard, GuardAnswer, GuardRequest
from hookledger.model import Claimed
from hookledger.store.protocol import Store
from hookledger.store.rows import value_of
from tests.builders import Raw, way_out

NAME, KEY = "subscription", "sub_1"


def request(
    owner: Claimed,
    version: Any,
    key: str = KEY,
    *,
    name: str = NAME,
    rank: int = MIDDLE,
    received_at: datetime | None = None,
    approved: bool = False,
) -> GuardRequest:
    """What an attempt asks; `received_at`: of the event, if that is not when it was recorded."""
    read = read_version(version)
    return GuardRequest(
        identity(owner.source, b"guard", name.encode(), key.encode("utf-8", "replace")),
        owner.source,
        name,
        key,
        owner.id,
        owner.key,
        owner.claim,
        read.text,
        read.kind,
        read.position,
        rank,
        received_at or owner.received_at,
        approved,
    )


async def ask(store: Store, owner: Claimed, version: Any, key: str = KEY, **other: Any) -> GuardAnswer:
    """Ask in a transaction that is committed with the event's outcome."""
    tx = store.transaction()
    answer = await tx.newer(request(owner, version, key, **other))
    await tx.commit([way_out(owner, "complete")])
    return answer


async def guard(store: Store, key: str = KEY, *, name: str = NAME, source: str = "stripe") -> Guard | None:
    """The guard as it is now."""
    ident = identity(source, b"guard", name.encode(), key.encode())
    rows = await store._database.read(lambda db: db("guards", identities=[ident]))
    return value_of(Guard, rows[0]) if rows else None


async def ties(raw: Raw, key: str = KEY) -> int:
    [(number,)] = await raw.run(f"SELECT ties FROM guards WHERE key = '{key}'")
    assert isinstance(number, int)
    return number
