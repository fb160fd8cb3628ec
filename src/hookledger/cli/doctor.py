"""`hookledger doctor`: what an experienced operator would look at, and what to do about it."""

from __future__ import annotations

import click
from rich.markup import escape
from rich.table import Table

from ..errors import ConfigError, HookledgerError
from ..inbox import Inbox
from ..operate.doctor import examine
from ..operate.finding import Finding, Level
from . import exits
from .common import looks_at_inbox, print_json, prints_json, run, status, table_console

MARKS: dict[Level, str] = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "problem": "[bold red]problem[/]"}


@click.command()
@looks_at_inbox
@click.option("--deep", is_flag=True, help="Let the database check its own file as well.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    metavar="SECONDS",
    help="How long the books, or the file, may be looked at.",
)
@prints_json
def doctor(inbox: Inbox, deep: bool, limit: float, as_json: bool) -> None:
    """Look at the inbox: whether every event is accounted for, database, clocks, workers, sources, what was refused,
    what asks for attention.

    The books are read in one snapshot while work goes on. Ends with an exit code of its own when there is a problem;
    warnings are none.
    """
    found = run(_examine(inbox, deep, limit))
    if as_json:
        print_json(found)
    else:
        _print(found)
    problems = sum(finding.level == "problem" for finding in found)
    warnings = sum(finding.level == "warn" for finding in found)
    status.print(f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}.")
    if problems:
        raise SystemExit(exits.PROBLEM)


async def _examine(inbox: Inbox, deep: bool, limit: float) -> list[Finding]:
    try:
        async with inbox.opened(check=False) as store:
            insight = inbox.insight(store)
            return await examine(insight, lease=inbox.settings.work.lease, deep=deep, limit=limit)
    except ConfigError:
        raise
    except HookledgerError as error:
        return [Finding("problem", "database", str(error), "see that it runs, and that its URL is right")]


def _print(found: list[Finding]) -> None:
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", max_width=30)
    grid.add_column(overflow="fold")
    for finding in found:
        words = escape(finding.says) + (f"\n→ {escape(finding.do)}" if finding.do else "")
        grid.add_row(MARKS[finding.level], escape(finding.about), words)
    table_console().print(grid)
