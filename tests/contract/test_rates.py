"""Counts over time: nothing is counted twice, and nothing is lost when rows are summed up."""

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

from hookledger import Inbox
from hookledger.clock import Clock
from hookledger.errors import BadData
from hookledger.observe.metrics.samples import Samples, in_text
from hookledger.operate import gauges, rates
from hookledger.operate.rates import KEPT, RateSums
from hookledger.states import State
from hookledger.store.ops.rates import STEPS, floor
from hookledger.store.protocol import Store
from tests.builders import Raw, recorded
from tests.contract.conftest import OpenStore

ACCEPTED = ("stripe", "delivery.accepted")


async def total(store: Store) -> Counter[tuple[str, str]]:
    """Everything that was ever counted."""
    now = await store.rates.now()
    found: Counter[tuple[str, str]] = Counter()
    for one in await store.rates.read(3600, now - timedelta(days=4000), now + timedelta(days=1)):
        found[one.source, one.what] += one.n
    return found


async def test_a_batch_that_is_written_again_counts_once(store: Store) -> None:
    assert await store.rates.add("a", 1, {ACCEPTED: 5, ("", "rejected"): 2})
    assert not await store.rates.add("a", 1, {ACCEPTED: 5, ("", "rejected"): 2})
    assert await store.rates.add("b", 1, {ACCEPTED: 1}), "another process has its own numbers"
    assert await store.rates.add("a", 2, {ACCEPTED: 4})
    assert await total(store) == {ACCEPTED: 10, ("", "rejected"): 2}


async def test_a_batch_counts_once_even_if_its_rows_were_summed_up(store: Store, clock: Clock) -> None:
    await store.rates.add("a", 1, {ACCEPTED: 5})
    clock.offset += 600
    assert await RateSums(store.rates).round() == 1
    assert not await store.rates.add("a", 1, {ACCEPTED: 5})
    assert await total(store) == {ACCEPTED: 5}


async def test_rows_move_into_longer_steps_and_out(store: Store, raw: Raw, clock: Clock) -> None:
    for number in range(1, 31):
        await store.rates.add("a", number, {ACCEPTED: 2, ("github", "rejected"): 1})
        await store.rates.add("b", number, {ACCEPTED: 1})
        clock.offset += 10
    whole = {ACCEPTED: 90, ("github", "rejected"): 30}
    assert await total(store) == whole
    sums = RateSums(store.rates)
    for step, longer in pairwise(STEPS):
        clock.offset += KEPT[step] + longer
        while await sums.round():
            pass
        assert await total(store) == whole
        assert {row[0] for row in await raw.all("rates")} == {longer}
    assert {row[4] for row in await raw.all("rates")} == {""}, "summed over processes"
    clock.offset += KEPT[3600] + 7200
    assert await sums.round()
    assert not await raw.all("rates")
    assert not await raw.all("rate_writers"), "processes that are long gone are forgotten"


async def test_what_is_not_old_enough_stays(store: Store, clock: Clock) -> None:
    await store.rates.add("a", 1, {ACCEPTED: 1})
    clock.offset += 100
    assert await RateSums(store.rates).round() == 0


async def test_several_workers_sum_up_together(store: Store, open_store: OpenStore, clock: Clock) -> None:
    for number in range(1, 61):
        await store.rates.add("a", number, {ACCEPTED: 1, ("github", "stale"): 3})
        clock.offset += 10
    clock.offset += 3600
    others = [store, await open_store(), await open_store()]

    async def work(one: Store) -> None:
        for _ in range(40):
            try:
                if not await one.rates.sum_up(10, KEPT[10]):
                    return
            except Exception as error:  # a lock that another has: it is tried again
                assert "lock" in str(error).lower() or "deadlock" in str(error).lower(), error
                await asyncio.sleep(0.01)

    await asyncio.gather(*map(work, others))
    while await store.rates.sum_up(10, KEPT[10]):
        pass
    assert await total(store) == {ACCEPTED: 60, ("github", "stale"): 180}


async def test_reading_by_step_source_and_time(store: Store, clock: Clock) -> None:
    began = floor(await store.rates.now(), 60) + timedelta(seconds=60)
    clock.offset += (began - await store.rates.now()).total_seconds() + 1
    for number in range(1, 13):
        await store.rates.add("a", number, {ACCEPTED: 1, ("github", "rejected"): 2})
        clock.offset += 10
    clock.offset += 60
    context = Inbox().context(store)
    page = await rates.rates(context, step=60, since=began, until=began + timedelta(seconds=120), source="stripe")
    assert [(one.began_at, one.what, one.n) for one in page.rates] == [
        (began, "delivery.accepted", 6),
        (began + timedelta(seconds=60), "delivery.accepted", 6),
    ]
    assert page.complete
    ten = await rates.rates(context, step=10, since=began, until=began + timedelta(seconds=60))
    assert Counter(one.what for one in ten.rates) == {"delivery.accepted": 6, "rejected": 6}
    before = await rates.rates(context, step=600)
    assert sum(one.n for one in before.rates) == 36
    assert await rates.rates(context, step=10, since=began - timedelta(days=1), until=began - timedelta(hours=23))
    with pytest.raises(BadData, match="steps"):
        await rates.rates(context, step=10, since=began - timedelta(days=1), until=began)
    with pytest.raises(BadData, match="step must be"):
        await rates.rates(context, step=17)


async def test_the_gauges_of_a_real_database(store: Store, clock: Clock) -> None:
    inbox = Inbox(clock=clock)
    inbox.source("stripe", provider="stripe", secrets=["whsec_of_gauges"])
    for key in ("evt_1", "evt_2"):
        await recorded(store, key)
    samples = Samples()
    for reader in gauges.READERS:
        await reader(inbox.context(store), samples)
    text = in_text(samples)
    assert 'hookledger_queue_events{source="stripe",state="pending"} 2.0' in text
    assert 'hookledger_queue_events{source="stripe",state="retrying"} 0.0' in text
    assert 'hookledger_backlog_events{source="stripe",state="failed"} 0.0' in text
    assert "hookledger_workers_alive 0.0" in text
    assert 'hookledger_outbox_effects{state="unknown"} 0.0' in text
    assert "hookledger_clock_skew_seconds" in text
    assert "secret_expiry" not in text


async def test_the_backlog_is_counted_by_source_up_to_a_limit(store: Store, raw: Raw) -> None:
    for key in ("evt_1", "evt_2", "evt_3"):
        await recorded(store, key)
    await raw.run("UPDATE events SET state = 'failed', reason = 'x', due_at = NULL, finished_at = received_at")
    assert await store.attention.by_source(State.FAILED, 100) == {"stripe": 3}
    assert await store.attention.by_source(State.FAILED, 2) == {"stripe": 2}
    assert await store.attention.by_source(State.NEEDS_REVIEW, 100) == {}
