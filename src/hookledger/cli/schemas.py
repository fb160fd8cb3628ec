"""`hookledger schemas`: draft a schema from stored events, try schemas on them, and list new fields."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from uuid import UUID

import click
import msgspec
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..errors import ConfigError
from ..inbox import Inbox
from ..operate.context import Context
from ..operate.schemas import check as checking
from ..operate.schemas import drift as drifting
from ..operate.schemas import infer as inferring
from ..operate.schemas.check import Find, SchemaReport
from ..operate.schemas.drift import Drift
from ..operate.schemas.infer import Drafted
from ..operate.schemas.stored import Progress as Tell
from ..schemas.bundle import Folder
from ..schemas.compiled import load_schema
from ..schemas.folder import path_of
from . import exits
from .common import Decorator, inbox_options, print_bytes, print_json, prints_json, run_on, second, status
from .filters import Moment, limit_option
from .table import Listing, number, prose, say

last_option: Decorator = click.option(
    "--last", default=1000, type=click.IntRange(1, 1_000_000), help="Number of newest events to read."
)


@click.group()
def schemas() -> None:
    """Draft, try and compare schemas of events' contents

    Schemas are JSON Schema 2020-12, in SOURCE/TYPE/VERSION.json below `[schemas] path`. A worker checks an event
    before its handler runs; one that breaks its schema becomes a dead letter.
    """


@schemas.command("infer")
@click.argument("source")
@click.argument("type")
@last_option
@click.option("--write", is_flag=True, help="Write it into the folder of schemas.")
@click.option("--version", help="Draft from events of this version, for its schema; default: all versions.")
@inbox_options
def infer_schema(inbox: Inbox, source: str, type: str, last: int, write: bool, version: str | None) -> None:  # noqa: A002
    """Draft a schema from stored events of a type

    It has the JSON types that were seen, and requires what all events have. It allows unknown fields and has no
    values. With --write, an existing file is left alone.
    """
    if version is not None and not version.strip():
        raise ConfigError("--version is empty: name a version, or leave it out for the schema of all versions")
    if version is not None and version.endswith("*"):
        raise ConfigError(
            f"--version {version} is a pattern: a schema is of one version, or of all without --version"
        )
    file = Path(inbox.schema_settings.path) / path_of(source, type, version)
    if write and file.exists():
        raise ConfigError(f"{file} exists: remove it first, or leave --write out")
    with _told("events read") as tell:

        async def act(context: Context) -> Drafted:
            return await inferring.infer(context, source, type, last=last, version=version, progress=tell)

        drafted = run_on(inbox, act)
    text = msgspec.json.format(msgspec.json.encode(drafted.document), indent=2) + b"\n"
    left_out = f"; {drafted.unreadable:,} are erased or unreadable" if drafted.unreadable else ""
    status.print(f"Drafted from {drafted.events:,} events{left_out}. Check it before you use it.")
    if not write:
        print_bytes(text)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb") as written:
        written.write(text)
    status.print(f"Written: {file}", soft_wrap=True)


@schemas.command("check")
@click.argument("source")
@click.option("--schema", "draft", type=click.Path(path_type=Path), help="A draft, instead of the folder's schemas.")
@click.option("--type", "kind", help="Only events of this type; needed with --schema.")
@click.option("--version", help="Only events of this version, or of all with PREFIX*.")
@last_option
@click.option("--before", type=click.UUID, help="Continue before this event.")
@inbox_options
@prints_json
def check_schemas(
    inbox: Inbox,
    source: str,
    draft: Path | None,
    kind: str | None,
    version: str | None,
    last: int,
    before: UUID | None,
    as_json: bool,
) -> None:
    """Say what schemas would refuse among stored events

    Changes nothing. Each group is a schema and a place, as `hookledger failures` would group these events.

    Exits 11 if an event breaks its schema.
    """
    find = _of_folder(inbox) if draft is None else _of_draft(inbox, draft, kind)
    with _told("events checked") as tell:

        async def act(context: Context) -> SchemaReport:
            return await checking.check(
                context, source, kind, find, last=last, version=version, before=before, progress=tell
            )

        report = run_on(inbox, act)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if report.broken:
        raise SystemExit(exits.PROBLEM)


@schemas.command("drift")
@click.argument("source")
@click.option("--type", "kind", help="Only events of this type.")
@click.option("--since", type=Moment(), help="Only what was first seen since then.")
@limit_option(100)
@inbox_options
@prints_json
def show_drift(
    inbox: Inbox, source: str, kind: str | None, since: datetime | None, limit: int, as_json: bool
) -> None:
    """List new fields and types of a source's events

    Those that were first seen last come first. Reads the newest events since the last look, as workers do once a
    minute; a busy source is sampled. Names and JSON types are stored, never values.
    """

    async def act(context: Context) -> Drift:
        context.sources.endpoint(source)
        await drifting.look(context, source)
        return await drifting.drift(context, source, since=since)

    found = run_on(inbox, act)
    fields = [one for one in found.fields if kind is None or one.type == kind][:limit]
    if as_json:
        print_json(msgspec.structs.replace(found, fields=fields))
        return
    listing = Listing("first seen (UTC)", "new", "type", "field", "JSON type", "event", heads=3)
    for one in fields:
        listing.add(second(one.first_at), one.new, one.type, one.field, one.kind, one.event_id)
    listing.print()
    if not fields:
        status.print("No fields, or no new ones.")
    if found.full_at is not None:
        say(f"Some fields are not listed: there was no room for them since {second(found.full_at)} UTC.")


def _of_folder(inbox: Inbox) -> Find:
    schemas = inbox.schemas()
    return lambda event: schemas.find(event.source, event.type, event.version or None)


def _of_draft(inbox: Inbox, draft: Path, kind: str | None) -> Find:
    """Check all events of one type against a draft, which may be outside the folder."""
    if kind is None:
        raise click.UsageError("--schema needs --type: a draft is for events of one type")
    root = Path(inbox.schema_settings.path)
    inside = draft.resolve().is_relative_to(root.resolve())
    folder = Folder(root if inside else draft.parent)
    path = draft.resolve().relative_to(root.resolve()) if inside else Path(draft.name)
    schema = load_schema(folder, PurePosixPath(path.as_posix()))
    return lambda event: schema


def _print_report(report: SchemaReport) -> None:
    listing = Listing(number("events"), prose("cause"), prose("expected"), prose("found"), "events", heads=1)
    for group in report.groups:
        listing.add(f"{group.count:,}", group.cause, group.expected, group.found, ", ".join(map(str, group.sample)))
    listing.print()
    say(
        f"{report.looked_at:,} events: {report.fitting:,} fit, {report.broken:,} break their schema, "
        f"{report.without_schema:,} have no schema, {report.unreadable:,} are erased or unreadable."
    )
    if report.more_groups:
        say("There are more groups, which are not listed.")
    if report.next is not None:
        say(f"There are older events: --before {report.next} checks them.")


@contextlib.contextmanager
def _told(what: str) -> Iterator[Tell]:
    """Show on a terminal how many events were looked at."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=status, transient=True, disable=not status.is_terminal) as progress:
        task = progress.add_task(f"0 {what}", total=None)
        yield lambda count: progress.update(task, description=f"{count:,} {what}")
