"""`hookledger check`: the consistency check, by hand."""

from __future__ import annotations

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..errors import WrongState
from ..inbox import Inbox
from ..operate.consistency.check import checker
from ..operate.context import Context
from ..store.ops.checks import Check, Kind
from ..store.ops.consistency import ENTRIES
from . import exits
from .common import inbox_options, print_json, prints_json, run_on, status
from .table import Listing, number, say


@click.command()
@click.option("--incremental", is_flag=True, help="Only what arrived or was acted on since the last check.")
@inbox_options
@prints_json
def check(inbox: Inbox, incremental: bool, as_json: bool) -> None:
    """Check that every event is accounted for, row by row

    Reads every row in short steps, while workers run, and resumes a check that was interrupted. The result is stored:
    `hookledger doctor` and the API show it. Workers run it every night, and an incremental check every hour.

    Exits 11 if there is a violation.
    """
    kind: Kind = "incremental" if incremental else "full"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=status, transient=True, disable=not status.is_terminal) as progress:
        task = progress.add_task("beginning", total=None)

        def tell(part: str, rows: int, violations: int) -> None:
            progress.update(task, description=f"{part}: {rows:,} rows so far, {violations:,} violations")

        async def run(context: Context) -> Check:
            ended = await checker(context, pause=False).check(kind, progress=tell)
            if ended is None:
                raise WrongState(
                    f"another process runs the {kind} check now: `hookledger doctor` shows how far it is"
                )
            return ended

        ended = run_on(inbox, run)
    if as_json:
        print_json(ended)
    else:
        _print(ended)
    if ended.violations:
        raise SystemExit(exits.PROBLEM)


def _print(ended: Check) -> None:
    if ended.violations:
        listing = Listing(number("count"), "what", "ids", heads=1)
        for one in ended.violations:
            listing.add(f"{one.count:,}", ENTRIES.get(one.kind, one.kind), ", ".join(one.sample[:5]))
        listing.print()
    found = sum(one.count for one in ended.violations)
    say(f"{ended.row_count:,} rows checked: {f'{found:,} violations' if found else 'no violations'}.")
