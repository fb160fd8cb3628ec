"""What follows a decision: who continues, what may delay it, and how to see the result."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from rich.markup import escape

from ..ledger import Effect
from ..model import Kind, covers
from ..operate import search
from ..operate.circuits import circuits
from ..operate.context import Context
from ..operate.pauses import pauses
from ..operate.replay.by_request import is_by_request, with_request
from ..operate.workers import handled_by, handles, live_workers
from ..states import CircuitState, State
from ..store.history import EventRow
from .common import status
from .table import print_command, say

NO_WORKER = "No worker is alive: run hookledger work"


class Next(NamedTuple):
    """What follows a decision."""

    runner: str | None = None
    """Who runs a pending event, and what; None: the event is not pending."""
    hindrances: Sequence[str] = ()
    """Why that may not be soon."""


async def next_of(context: Context, event: EventRow, effect: Effect | None = None) -> Next:
    """Return who continues with an event that was decided, and what may delay it, or an effect of it."""
    if event.state is not State.PENDING:
        return Next(None, await hindrances(context, event, effect))
    handler = context.application.routes.find(Kind(event.source, event.type, event.version))
    history = await search.find(context, str(event.id))
    if not is_by_request(history, handler):
        return Next("a worker runs its handler again", await hindrances(context, event, effect))
    found = await (_of_pauses(context, event) if effect is None else hindrances(context, event, effect))
    return Next(f"{event.type} runs {with_request(history)}", found)


async def hindrances(context: Context, event: EventRow, effect: Effect | None = None) -> list[str]:
    """Return why a worker may not soon run a pending event, or an effect."""
    live = await live_workers(context)
    live = live if any(worker.works(context.lease) for worker in live) else []
    found = [] if live else [NO_WORKER]
    if event.state is State.PENDING:
        kind = Kind(event.source, event.type, event.version)
        if live and not handles(handled_by(live), kind):
            found.append(f"No live worker handles type {kind} of source {event.source}")
        found += await _of_pauses(context, event)
        if event.order_at is not None:
            found += await _of_order(context, event)
    return found + ([] if effect is None else await _of_effect(context, effect))


async def _of_pauses(context: Context, event: EventRow) -> list[str]:
    found = []
    for pause in await pauses(context):
        if pause.source == event.source and covers(pause.pattern, event.type):
            resume = shlex.join(["hookledger", "resume", pause.source, pause.pattern, "--reason", "WHY"])
            found.append(f"{pause.pattern} of source {pause.source} is paused: {resume}")
    return found


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


def say_next(event: EventRow, follows: Next, *, run: bool = False) -> None:
    """Print the event's state and what happens next. `run`: include the run number."""
    which = f", in run {event.run}" if run else ""
    then = f": {follows.runner}" if follows.runner else ""
    say(f"Event {event.id} is {event.state}{which}{then}.")
    say_hindrances(follows.hindrances)
    if event.state is State.FAILED:
        print_command("To retry it", ["hookledger", "retry", str(event.id), "--reason", "WHY"])
    print_command("To see the result", ["hookledger", "show", str(event.id)])


def say_hindrances(found: Sequence[str]) -> None:
    for words in found:
        status.print(f"[yellow]{escape(words)}[/]", soft_wrap=True)
