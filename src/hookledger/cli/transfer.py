"""`hookledger export` and `import`: events from one inbox to another."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click
import msgspec
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import ConfigError
from ..filters import Filter
from ..inbox import Inbox
from ..store.transfer import Taken
from .common import looks_at_inbox, print_json, prints_json, run, status
from .decide import names_actor
from .filters import filters_events


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeElapsedColumn())
    return Progress(*columns, console=status, transient=True, disable=not status.is_terminal)


@click.command()
@filters_events
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="A new file; stdout if none.")
@looks_at_inbox
def export(inbox: Inbox, where: Filter, output: Path | None) -> None:
    """Write events with all that is known of them as JSON lines, the newest first.

    Bodies are in it, and arguments and results of effects: keep the file as safe as the database.
    """

    async def act(progress: Progress) -> int:
        written = 0
        async with inbox.opened() as store:
            insight = inbox.insight(store)
            total = await insight.count(where) if status.is_terminal else None
            task = progress.add_task("events", total=total)
            file = sys.stdout.buffer if output is None else _new(output)
            try:
                async for line in insight.export(where):
                    file.write(line)
                    written += 1
                    progress.update(task, completed=written - 1)
                file.flush()
            finally:
                if output is not None:
                    file.close()
        return written - 2

    with _bar() as progress:
        written = run(act(progress))
    status.print(f"Wrote {written:,} events.")


def _new(path: Path) -> BinaryIO:
    """For nobody else to read: all that the database has is in it."""
    try:
        return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--take-over", is_flag=True, help="Go on here with what was not finished there; stop it there first.")
@names_actor
@looks_at_inbox
@prints_json
def import_(inbox: Inbox, file: Path, take_over: bool, reason: str, actor: str, as_json: bool) -> None:
    """Take in events that `hookledger export` wrote to FILE, with their keys, effects and history.

    What is here already is passed over: an import that broke off is begun again. What was not finished waits for a
    person, so that nothing is done in two places.
    """

    def lines() -> Iterator[bytes]:
        try:
            with file.open("rb") as opened:
                yield from opened
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error

    async def act(progress: Progress) -> Taken:
        task = progress.add_task("lines", total=None)
        async with inbox.opened() as store:
            actions = inbox.actions(store, actor)
            return await actions.import_events(
                lines, reason, take_over=take_over, progress=lambda n: progress.update(task, completed=n)
            )

    with _bar() as progress:
        done = run(act(progress))
    if as_json:
        print_json(msgspec.to_builtins(done))
        return
    status.print(f"Took in {done.new:,} events, {done.held:,} of them unfinished; {done.known:,} were here already.")
    if done.taken:
        status.print(f"[yellow]{len(done.taken):,} have keys of other events here[/]: {_some(done.taken)}")
    if done.waiting:
        status.print(
            f"[yellow]{len(done.waiting):,} were made of deliveries of events that are not here[/]: "
            f"{_some(done.waiting)}"
        )


def _some(idents: list[UUID]) -> str:
    return ", ".join(map(str, idents[:5])) + (" …" if len(idents) > 5 else "")
