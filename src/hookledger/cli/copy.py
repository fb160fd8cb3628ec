"""`hookledger copy`: the whole inbox to another database."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import click
from rich.progress import Progress

from ..errors import Unavailable
from ..inbox import Inbox
from ..operate import copy as copying
from ..operate.copy import Copied, Side
from ..store.ops.audit import Audit
from ..store.protocol import Store
from ..store.url import without_password
from .common import audited, inbox_options, print_json, prints_json, run, status
from .table import say


@click.command()
@click.option("--to", required=True, metavar="URL", help="Target: postgresql://… or sqlite:///FILE.")
@click.option("--abandon", is_flag=True, help="End a copy that is not complete.")
@click.option("--target-lost", is_flag=True, help="With --abandon: do not try to reach the target.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@audited
@inbox_options
@prints_json
def copy(inbox: Inbox, to: str, abandon: bool, target_lost: bool, yes: bool, by: Audit, as_json: bool) -> None:
    """Copy the whole inbox to another database

    Moves every table, keys and effects of pruned events included. From its start every write to the source fails:
    deliveries get 503 and workers claim nothing, so stop workers first. When all rows are copied and the consistency
    check agrees on both sides, the target can be used and the source never again.

    Run it again with the same --to to resume a copy that was interrupted. --abandon opens the source again while the
    target is not complete; that target can then never be used.
    """

    async def look() -> int:
        async with _sides(inbox, to) as (source, target):
            return sum((await copying.look(source, target)).values())

    async def act(progress: Progress, total: int) -> Copied:
        if target_lost:
            async with inbox.opened(check=False) as store:
                return await copying.abandon(Side(store, ours), theirs, by)
        async with _sides(inbox, to) as (source, target):
            if abandon:
                return await copying.abandon(source, target, by)
            task = progress.add_task("rows", total=total)
            return await copying.copy(source, target, by, lambda done: progress.update(task, completed=done))

    if target_lost and not abandon:
        raise click.UsageError("--target-lost is for --abandon")
    ours, theirs = without_password(inbox.database or ""), without_password(to)
    total = 0 if abandon else run(look())
    if not yes:
        _confirm(ours, theirs, total, abandon=abandon)
    with Progress(console=status, transient=True, disable=not status.is_terminal) as progress:
        done = run(act(progress, total))
    if as_json:
        print_json(done)
    elif abandon:
        nothing = "was not reached" if target_lost else "has nothing of this copy"
        rest = f"drop {done.target}" if done.state else f"{done.target} {nothing}"
        say(f"Abandoned: {done.source} can be written again; {rest}.")
    else:
        say(f"Complete: {sum(done.rows.values()):,} rows. Use {done.target} now.")


@asynccontextmanager
async def _sides(inbox: Inbox, to: str) -> AsyncIterator[tuple[Side, Side]]:
    ours, theirs = without_password(inbox.database or ""), without_password(to)
    async with AsyncExitStack() as stack:
        source = await _enter(stack, f"source {ours}", inbox.opened(check=False))
        target = await _enter(stack, f"target {theirs}", inbox.opened(to, check=False))
        yield Side(source, ours), Side(target, theirs)


async def _enter(stack: AsyncExitStack, side: str, opening: AbstractAsyncContextManager[Store]) -> Store:
    try:
        return await stack.enter_async_context(opening)
    except Unavailable as error:
        raise Unavailable(f"{side}: {error}") from error


def _confirm(source: str, target: str, rows: int, *, abandon: bool) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("confirmation is not possible: stdin is not a terminal; give --yes")
    if abandon:
        status.print(f"Opens {source} again; {target} can never be used.", markup=False, soft_wrap=True)
        click.confirm("Abandon the copy?", abort=True, err=True)
        return
    status.print(
        f"Copies {rows:,} rows from {source} to {target}. Every write to the source then fails, for good once "
        "the copy is complete.",
        markup=False,
        soft_wrap=True,
    )
    click.confirm("Copy it?", abort=True, err=True)
