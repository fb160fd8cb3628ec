"""What every command shares: finding the inbox, printing, and turning errors into exit codes."""

from __future__ import annotations

import asyncio
import functools
import getpass
import importlib
import logging
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from .. import config as configuration
from ..errors import ConfigError, HookledgerError, ListingFailed, SchemaMismatch, Unavailable, WrongState
from ..inbox import Inbox
from ..observe.logs import AddFacts
from ..operate.insight import Ambiguous, NotFound
from ..receive.endpoint import secrets_needed
from . import exits

F = TypeVar("F", bound=Callable[..., Any])

status = Console(stderr=True, highlight=False)
"""For people: what is going on. Data goes to stdout."""

_CODES: tuple[tuple[type[HookledgerError], int], ...] = (
    (ConfigError, exits.CONFIG),
    (SchemaMismatch, exits.SCHEMA),
    (NotFound, exits.NOT_FOUND),
    (Ambiguous, exits.NOT_FOUND),
    (WrongState, exits.REFUSED),
    (ListingFailed, exits.PROVIDER),
    (Unavailable, exits.UNAVAILABLE),
)


def finds_inbox(command: F) -> F:
    """Adds --app, --config and --database; the command gets the inbox they lead to."""

    @click.option("--app", envvar="HOOKLEDGER_APP", show_envvar=True, help="Where the inbox is: module:name.")
    @click.option(
        "--config",
        "config_file",
        envvar="HOOKLEDGER_CONFIG",
        show_envvar=True,
        type=click.Path(path_type=Path),
        help=f"Settings file; {configuration.FILE} in this folder if there is one.",
    )
    @click.option(
        "--database",
        envvar="HOOKLEDGER_DATABASE",
        show_envvar=True,
        help="postgresql://… or sqlite:///FILE.",
    )
    @functools.wraps(command)
    def wrapper(app: str | None, config_file: Path | None, database: str | None, **rest: Any) -> Any:
        return command(inbox=find_inbox(app, config_file, database), **rest)

    return wrapper  # type: ignore[return-value]


def looks_at_inbox(command: F) -> F:
    """The same for a command that takes nothing in: secrets that are not set here are no reason to refuse."""
    found = finds_inbox(command)

    @functools.wraps(found)
    def wrapper(**options: Any) -> Any:
        token = secrets_needed.set(False)
        try:
            return found(**options)
        finally:
            secrets_needed.reset(token)

    return wrapper  # type: ignore[return-value]


def prints_json(command: F) -> F:
    """Adds --json."""
    option = click.option(
        "--json", "as_json", is_flag=True, envvar="HOOKLEDGER_JSON", show_envvar=True, help="Print JSON."
    )
    return option(command)


def find_inbox(app: str | None, config_file: Path | None, database: str | None) -> Inbox:
    """The inbox of the application, or one made of the settings file alone."""
    path = config_file or Path(configuration.FILE)
    settings = configuration.load(path) if config_file or path.is_file() else None
    app = app or (settings.app if settings else None)
    if app:
        inbox = _import(app)
        if settings:
            inbox.bind(settings)
    else:
        inbox = Inbox(settings=settings)
    inbox.database = database or inbox.database
    return inbox


def _import(app: str) -> Inbox:
    module, _, name = app.partition(":")
    if not module or not name:
        raise ConfigError(f"--app is written module:name, not {app!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the application raises while it is imported
        raise ConfigError(f"--app {app}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Inbox):
        raise ConfigError(f"--app {app} is a {type(found).__name__}, not an Inbox")
    return found


def print_bytes(data: bytes) -> None:
    """Exactly these, on stdout."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_json(value: Any) -> None:
    """One JSON document on stdout; ids and times as text."""
    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    click.echo(data.decode())


def table_console() -> Console:
    """For tables on stdout; wide when piped, so that nothing is cut off."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def second(value: datetime) -> str:
    """A moment as narrow tables show it, in UTC; with its year where nobody counts columns."""
    return value.astimezone(UTC).strftime("%m-%d %H:%M:%S" if sys.stdout.isatty() else "%Y-%m-%d %H:%M:%S")


def brief(ident: UUID) -> str:
    """As much of an id as tells it apart and can be typed; all of it where nobody counts columns."""
    return str(ident)[:18] if sys.stdout.isatty() else str(ident)


def narrow_table(*columns: str, title: str | None = None, folds: str = "") -> Table:
    """A table for a hundred columns; only the column `folds` may be broken."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title)
    for column in columns:
        table.add_column(column, no_wrap=column != folds, overflow="fold" if column == folds else "ellipsis")
    return table


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a command's coroutine, on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def set_up_logging(level: str = "INFO", *, as_json: bool = False) -> None:
    """Lines on stderr, each with the event's id and key while one is handled."""
    import structlog  # here: it takes longer to import than most commands take to run

    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            render,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(AddFacts())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("_granian").setLevel(logging.WARNING)


def exit_code(error: HookledgerError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), exits.ERROR)


def default_actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
