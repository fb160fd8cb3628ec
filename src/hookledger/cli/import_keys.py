"""`hookledger import-keys`: keys of events that another system processed."""

from __future__ import annotations

import csv
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TextIO
from uuid import UUID

import click
import msgspec
from rich.progress import Progress

from ..errors import ConfigError
from ..inbox import Inbox
from ..operate import audit
from ..operate.context import Context
from ..operate.keys.cutover import BATCH, Comparison, KeyRule, compare, query_keys
from ..operate.keys.cutover import import_keys as store_keys
from ..store.ops.imported_keys import Imported
from .common import actor_option, inbox_options, print_json, prints_json, reason_option, run_on, status
from .log_lines import printable

Row = Sequence[object]


@click.command("import-keys")
@click.argument("source")
@click.argument("file", required=False, type=click.File("r", encoding="utf-8-sig"))
@click.option("--column", "columns", multiple=True, help="CSV: number or name of a column; --query: its number.")
@click.option("--field", "fields", multiple=True, help="JSON lines: path of a field, such as data.id.")
@click.option("--query", help="SELECT on the inbox's database, run read-only; instead of FILE.")
@click.option("--dry-run", is_flag=True, help="Compare with the keys recorded here; import nothing.")
@reason_option(unless="--dry-run")
@actor_option
@inbox_options
@prints_json
def import_keys(
    inbox: Inbox,
    source: str,
    file: TextIO | None,
    columns: tuple[str, ...],
    fields: tuple[str, ...],
    query: str | None,
    dry_run: bool,
    reason: str | None,
    actor: str,
    as_json: bool,
) -> None:
    """Import keys processed by another system

    A delivery to SOURCE with an imported key is a duplicate. FILE (- for stdin) has one key per line, or is CSV with
    --column, or JSON lines with --field; repeat these for a key of several fields, in the order of the key. Safe to
    repeat after a failure.
    """
    query = (query or "").strip() or None
    if (file is None) == (query is None):
        raise click.UsageError("give either a FILE (- for stdin) or --query")
    if fields and (columns or query):
        raise click.UsageError("--field works only with JSON lines: use --column for CSV and --query")
    if not dry_run and not (reason and reason.strip()):
        raise click.UsageError("--reason is required unless --dry-run")

    rule = KeyRule(inbox.examiner.endpoint(source))
    _check_columns(rule, columns or fields)

    async def act(context: Context) -> Imported | Comparison:
        with Progress(console=status, transient=True, disable=not status.is_terminal) as progress:
            rows = query_keys(context, query) if query else _batched(_from_file(file, columns, fields))
            picked = _picked(rows, _numbers(columns) if query else None)
            batches = _keys(picked, rule, progress, file)
            if dry_run:
                return await compare(context, rule, batches)
            by, total = audit.by(actor, reason or ""), Imported(0, 0, 0)
            async for batch in batches:
                done = await store_keys(context, by, source, [rule.identity(key) for key in batch])
                total = Imported(total.given + done.given, total.new + done.new, total.known + done.known)
            return total

    result = run_on(inbox, act)
    if as_json:
        print_json(result)
    elif isinstance(result, Imported):
        click.echo(f"{result.given:,} keys: {result.new:,} new here, {result.known:,} known before.")
    else:
        _print(result, source)


def _print(found: Comparison, source: str) -> None:
    click.echo(f"{found.given:,} keys given; known here: {found.known:,}, not known: {found.missing:,}.")
    for key in found.missing_sample:
        click.echo(f"    not here: {printable(key)}")
    click.echo(f"{found.events:,} events of {source} looked at here; not among the given: {found.extra:,}.")
    for key in found.extra_sample:
        click.echo(f"    only here: {printable(key)}")
    status.print("Nothing was imported.")


# ── reading the keys ───────────────────────────────────────────────────────


def _check_columns(rule: KeyRule, given: Sequence[str]) -> None:
    wanted = len(rule.wanted)
    if len(given or ("",)) != wanted:
        raise ConfigError(
            f"the key of source {rule.source!r} is {' + '.join(rule.wanted)}: give --column or --field {wanted} "
            f"time{'s' if wanted > 1 else ''}, in this order"
        )


