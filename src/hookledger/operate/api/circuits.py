"""Downstreams: which are not being called for now, and stopping or letting through their calls."""

from __future__ import annotations

from msgspec import Struct

from ...store.ops.circuits import Circuit
from .call import Asked, Look, Nothing, Reason


class Why(Struct, frozen=True, forbid_unknown_fields=True):
    """An action without a state to compare: done twice, it is audited twice, and the end is the same."""

    reason: Reason


class Circuits(Struct, frozen=True):
    circuits: list[Circuit]


async def list_circuits(asked: Look) -> Circuits:
    """Every downstream that ever failed or was tripped."""
    return Circuits(await asked.insight.circuits())


async def trip_circuit(asked: Asked[Nothing, Why]) -> Circuits:
    """Stop all calls to a downstream until it is reset. What needs it waits, without using up its attempts."""
    await asked.actions.trip(asked.path["downstream"], asked.body.reason)
    return await _one(asked)


async def reset_circuit(asked: Asked[Nothing, Why]) -> Circuits:
    """Let a downstream be called again."""
    await asked.actions.reset(asked.path["downstream"], asked.body.reason)
    return await _one(asked)


async def _one(asked: Asked[Nothing, Why]) -> Circuits:
    known = await asked.insight.circuits()
    return Circuits([circuit for circuit in known if circuit.downstream == asked.path["downstream"]])
