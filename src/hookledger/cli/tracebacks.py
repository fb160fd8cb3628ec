"""What `show` says of attempts: how many there were, and the traceback of the newest that failed."""

from __future__ import annotations

import click

from ..model import History
from ..states import State
from .common import printable, status, table_console
from .table import say

MOST_LINES = 24
FAILING = (State.RETRYING, State.FAILED, State.NEEDS_REVIEW)


def newest_traceback(history: History) -> str | None:
    """Of the newest attempt that has one."""
    return next((attempt.error for attempt in reversed(history.attempts) if attempt.error), None)


def print_traceback(history: History) -> None:
    """All of it, on stdout."""
    text = newest_traceback(history)
    if text:
        click.echo(printable(text.rstrip()))
    else:
        status.print("No attempt has a traceback: none failed, or retention has deleted it.")


def print_excerpt(history: History) -> None:
    """Of an event that fails now: the beginning, where the user's code is, and the end."""
    text = newest_traceback(history)
    if not text or history.event.state not in FAILING:
        return
    lines = text.rstrip().splitlines()
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        left_out = len(lines) - MOST_LINES
        lines[half:-half] = [f"… {left_out} lines; all of it: hookledger show --traceback {history.event.id}"]
    console = table_console()
    console.print("[bold]Last failed attempt[/]")
    for line in lines:
        say(line, console)


def counted(history: History) -> str:
    """The run, and its attempts: those that count towards the limit apart, where a decision began a new count."""
    event = history.event
    tried = sum(attempt.run == event.run for attempt in history.attempts) + (event.state is State.PROCESSING)
    since = "" if tried == event.attempts else f" ({event.attempts:,} towards the limit)"
    return f"{event.run:,}, {tried:,}{since}"
