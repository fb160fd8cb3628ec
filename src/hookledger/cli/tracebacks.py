"""What `show` prints about attempts: their number, and the newest traceback."""

from __future__ import annotations

import click

from ..states import State
from ..store.history import History
from .common import status, table_console
from .log_lines import printable
from .table import say

MOST_LINES = 24
FAILING = (State.RETRYING, State.FAILED, State.NEEDS_REVIEW)


def newest_traceback(history: History) -> str | None:
    """Return the traceback of the newest attempt that has one."""
    return next((attempt.error for attempt in reversed(history.attempts) if attempt.error), None)


def print_traceback(history: History) -> None:
    """Print the whole traceback on stdout."""
    text = newest_traceback(history)
    if text:
        click.echo(printable(text.rstrip()))
    else:
        status.print("No attempt has a traceback: none failed, or retention has deleted it.")


def print_excerpt(history: History) -> None:
    """Print the beginning and end of the traceback of an event that is failing now."""
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
    """Return the run and its number of attempts; if a decision reset the retry budget, also how many count towards
    it."""
    event = history.event
    tried = sum(attempt.run == event.run for attempt in history.attempts) + (event.state is State.PROCESSING)
    since = "" if tried == event.attempts else f" ({event.attempts:,} towards the limit)"
    return f"{event.run:,}, {tried:,}{since}"
