"""Every state, every transition: allowed exactly where `states.TRANSITIONS` says so."""

from __future__ import annotations

import pytest

from hookledger.clock import Clock
from hookledger.errors import WrongState
from hookledger.model import Kind, Outcome
from hookledger.states import BY_NAME, TRANSITIONS, State
from hookledger.store.history import EventRow
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import LEASE, WAYS, Raw, event, history, reach


async def attempt(store: Store, clock: Clock, name: str, row: EventRow) -> bool:
    """Try one transition, with the number and state that would be right; whether the store says it was made."""
    kind = Kind(row.source, row.type)
    clock.offset += LEASE + 100  # leases have run out, everything is due
    if name in WAYS:
        outcome = Outcome(row.id, row.claim, name, reason="because")
        return await store.settle([outcome]) == {row.id}
    match name:
        case "claim":
            return [c.id for c in await store.claim("w", [kind], 5, LEASE)] == [row.id]
        case "skip_unhandled":
            return await store.skip_unhandled(kind, 1.0, 5) == 1
        case "reclaim":
            return await store.reclaim([Reclaim(row.id, row.claim, 0.0, "died")]) == 1
        case "dead_letter":
            return await store.reclaim([Reclaim(row.id, row.claim, None, "died")]) == 1
        case "retry" | "replay" | "discard":
            try:
                await getattr(store, name)(row.id, row.state, "ada", "because")
            except WrongState:
                return False
            return True
        case "approve" | "reject" | "settle":
            try:
                await getattr(store.reviews, name)(row.id, row.state, "ada", "because", seen=row.claim)
            except WrongState:
                return False
            return True
    raise AssertionError(f"{name}: say here how to try it")


@pytest.mark.parametrize("state", list(State))
async def test_transitions_from(store: Store, clock: Clock, raw: Raw, state: State) -> None:
    for number, transition in enumerate(TRANSITIONS):
        before = await reach(store, state, Kind("stripe", f"type-{number}"))
        whole = await raw.all("events"), await raw.all("attempts"), await raw.all("actions")
        tried = [(a.claim, a.outcome) for a in (await history(store, before.id)).attempts]
        made = await attempt(store, clock, transition.name, before)
        allowed = state in BY_NAME[transition.name].sources
        assert made is allowed, f"{state} → {transition.name}"
        after = await event(store, before.id)
        if allowed:
            assert after.state is transition.target
            assert after.claim == before.claim + (transition.name != "skip_unhandled")
            assert after.run == before.run + (transition.name in ("replay", "approve"))
            assert (after.approval_id is not None) is (transition.name == "approve")
            ended = [] if transition.attempt is None else [(before.claim, transition.attempt)]
            assert [(a.claim, a.outcome) for a in (await history(store, before.id)).attempts] == tried + ended
        else:
            assert (await raw.all("events"), await raw.all("attempts"), await raw.all("actions")) == whole