def _numbers(columns: Sequence[str]) -> list[int] | None:
    """Return column numbers from 0; None: the first column."""
    if not columns:
        return None
    if not all(column.isdecimal() and int(column) > 0 for column in columns):
        raise ConfigError("--column must be a number from 1 with --query; select the columns in the query")
    return [int(column) - 1 for column in columns]


def _from_file(file: TextIO | None, columns: Sequence[str], fields: Sequence[str]) -> Iterator[Row]:
    assert file is not None
    read: Callable[[str], Row] = _json_line(fields) if fields else lambda line: (line,)
    number = 0
    try:
        for row in _csv(file, columns) if columns else map(read, filter(None, map(str.strip, file))):
            number += 1
            yield row
    except UnicodeDecodeError:
        raise ConfigError(
            f"the file is not UTF-8 after entry {number:,}: convert it, then run the import again"
        ) from None
    except (msgspec.DecodeError, csv.Error) as error:
        raise ConfigError(f"entry {number + 1:,} of the file cannot be read: {error}") from None


def _json_line(fields: Sequence[str]) -> Callable[[str], Row]:
    ways = [field.split(".") for field in fields]

    def read(line: str) -> Row:
        document = msgspec.json.decode(line)
        return [_inner(document, way) for way in ways]

    return read


def _inner(value: Any, way: Sequence[str]) -> object:
    for name in way:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _csv(file: TextIO, columns: Sequence[str]) -> Iterator[Row]:
    rows = csv.reader(file)
    if all(column.isdecimal() for column in columns):
        places = [int(column) - 1 for column in columns]
        if min(places) < 0:
            raise ConfigError("--column 0 does not exist: columns are numbered from 1")
    else:
        header = next(rows, [])
        for column in columns:
            if column not in header:
                raise ConfigError(f"the first row names no column {column!r}; it names: {', '.join(header)}")
        places = [header.index(column) for column in columns]
    for row in rows:
        if row:
            yield [row[place].strip() if place < len(row) else None for place in places]


async def _batched(rows: Iterator[Row]) -> AsyncIterator[list[Row]]:
    while batch := list(islice(rows, 1000)):
        yield batch


async def _picked(batches: AsyncIterator[Any], numbers: list[int] | None) -> AsyncIterator[list[Row]]:
    """Yield the selected columns of a query; database ids as text."""
    async for batch in batches:
        picked = [row if numbers is None else [_at(row, number) for number in numbers] for row in batch]
        yield [[str(value) if isinstance(value, UUID) else value for value in row] for row in picked]


def _at(row: Row, number: int) -> object:
    if number >= len(row):
        raise ConfigError(f"the query has {len(row)} columns, so there is no column {number + 1}")
    return row[number]


async def _keys(
    batches: AsyncIterator[Iterable[Row]], rule: KeyRule, progress: Progress, file: TextIO | None
) -> AsyncIterator[list[tuple[bytes, ...]]]:
    """Yield exact keys in batches. A row without a key is an error: without its key, an event that
    was processed elsewhere would be accepted as new."""
    total = _size(file)
    task = progress.add_task("keys", total=total)
    seen, waiting = 0, []
    async for batch in batches:
        for row in batch:
            seen += 1
            key = rule.parts(row)
            if key is None:
                raise ConfigError(f"entry {seen:,} has no key: {' + '.join(rule.wanted)} must be text or a number")
            waiting.append(key)
        if total:
            progress.update(task, completed=_position(file))
        progress.update(task, description=f"{seen:,} keys")
        while len(waiting) >= BATCH:
            yield waiting[:BATCH]
            del waiting[:BATCH]
    if waiting:
        yield waiting


def _size(file: TextIO | None) -> int | None:
    try:
        return os.fstat(file.fileno()).st_size or None if file is not None else None
    except (OSError, ValueError):
        return None


def _position(file: TextIO | None) -> int:
    try:
        return file.buffer.tell() if file is not None else 0
    except (OSError, ValueError):
        return 0
