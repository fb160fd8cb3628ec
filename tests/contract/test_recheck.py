"""What was refused, judged anew and taken in: all of the sample, and each request by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from hookledger import Inbox
from hookledger.errors import BadData, Unavailable
from hookledger.identities import new_id
from hookledger.model import Arrival, Recorded, pack_headers
from hookledger.operate.recheck import PAGE, recheck, take_in
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.store.ops.rejections import Refusal
from hookledger.store.protocol import Store

SECRET = "whsec_made_up_for_the_tests"


def inbox() -> Inbox:
    made = Inbox()
    made.source("stripe", provider="stripe", secrets=[SECRET])
    return made


def refused(ident: str, secret: str = SECRET) -> Refusal:
    """Signed with a secret that the receiver did not have when it came."""
    body = b'{"id":"%b","type":"invoice.paid"}' % ident.encode()
    signed = sign(find("stripe"), secret, body, now=time.time())
    headers = pack_headers((name.encode(), value.encode()) for name, value in signed)
    return Refusal(new_id(), "stripe", "signature_mismatch", "POST", "/stripe", b"", headers, body, None)


async def sampled(store: Store, *sample: Refusal) -> None:
    counts = {("stripe", "signature_mismatch"): len(sample)}
    await store.cases.refuse(sample, counts, most=1000, most_bytes=10_000_000)


class Picky:
    """A store that refuses what some of the requests hold."""

    def __init__(self, store: Store, *bad: bytes) -> None:
        self._store = store
        self._bad = bad

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def record(self, arrivals: Sequence[Arrival]) -> list[list[Recorded]]:
        if any(word in arrival.body for arrival in arrivals for word in self._bad):
            raise BadData
        return await self._store.record(arrivals)


async def test_all_of_the_sample_is_judged(store: Store) -> None:  # proves R2, R14
    """More than two pages of it, the oldest first; what stands at the end of a page is neither left out nor twice."""
    many = [refused(f"evt_{n}", SECRET if n % 10 else "whsec_of_somebody_else") for n in range(2 * PAGE + 1)]
    await sampled(store, *many)
    found = await recheck(store.cases, inbox().receiving, "stripe")
    assert [one.id for one in found] == [refusal.id for refusal in many]
    assert [one.authentic for one in found] == [bool(n % 10) for n in range(2 * PAGE + 1)]
    assert {one.still for one in found if not one.authentic} == {"signature_mismatch"}
    assert await store.counts() == {}, "nothing is taken in by looking"


async def test_only_that_source(store: Store) -> None:  # proves R3
    other = refused("evt_1")
    mine = refused("evt_2")
    await sampled(store, mine)
    kept = Refusal(new_id(), "other", *(getattr(other, name) for name in Refusal.__struct_fields__[2:]))
    await store.cases.refuse([kept], {("other", "x"): 1}, most=10, most_bytes=100_000)
    assert [one.id for one in await recheck(store.cases, inbox().receiving, "stripe")] == [mine.id]


async def test_what_the_database_refuses_leaves_the_others_taken_in(store: Store) -> None:  # proves R9, R14
    await sampled(store, *(refused(f"evt_{n}") for n in range(4)))
    found = await recheck(store.cases, inbox().receiving, "stripe")
    picky = cast(Store, Picky(store, b"evt_0", b"evt_2"))
    done = await take_in(picky, found, "ada", "the secret was corrected")
    assert [one.id for one in done] == [one.id for one in found]
    assert [(one.still, len(one.became)) for one in done] == [("bad_data", 0), (None, 1), ("bad_data", 0), (None, 1)]
    assert [one.arrival is None for one in done] == [True, False, True, False]
    assert {row.key for row in await store.events()} == {"evt_1", "evt_3"}
    left = await store.cases.refusals(source="stripe")
    assert [row.id for row in left] == [found[2].id, found[0].id], "they stay where they are, with their bytes"
    # Once the database takes them, nothing else comes in twice.
    again = await take_in(store, await recheck(store.cases, inbox().receiving, "stripe"), "ada", "mended")
    assert [one.became[0].outcome for one in again] == ["accepted", "accepted"]
    assert len(await store.events()) == 4
    assert await store.cases.refusals(source="stripe") == []


async def test_what_is_not_authentic_is_never_taken_in(store: Store) -> None:  # proves R1, R14
    await sampled(store, refused("evt_1", "whsec_of_somebody_else"), refused("evt_2"))
    found = await recheck(store.cases, inbox().receiving, "stripe")
    done = await take_in(store, found, "ada", "why")
    assert [one.became != () for one in done] == [False, True]
    assert [row.key for row in await store.events()] == ["evt_2"]
    assert [row.id for row in await store.cases.refusals()] == [found[0].id]


async def test_a_key_that_cannot_be_had_says_nothing_about_the_others(store: Store) -> None:  # proves R8, R14
    receiving = inbox().receiving
    await sampled(store, *(refused(f"evt_{n}") for n in range(3)))

    class Away:
        def __getattr__(self, name: str) -> Any:
            return getattr(receiving, name)

        async def recheck(self, refusal: Any) -> Arrival | str:
            if b"evt_1" in refusal.body:
                raise Unavailable
            return await receiving.recheck(refusal)

    found = await recheck(store.cases, cast(Any, Away()), "stripe")
    assert [(one.authentic, one.still) for one in found] == [(True, None), (False, "unavailable"), (True, None)]
