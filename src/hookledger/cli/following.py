"""What follows a decision: who goes on, what may keep them from it, and how to see what became of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.markup import escape

from ..inbox import Inbox
from ..ledger import Effect
from ..model import EventRow, Kind, covers
from ..operate.handlers import handles
from ..operate.insight import Insight
from ..states import CircuitState, State
from .common import status
from .table import print_command, say

NO_WORKER = "No worker is alive: run hookledger work"


async def any_worker_alive(inbox: Inbox, insight: Insight) -> bool:
    return any(worker.alive(inbox.settings.work.lease) for worker in await insight.workers())


async def hindrances(inbox: Inbox, insight: Insight, event: EventRow, effect: Effect | None = None) -> list[str]:
    """Why it may take longer until a worker runs the event, if it is pending, or performs the effect."""
    live = [worker for worker in await insight.workers() if worker.alive(inbox.settings.work.lease)]
    found = [] if live else [NO_WORKER]
    if event.state is State.PENDING:
        patterns = [pattern for worker in live for pattern in worker.handles]
        if live and not handles(patterns, Kind(event.source, event.type)):
            found.append(f"No live worker handles type {event.type} of source {event.source}")
        for pause in await insight.pauses():
            if pause.source == event.source and covers(pause.pattern, event.type):
                resume = shlex.join(["hookledger", "resume", pause.source, pause.pattern, "--reason", "WHY"])
                found.append(f"{pause.pattern} of source {pause.source} is paused: {resume}")
    return found + ([] if effect is None else await _of_effect(insight, effect))


async def _of_effect(insight: Insight, effect: Effect) -> list[str]:
    found = []
    for circuit in await insight.circuits():
        if circuit.downstream == effect.downstream and circuit.state is not CircuitState.CLOSED:
            words = f"The circuit of {circuit.downstream} is {circuit.state}: {circuit.reason or 'no reason given'}"
            found.append(f"{words}; hookledger circuits reset {shlex.quote(circuit.downstream)} --reason WHY")
    if effect.lane is not None:
        found.append("It is in an ordered lane: earlier entries of the lane go first")
    return found


def say_next(event: EventRow, hindered: Sequence[str], *, run: bool = False) -> None:
    """What the event is now, and what follows. `run`: its number is told."""
    which = f", in run {event.run}" if run else ""
    then = ": a worker runs its handler again" if event.state is State.PENDING else ""
    say(f"Event {event.id} is {event.state}{which}{then}.")
    say_hindrances(hindered)
    if event.state is State.FAILED:
        print_command("To run it again", ["hookledger", "retry", str(event.id), "--reason", "WHY"])
    print_command("To see what became of it", ["hookledger", "show", str(event.id)])


def say_hindrances(found: Sequence[str]) -> None:
    for words in found:
        status.print(f"[yellow]{escape(words)}[/]", soft_wrap=True)
