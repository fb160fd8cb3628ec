"""What was refused, judged anew and taken in: all of the sample, and each request by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from hookledger import Inbox
from hookledger.errors import BadData, Unavailable
from hookledger.ids import new_id
from hookledger.model import Arrival, Recorded, pack_headers
from hookledger.operate.context import Context
from hookledger.operate.rejections import PAGE, accept, recheck
from hookledger.providers.catalogue import find
from hookledger.providers.sign import sign
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.rejections import RejectedRequest
from hookledger.store.protocol import Store

SECRET = "whsec_made_up_for_the_tests"


def inbox() -> Inbox:
    made = Inbox()
    made.source("stripe", provider="stripe", secrets=[SECRET])
    return made


def refused(ident: str, secret: str = SECRET) -> RejectedRequest:
    """Signed with a secret that the receiver did not have when it came."""
    body = b'{"id":"%b","type":"invoice.paid"}' % ident.encode()
    signed = sign(find("stripe"), secret, body, now=time.time())
    headers = pack_headers((name.encode(), value.encode()) for name, value in signed)
    return RejectedRequest(new_id(), "stripe", "signature_mismatch", "POST", "/stripe", b"", headers, body, None)


async def sampled(store: Store, *sample: RejectedRequest) -> None:
    counts = {("stripe", "signature_mismatch"): len(sample)}
    await store.rejections.add(sample, counts, most=1000, most_bytes=10_000_000)


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


async def test_all_of_the_sample_is_judged(store: Store) -> None:
    """More than two pages of it, the oldest first; what stands at the end of a page is neither left out nor twice."""
    many = [refused(f"evt_{n}", SECRET if n % 10 else "whsec_of_somebody_else") for n in range(2 * PAGE + 1)]
    await sampled(store, *many)
    found = await recheck(inbox().context(store), "stripe")
    assert [one.id for one in found] == [refusal.id for refusal in many]
    assert [one.authentic for one in found] == [bool(n % 10) for n in range(2 * PAGE + 1)]
    assert {one.reason_now for one in found if not one.authentic} == {"signature_mismatch"}
    assert await store.counts() == {}, "nothing is taken in by looking"


async def test_only_that_source(store: Store) -> None:
    other = refused("evt_1")
    mine = refused("evt_2")
    await sampled(store, mine)
    kept = RejectedRequest(
        new_id(), "other", *(getattr(other, name) for name in RejectedRequest.__struct_fields__[2:])
    )
    await store.rejections.add([kept], {("other", "x"): 1}, most=10, most_bytes=100_000)
    assert [one.id for one in await recheck(inbox().context(store), "stripe")] == [mine.id]


async def test_what_the_database_refuses_leaves_the_others_accepted(store: Store) -> None:
    await sampled(store, *(refused(f"evt_{n}") for n in range(4)))
    found = await recheck(inbox().context(store), "stripe")
    picky = inbox().context(cast(Store, Picky(store, b"evt_0", b"evt_2")))
    done = await accept(picky, Audit("ada", "the secret was corrected"), "stripe")
    assert [one.id for one in done] == [one.id for one in found]
    assert [(one.reason_now, len(one.recorded)) for one in done] == [
        ("bad_data", 0),
        (None, 1),
        ("bad_data", 0),
        (None, 1),
    ]
    assert [one.arrival is None for one in done] == [True, False, True, False]
    assert {row.key for row in await store.search.events()} == {"evt_1", "evt_3"}
    left = await store.rejections.sample(source="stripe")
    assert [row.id for row in left] == [found[2].id, found[0].id], "they stay where they are, with their bytes"
    # Once the database takes them, nothing else comes in twice.
    again = await accept(inbox().context(store), Audit("ada", "mended"), "stripe")
    assert [one.recorded[0].outcome for one in again] == ["accepted", "accepted"]
    assert len(await store.search.events()) == 4
    assert await store.rejections.sample(source="stripe") == []


async def test_what_is_not_authentic_is_never_accepted(store: Store) -> None:
    await sampled(store, refused("evt_1", "whsec_of_somebody_else"), refused("evt_2"))
    context = inbox().context(store)
    found = await recheck(context, "stripe")
    done = await accept(context, Audit("ada", "why"), "stripe")
    assert [one.recorded != () for one in done] == [False, True]
    assert [row.key for row in await store.search.events()] == ["evt_2"]
    assert [row.id for row in await store.rejections.sample()] == [found[0].id]


async def test_a_key_that_cannot_be_had_says_nothing_about_the_others(store: Store) -> None:
    examiner = inbox().examiner
    await sampled(store, *(refused(f"evt_{n}") for n in range(3)))

    class Away:
        def __getattr__(self, name: str) -> Any:
            return getattr(examiner, name)

        async def recheck(self, refusal: Any) -> Arrival | str:
            if b"evt_1" in refusal.body:
                raise Unavailable
            return await examiner.recheck(refusal)

    found = await recheck(Context(store, cast(Any, Away())), "stripe")
    assert [(one.authentic, one.reason_now) for one in found] == [(True, None), (False, "unavailable"), (True, None)]
