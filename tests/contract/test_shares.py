"""Claims in shares: each has its own limit, whatever waits in the others."""

from __future__ import annotations

import asyncio
from collections import Counter

from hookledger.clock import Clock
from hookledger.model import Kind, Share
from hookledger.operate import pauses
from hookledger.operate.audit import by
from hookledger.operate.context import Context
from hookledger.states import State
from hookledger.store.protocol import Store
from tests.builders import LEASE, Raw, delivered, keys, record, recorded
from tests.contract.conftest import OpenStore

A, A2, B, C = Kind("a", "t"), Kind("a", "u"), Kind("b", "t"), Kind("c", "t")


async def fill(store: Store, kind: Kind, count: int) -> None:
    await record(
        store,
        *(delivered(f"{kind.source}.{kind.type}.{n}", source=kind.source, type=kind.type) for n in range(count)),
    )


async def test_each_share_has_its_own_limit(store: Store, clock: Clock) -> None:
    """Also if all of another source's events have been due for longer."""
    await fill(store, A, 50)
    clock.offset += 1
    await fill(store, B, 50)
    await fill(store, C, 1)
    got = await store.claim_shares("w", [Share((A,), 5), Share((B,), 3), Share((C,), 9)], LEASE)
    assert Counter(one.source for one in got) == {"a": 5, "b": 3, "c": 1}
    assert [one.source for one in got] == ["a"] * 5 + sorted(one.source for one in got[5:]), "the longest due first"
    assert (await store.counts())[State.PROCESSING] == 9


async def test_the_longest_due_of_all_kinds_of_a_share(store: Store, clock: Clock) -> None:
    for n, kind in enumerate([A, A2, B, A2, A, B]):
        clock.offset += 1
        await recorded(store, f"evt_{n}", source=kind.source, type=kind.type)
    got = await store.claim_shares("w", [Share((A2, A), 3), Share((B,), 1)], LEASE)
    assert keys(got) == ["evt_0", "evt_1", "evt_2", "evt_3"]
    got = await store.claim_shares("w", [Share((A2, A), 3), Share((B,), 1)], LEASE)
    assert keys(got) == ["evt_4", "evt_5"]


async def test_what_a_share_does_not_take_stays_free(store: Store, open_store: OpenStore) -> None:
    await fill(store, A, 10)
    await fill(store, A2, 10)
    assert len(await store.claim_shares("w", [Share((A, A2), 4)], LEASE)) == 4
    assert len(await (await open_store()).claim_shares("v", [Share((A, A2), 100)], LEASE)) == 16


async def test_no_shares_and_shares_without_kinds(store: Store) -> None:
    await fill(store, A, 2)
    assert await store.claim_shares("w", [], LEASE) == []
    assert await store.claim_shares("w", [Share((), 5)], LEASE) == []


async def test_a_paused_kind_leaves_its_share_to_the_others_of_it(store: Store) -> None:
    for kind in (A, A2, B):
        await fill(store, kind, 5)
    await pauses.pause(Context(store), by("ada", "broken"), "a", "t")
    await pauses.pause(Context(store), by("ada", "broken"), "b")
    got = await store.claim_shares("w", [Share((A, A2), 4), Share((B,), 4)], LEASE)
    assert Counter((one.source, one.type) for one in got) == {("a", "u"): 4}


async def test_claimers_with_different_shares_never_get_the_same_event(
    store: Store, open_store: OpenStore, raw: Raw
) -> None:
    for kind in (A, A2, B):
        await fill(store, kind, 100)
    stores = [store, await open_store()]

    async def take(n: int) -> list[str]:
        mine: list[str] = []
        first, second = 1 + n % 3, 1 + n % 4
        shares = [Share((A, A2), first), Share((B,), second)]
        while got := await stores[n % 2].claim_shares(f"w{n}", shares, LEASE):
            each = Counter(one.source for one in got)
            assert each["a"] <= first
            assert each["b"] <= second
            mine += keys(got)
        return mine

    taken = [key for mine in await asyncio.gather(*map(take, range(8))) for key in mine]
    # A claimer may give up while another holds the rest locked: nothing is lost by that.
    taken += keys(await store.claim_shares("last", [Share((A, A2), 300), Share((B,), 300)], LEASE))
    assert len(taken) == len(set(taken)) == 300
    assert await raw.run("SELECT DISTINCT state, claim, attempts FROM events") == [("processing", 1, 1)]
