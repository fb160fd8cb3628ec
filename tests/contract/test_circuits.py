"""The circuits: counted in the database, so that every worker sees the same downstream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, WrongState
from hookledger.states import CircuitState
from hookledger.store.ops.circuits import Circuit
from hookledger.store.protocol import Store
from tests.builders import Raw
from tests.contract.conftest import OpenStore

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
COOLDOWN = 10.0


async def fail(store: Store, times: int = 1, downstream: str = "bank", threshold: int = 3) -> Circuit:
    for n in range(times):
        circuit = await store.circuits.fail(downstream, threshold, COOLDOWN, f"error {n + 1}")
    return circuit


async def only(store: Store) -> Circuit:
    [circuit] = await store.circuits.all()
    return circuit


async def test_nothing_ever_failed(store: Store, raw: Raw) -> None:
    assert await store.circuits.all() == []
    assert not await store.circuits.try_again("bank", 5.0)
    await store.circuits.close("bank")
    assert await raw.count("circuits") == 0


async def test_opens_at_the_threshold(store: Store, clock: Clock) -> None:
    first = await fail(store)
    assert (first.downstream, first.state, first.failures) == ("bank", CLOSED, 1)
    assert (first.reason, first.retry_in) == ("error 1", None)
    assert (await fail(store)).state is CLOSED
    clock.offset += 5
    opened = await fail(store)
    assert (opened.state, opened.failures) == (OPEN, 3)
    assert opened.retry_in is not None
    assert COOLDOWN - 1 < opened.retry_in <= COOLDOWN
    assert (opened.changed_at - first.changed_at).total_seconds() >= 5
    assert not await store.circuits.try_again("bank", 5.0)
    found = await only(store)
    assert (found.state, found.failures, found.reason) == (OPEN, 3, "error 1")


async def test_opens_immediately_with_a_threshold_of_one(store: Store) -> None:
    opened = await fail(store, threshold=1)
    assert (opened.state, opened.failures) == (OPEN, 1)
    assert opened.retry_in is not None
    assert COOLDOWN - 1 < opened.retry_in <= COOLDOWN


async def test_a_call_in_flight_is_only_counted(store: Store) -> None:
    before = await fail(store, 3)
    after = await fail(store, 2)
    assert (after.state, after.failures) == (OPEN, 5)
    assert after.changed_at == before.changed_at
    assert after.retry_in is not None
    assert before.retry_in is not None
    assert after.retry_in <= before.retry_in


async def test_a_success_between_resets_the_count(store: Store) -> None:
    await fail(store, 2)
    await store.circuits.close("bank")
    assert (await fail(store, 2)).state is CLOSED
    assert (await fail(store)).state is OPEN


async def test_one_trial_after_the_cooldown(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """Twenty workers, one call."""
    stores = [store, await open_store()]
    await fail(store, 3)
    clock.offset += COOLDOWN + 1
    assert (await only(store)).retry_in == 0.0
    got = await asyncio.gather(*(stores[n % 2].circuits.try_again("bank", 5.0) for n in range(20)))
    assert sum(got) == 1
    trial = await only(store)
    assert trial.state is HALF_OPEN
    assert trial.retry_in is not None
    assert 3 < trial.retry_in <= 5.0
    # Whoever has the trial may have died: its turn expires, for one other.
    clock.offset += 6
    got = await asyncio.gather(*(stores[n % 2].circuits.try_again("bank", 5.0) for n in range(20)))
    assert sum(got) == 1


async def test_the_trial_comes_back(store: Store, clock: Clock) -> None:
    await fail(store, 3)
    clock.offset += COOLDOWN + 1
    assert await store.circuits.try_again("bank", 5.0)
    await store.circuits.close("bank")
    circuit = await only(store)
    assert (circuit.state, circuit.failures, circuit.retry_in, circuit.reason) == (CLOSED, 0, None, None)
    assert not await store.circuits.try_again("bank", 5.0)
    again = await fail(store, 3)
    assert again.retry_in is not None
    assert again.retry_in <= COOLDOWN, "the openings are forgotten too"


async def test_each_opening_waits_twice_as_long(store: Store, clock: Clock) -> None:
    circuit = await fail(store, 3)
    for factor in (1, 2, 4, 8, 16, 16, 16):
        assert circuit.retry_in is not None
        assert COOLDOWN * factor - 1 < circuit.retry_in <= COOLDOWN * factor
        clock.offset += circuit.retry_in + 1
        assert await store.circuits.try_again("bank", 5.0)
        circuit = await fail(store)
        assert circuit.state is OPEN


async def test_a_call_in_flight_returns_after_the_circuit_opened(store: Store) -> None:
    await fail(store, 3)
    await store.circuits.close("bank")
    assert (await only(store)).state is CLOSED


async def test_downstreams_are_independent(store: Store) -> None:
    await fail(store, 3)
    await fail(store, 1, "mail")
    assert [(c.downstream, c.state) for c in await store.circuits.all()] == [("bank", OPEN), ("mail", CLOSED)]


async def test_concurrent_failures_are_all_counted(store: Store, open_store: OpenStore) -> None:
    stores = [store, await open_store()]
    circuits = await asyncio.gather(*(fail(stores[n % 2], threshold=15) for n in range(30)))
    assert sorted(c.failures for c in circuits) == list(range(1, 31))
    assert (await only(store)).state is OPEN


# ── by hand ──────────────────────────────────────────────────────────────────


async def actions(raw: Raw) -> list[tuple[Any, ...]]:
    return await raw.run(
        "SELECT name, actor, reason, event_id, subject, from_state, to_state FROM actions ORDER BY id"
    )


@pytest.mark.parametrize("before", ["nothing", "closed", "open", "half_open"])
async def test_tripped_until_it_is_reset(store: Store, clock: Clock, raw: Raw, before: str) -> None:
    if before != "nothing":
        await fail(store, 1 if before == "closed" else 3)
    if before == "half_open":
        clock.offset += COOLDOWN + 1
        assert await store.circuits.try_again("bank", 5.0)
    await store.circuits.trip("bank", "ada", "they are migrating")
    circuit = await only(store)
    assert (circuit.state, circuit.retry_in, circuit.reason) == (OPEN, None, "they are migrating")
    clock.offset += 100 * COOLDOWN
    assert not await store.circuits.try_again("bank", 5.0)
    await store.circuits.close("bank")
    after = await fail(store)
    assert (after.state, after.retry_in, after.reason) == (OPEN, None, "they are migrating")
    await store.circuits.reset("bank", "bob", "they are back")
    circuit = await only(store)
    assert (circuit.state, circuit.failures, circuit.retry_in, circuit.reason) == (CLOSED, 0, None, None)
    known = "closed" if before == "nothing" else before
    assert await actions(raw) == [
        ("trip", "ada", "they are migrating", None, "circuit:bank", known, "open"),
        ("reset", "bob", "they are back", None, "circuit:bank", "open", "closed"),
    ]
    assert (await fail(store, 2)).state is CLOSED


async def test_reset_of_one_that_failures_opened(store: Store) -> None:
    await fail(store, 3)
    await store.circuits.reset("bank", "ada", "fixed")
    assert (await only(store)).state is CLOSED


async def test_reset_of_nothing(store: Store, raw: Raw) -> None:
    with pytest.raises(WrongState):
        await store.circuits.reset("bnak", "ada", "typo")
    assert await actions(raw) == []


async def test_who_and_why(store: Store, raw: Raw) -> None:
    await fail(store)
    before = await raw.all("circuits")
    for actor, reason in (("", "why"), ("ada", "")):
        with pytest.raises(BadData):
            await store.circuits.trip("bank", actor, reason)
        with pytest.raises(BadData):
            await store.circuits.reset("bank", actor, reason)
    assert await raw.all("circuits") == before


async def test_what_no_column_can_hold(store: Store, raw: Raw) -> None:
    for downstream, error in (("\ud800", "e"), ("bank", "\ud800")):
        with pytest.raises(BadData):
            await store.circuits.fail(downstream, 3, COOLDOWN, error)
    assert await raw.count("circuits") == 0
