"""Circuits: list them, and stop or allow calls to a downstream."""

from __future__ import annotations

from msgspec import Struct

from ...store.ops.circuits import Circuit
from .. import circuits
from .call import Asked, Look, Nothing, Why


class Circuits(Struct, frozen=True):
    circuits: list[Circuit]


async def list_circuits(asked: Look) -> Circuits:
    """List every downstream that ever failed or was tripped."""
    return Circuits(await circuits.circuits(asked.context))


async def trip_circuit(asked: Asked[Nothing, Why]) -> Circuits:
    """Stop all calls to a downstream until it is reset. Events and effects that need it wait, without using up
    attempts."""
    await circuits.trip(asked.context, asked.by, asked.path["downstream"])
    return await _one(asked)


async def reset_circuit(asked: Asked[Nothing, Why]) -> Circuits:
    """Allow calls to a downstream again."""
    await circuits.reset(asked.context, asked.by, asked.path["downstream"])
    return await _one(asked)


async def _one(asked: Asked[Nothing, Why]) -> Circuits:
    known = await circuits.circuits(asked.context)
    return Circuits([circuit for circuit in known if circuit.downstream == asked.path["downstream"]])
