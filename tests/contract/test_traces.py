"""Traces continue across processes: what attempts and planned effects keep of them."""

from __future__ import annotations

import pytest

from hookledger.errors import StoreError
from hookledger.ids import new_id
from hookledger.store.protocol import Store
from tests.builders import Raw, claim, claimed, history, settle, way_out
from tests.ledger import finish, get, plan, start, take

FIRST, SECOND = (f"00-{n:032x}-{n:016x}-01" for n in (1, 2))


async def test_the_last_attempt_that_was_traced(store: Store) -> None:
    owner = await claimed(store)
    assert await store.last_traceparent(owner.id) is None
    assert await settle(store, owner, "reschedule", traceparent=FIRST)
    assert await store.last_traceparent(owner.id) == FIRST
    owner = await claim(store)
    assert await settle(store, owner, "wait", traceparent=SECOND)
    owner = await claim(store)
    assert await settle(store, owner, "reschedule")
    assert await store.last_traceparent(owner.id) == SECOND, "one without a span hides none"
    assert [row.traceparent for row in (await history(store, owner.id)).attempts] == [FIRST, SECOND, None]
    assert await store.last_traceparent(new_id()) is None


async def test_in_the_handlers_transaction(store: Store) -> None:
    owner = await claimed(store)
    transaction = store.transaction()
    await transaction.tx.execute("SELECT 1")
    await transaction.commit([way_out(owner, "complete", traceparent=FIRST)])
    assert await store.last_traceparent(owner.id) == FIRST


async def test_a_planned_effect_says_where_it_comes_from(store: Store) -> None:
    owner = await claimed(store)
    [identity] = await plan(store, owner, "k", traceparent=FIRST, correlation_id="req-1")
    await plan(store, owner, "l", name="other")
    [taken] = await take(store)
    [other] = await take(store, "other")
    assert (taken.identity, taken.traceparent, taken.correlation_id) == (identity, FIRST, "req-1")
    assert (other.traceparent, other.correlation_id) == (None, None)
    started = await start(store, owner, "m", name="third")
    assert (await get(store, started.identity)).correlation_id is None


async def test_an_erased_effect_has_no_correlation_id(store: Store) -> None:
    owner = await claimed(store)
    [identity] = await plan(store, owner, "k", traceparent=FIRST, correlation_id="req-of-ada")
    [taken] = await take(store)
    await finish(store, taken.identity, 1, "done")
    await settle(store, owner, "complete")
    event = (await history(store, owner.id)).event
    await store.erasure.erase(event.id, event.state, event.claim, "ada", "asked for")
    assert (await get(store, identity)).correlation_id is None


@pytest.mark.parametrize("value", ["'x'", "''"])
async def test_impossible_values_are_refused(store: Store, raw: Raw, value: str) -> None:
    owner = await claimed(store)
    await settle(store, owner, "reschedule")
    with pytest.raises(StoreError):
        await raw.run(f"UPDATE attempts SET traceparent = {value}")
