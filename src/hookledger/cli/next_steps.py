"""What follows a decision: who continues, what may delay it, and how to see the result."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.markup import escape

from ..ledger import Effect
from ..model import Kind, covers
from ..operate import search
from ..operate.circuits import circuits
from ..operate.context import Context
from ..operate.pauses import pauses
from ..operate.workers import handled_by, handles, live_workers
from ..states import CircuitState, State
from ..store.history import EventRow
from .common import status
from .table import print_command, say

NO_WORKER = "No worker is alive: run hookledger work"


async def hindrances(context: Context, event: EventRow, effect: Effect | None = None) -> list[str]:
    """Return why a pending event, or an effect, may not be run soon."""
    live = await live_workers(context)
    live = live if any(worker.works(context.lease) for worker in live) else []
    found = [] if live else [NO_WORKER]
    if event.state is State.PENDING:
        kind = Kind(event.source, event.type, event.version)
        if live and not handles(handled_by(live), kind):
            found.append(f"No live worker handles type {kind} of source {event.source}")
        for pause in await pauses(context):
            if pause.source == event.source and covers(pause.pattern, event.type):
                resume = shlex.join(["hookledger", "resume", pause.source, pause.pattern, "--reason", "WHY"])
                found.append(f"{pause.pattern} of source {pause.source} is paused: {resume}")
        if event.order_at is not None:
            found += await _of_order(context, event)
    return found + ([] if effect is None else await _of_effect(context, effect))


async def _of_order(context: Context, event: EventRow) -> list[str]:
    turn = (await search.find(context, str(event.id))).turn
    if turn is None or (turn.first is None and turn.held_by is None):
        return []  # a worker lets it run as soon as it has looked
    return [f"It {'is ' * (turn.held_by is not None)}{turn.words}"]


async def _of_effect(context: Context, effect: Effect) -> list[str]:
    found = []
    for circuit in await circuits(context):
        if circuit.downstream == effect.downstream and circuit.state is not CircuitState.CLOSED:
            words = f"The circuit of {circuit.downstream} is {circuit.state}: {circuit.reason or 'no reason given'}"
            found.append(f"{words}; hookledger circuits reset {shlex.quote(circuit.downstream)} --reason WHY")
    if effect.lane is not None:
        found.append("It is in an ordered lane: earlier entries of the lane go first")
    return found


def say_next(event: EventRow, hindered: Sequence[str], *, run: bool = False) -> None:
    """Print the event's state and what happens next. `run`: include the run number."""
    which = f", in run {event.run}" if run else ""
    then = ": a worker runs its handler again" if event.state is State.PENDING else ""
    say(f"Event {event.id} is {event.state}{which}{then}.")
    say_hindrances(hindered)
    if event.state is State.FAILED:
        print_command("To retry it", ["hookledger", "retry", str(event.id), "--reason", "WHY"])
    print_command("To see the result", ["hookledger", "show", str(event.id)])


def say_hindrances(found: Sequence[str]) -> None:
    for words in found:
        status.print(f"[yellow]{escape(words)}[/]", soft_wrap=True)
