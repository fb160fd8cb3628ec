"""How often an event came again: its first delivery is none of these, whatever it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from hookledger.store.protocol import Store
from tests.builders import Raw, arrival, delivered, event, item, record, recorded

First = Callable[[Store], Awaitable[UUID]]


async def invalid(store: Store, key: str = "evt_1") -> UUID:
    [verdict] = await record(store, arrival(item(key, invalid="not JSON")))
    assert verdict.outcome == "invalid"
    return verdict.event_id


async def reconciled(store: Store, key: str = "evt_1") -> UUID:
    """As reconciliation will take it in."""
    ident, raw = await recorded(store, key), Raw(store)
    await raw.run(f"UPDATE deliveries SET outcome = 'reconciled' WHERE event_id = {raw.ident(ident)}")
    assert await raw.run("SELECT outcome FROM deliveries") == [("reconciled",)]
    return ident


@pytest.mark.parametrize("first", [recorded, invalid, reconciled])
async def test_the_first_delivery_is_not_again(store: Store, first: First) -> None:
    ident = await first(store)
    assert await store.alerts.again([ident]) == {ident: 0}
    assert (await event(store, ident)).deliveries == 1
    await record(store, delivered(), delivered(), delivered(body=b"changed"))
    assert await store.alerts.again([ident]) == {ident: 3}
    assert (await event(store, ident)).deliveries == 4


async def test_counted_no_further_than_a_thousand(store: Store) -> None:
    ident = await recorded(store)
    await record(store, *(delivered() for _ in range(1001)))
    assert await store.alerts.again([ident]) == {ident: 1000}
