"""What every command shares: finding the inbox, printing, and mapping errors to exit codes."""

from __future__ import annotations

import asyncio
import functools
import getpass
import io
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from .. import config as configuration
from ..errors import (
    BadResult,
    ConfigError,
    HookledgerError,
    ListingFailed,
    NoTransaction,
    SchemaMismatch,
    Unavailable,
    WrongState,
)
from ..inbox import Inbox
from ..observe import lines
from ..observe.logs import AddFacts
from ..operate import audit
from ..operate.context import Context
from ..operate.errors import Ambiguous, NotFound
from ..receive.health import HEALTH
from . import exits
from .load import load_app
from .log_lines import ShortLines, as_exception, printable, printable_line
from .output import lose_everything

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Decorator(Protocol):
    """Adds an option to a command."""

    def __call__(self, command: F, /) -> F: ...


class SafeConsole(Console):
    """A console that escapes control characters: most of what it prints is untrusted."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


class StatusConsole(SafeConsole):
    """Prints status on stderr; once the log is JSON, as log lines, so that stderr holds only JSON."""

    as_json = False

    def print(self, *objects: Any, **options: Any) -> None:
        if self.as_json:
            plain = SafeConsole(file=io.StringIO(), highlight=False, color_system=None)
            plain.print(*objects, **options | {"soft_wrap": True})
            _status_log.info(plain.file.getvalue().strip())  # type: ignore[attr-defined]  # it is a StringIO
        else:
            super().print(*objects, **options)

    def error(self, words: str) -> None:
        """Print why a command fails."""
        if self.as_json:
            _status_log.error(words)
        else:
            self.print(f"[bold red]error:[/] {escape(words)}", markup=True, soft_wrap=True)


_status_log = logging.getLogger("hookledger.status")
_status_log.setLevel(logging.INFO)  # at any log level
status: StatusConsole = StatusConsole(stderr=True, highlight=False)
"""Status for people; data goes to stdout."""

_CODES: tuple[tuple[type[HookledgerError], int], ...] = (
    (ConfigError, exits.CONFIG),
    (BadResult, exits.CONFIG),
    (SchemaMismatch, exits.SCHEMA),
    (NotFound, exits.NOT_FOUND),
    (Ambiguous, exits.NOT_FOUND),
    (WrongState, exits.NOT_ALLOWED),
    (NoTransaction, exits.NOT_ALLOWED),
    (ListingFailed, exits.PROVIDER),
    (Unavailable, exits.UNAVAILABLE),
)


def setting(*names: str, variable: str, **how: Any) -> Decorator:
    """Add an option that HOOKLEDGER_… also sets: for settings, never for a confirmation or a reason."""
    return click.option(*names, envvar=f"HOOKLEDGER_{variable}", show_envvar=True, **how)


def inbox_options(command: F) -> F:
    """Add --app, --config and --database; the command gets the inbox they name."""

    @setting("--app", variable="APP", help="The application's inbox, as module:name.")
    @setting(
        "--config",
        "config_file",
        variable="CONFIG",
        type=click.Path(path_type=Path),
        help=f"Settings file; default: {configuration.FILE} in this folder.",
    )
    @setting("--database", variable="DATABASE", help="postgresql://… or sqlite:///FILE.")
    @functools.wraps(command)
    def wrapper(app: str | None, config_file: Path | None, database: str | None, **rest: Any) -> Any:
        return command(inbox=find_inbox(app, config_file, database), **rest)

    return wrapper  # type: ignore[return-value]


def prints_json(command: F) -> F:
    """Add --json."""
    return setting("--json", "as_json", variable="JSON", is_flag=True, help="Print JSON.")(command)


def default_actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def actor_option(command: F) -> F:
    """Add --actor."""
    how: dict[str, Any] = {"default": default_actor, "show_default": "your user name"}
    return setting("--actor", variable="ACTOR", help="Audit actor.", **how)(command)


def reason_option(*, unless: str | None = None, only_with: str | None = None) -> Callable[[F], F]:
    """Add --reason: always required, or unless or only with another option."""
    if unless or only_with:
        when = f"required unless {unless}" if unless else f"required with {only_with}"
        return click.option("--reason", help=f"Audit reason; {when}.")
    return click.option("--reason", required=True, help="Audit reason.")


def audited(command: F) -> F:
    """Add --reason, which is required, and --actor; the command gets them as `by`, for the audit log."""

    @actor_option
    @reason_option()
    @functools.wraps(command)
    def wrapper(actor: str, reason: str, **rest: Any) -> Any:
        return command(by=audit.by(actor, reason), **rest)

    return wrapper  # type: ignore[return-value]


def find_inbox(app: str | None, config_file: Path | None, database: str | None) -> Inbox:
    """Return the application's inbox, or one made from the settings file alone."""
    path = config_file or Path(configuration.FILE)
    settings = configuration.load(path) if config_file or path.is_file() else None
    app = app or (settings.app if settings else None)
    if app:
        inbox = load_app(app)
        if settings:
            inbox.bind(settings)
    else:
        inbox = Inbox(settings=settings)
    inbox.database = database or inbox.database
    return inbox


def print_bytes(data: bytes) -> None:
    """Print exactly these bytes on stdout."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_json(value: Any) -> None:
    """Print one JSON document on stdout; ids and times are text."""
    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    click.echo(printable(data.decode()))


def table_console() -> Console:
    """Return a console for tables on stdout; unlimited width when piped, so that nothing is cut."""
    return SafeConsole(highlight=False, width=None if sys.stdout.isatty() else 200)


def second(value: datetime) -> str:
    """Return a time in UTC to the second; without the year on a terminal, to save columns."""
    return value.astimezone(UTC).strftime("%m-%d %H:%M:%S" if sys.stdout.isatty() else "%Y-%m-%d %H:%M:%S")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine, on uvloop if installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def run_on(inbox: Inbox, act: Callable[[Context], Awaitable[T]], *, check: bool = True) -> T:
    """Open the inbox and return what `act` returns. `check`: refuse a schema that this release does not support."""

    async def main() -> T:
        async with inbox.operating(check=check) as context:
            return await act(context)

    return run(main())


def set_up_logging(level: str = "INFO", *, as_json: bool = False, dev: bool = False) -> None:
    """Log to stderr, with the facts of the event being handled. A failing stderr never ends the process. `dev`: with
    each delivery and attempt, in short lines unless JSON is asked for."""
    lose_everything()
    import structlog  # imported here: slower than most commands

    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    render: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer()]
    if not as_json:
        colors = sys.stderr.isatty()
        plain = structlog.dev.ConsoleRenderer(colors=colors)
        render = [printable_line, ShortLines(plain, colors=colors) if dev else plain]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            as_exception,
            *render,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(AddFacts())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx2").addFilter(_is_no_probe)
    if dev:
        lines.log.setLevel(logging.DEBUG)
    status.as_json = as_json
    if as_json:
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught


def _is_no_probe(record: logging.LogRecord) -> bool:
    """Whether a log record is not about our own health checks, which come every second."""
    return not any(str(value).endswith(HEALTH) for value in record.args or ())


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _status_log.critical("internal error", exc_info=(kind, error, trace))


def exit_code(error: HookledgerError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), exits.ERROR)
