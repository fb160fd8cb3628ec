"""`hookledger demo`: the whole path on this machine, with injected faults."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.text import Text

from ..errors import ConfigError
from ..inbox import Inbox
from . import exits
from .common import print_json, prints_json, run, run_on, status, table_console
from .demo_project import SECRET_VARIABLE, Project, choose_port, project, server
from .table import Listing, number, prose

if TYPE_CHECKING:  # imports SQLite, which is optional
    from .demo_scenario import Report

PORT, OPERATOR_PORT = 8700, 8701
PORTS = click.IntRange(1, 65535)


@click.command()
@click.option("--exit", "ends", is_flag=True, help="Exit after verifying; 0 if every effect happened once, else 9.")
@click.option("--port", type=PORTS, help=f"Port for deliveries; default: {PORT}, or any.")
@click.option("--operator-port", type=PORTS, help=f"For health checks; default: {OPERATOR_PORT}, or any.")
@click.option(
    "--keep-database",
    "keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Use this new or empty folder and keep it; default: a temporary one.",
)
@prints_json
def demo(ends: bool, port: int | None, operator_port: int | None, keep: Path | None, as_json: bool) -> None:
    """Inject faults and verify the result

    Runs the real server on its own SQLite database, sends duplicates, forgeries and late events, kills a worker, and
    verifies that each effect happened once. Then it serves until Ctrl-C.
    """
    _require_sqlite()
    intake = choose_port(port, PORT, operator_port or 0)
    operator = choose_port(operator_port, OPERATOR_PORT, intake)
    if not port and intake != PORT:
        status.print(f"[yellow]Port {PORT} is in use: using {intake}.[/]")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # may have been inherited as ignored
    for caught in (signal.SIGTERM, signal.SIGHUP):
        # asyncio turns SIGINT alone into a cancellation; raised in a callback, an interrupt may be lost
        signal.signal(caught, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        right = _demonstrate(keep, intake, operator, ends=ends, as_json=as_json)
    except KeyboardInterrupt:
        status.print("Interrupted: all processes are stopped.")
        raise SystemExit(130) from None
    if not right:
        raise SystemExit(exits.DEMO_FAILED)


def _require_sqlite() -> None:
    try:
        import apsw  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "the demo needs SQLite, which is not installed: pip install 'hookledger[sqlite]'"
        ) from error


def _demonstrate(keep: Path | None, port: int, operator_port: int, *, ends: bool, as_json: bool) -> bool:
    from .demo_scenario import Scenario, invoice

    began = time.monotonic()

    def say(text: str) -> None:
        status.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {text}", soft_wrap=True)

    with project(keep, port, operator_port) as made:
        inbox = Inbox(f"sqlite:///{made.database}")
        say(f"Making a SQLite database in {made.folder}")
        run(inbox.migrate())
        to_try = msgspec.json.encode(invoice("by_hand", 4900, int(time.time())))
        (made.folder / "invoice.json").write_bytes(msgspec.json.format(to_try, indent=2) + b"\n")
        say("Starting the server: a receiver and a worker")
        with server(made) as process:
            report = run_on(inbox, lambda context: Scenario(made, context, say).play())
            say("Done")
            if as_json:
                print_json(report)
            else:
                print_report(report)
            if not ends:
                _keep_serving(made, process)
    status.print(f"Stopped. The project stays in {made.folder}" if keep else "Stopped; the project is deleted.")
    return report.exactly_once


def print_report(report: Report) -> None:
    """Print what arrived and what happened, as tables."""
    console = table_console()
    arrived = Listing("what arrived", number("sent"), "right", prose("answers"), heads=1, title="Deliveries")
    for sent in report.deliveries:
        answers = ", ".join(f"{count} × {code}" for code, count in sorted(sent.answers.items(), reverse=True))
        arrived.add(sent.kind, f"{sum(sent.answers.values()):,}", _mark(sent.right), answers)
    arrived.print(console)
    console.print()
    happened = Listing("what happened", number("expected"), number("found"), "right", heads=1, title="Effects")
    for effect in report.effects:
        cells = (f"{v:,}" if isinstance(v, int) else v for v in (effect.expected, effect.found))
        happened.add(effect.name, *cells, _mark(effect.right))
    happened.print(console)
    if report.exactly_once:
        console.print("[bold green]Every effect happened exactly once ✔[/]")
    else:
        console.print("[bold red]Not every effect happened exactly once ✘[/]")


def _mark(right: bool) -> Text:
    return Text("✔", "green") if right else Text("✘", "bold red")


def _keep_serving(made: Project, process: subprocess.Popen[bytes]) -> None:
    """Serve until Ctrl-C, or until the server exits."""
    me = _my_command()
    lines = (
        f"cd {shlex.quote(str(made.folder))} && export {SECRET_VARIABLE}={made.secret}",
        f"{me} send stripe --body invoice.json --twice",
        f"{me} send stripe --body invoice.json --concurrently 20",
        f"{me} send stripe --body invoice.json --forge",
        f"{me} events",
        f"{me} show evt_demo_crash",
    )
    status.print(f"\nStill receiving at [bold]{made.url}[/]. In another terminal:\n")
    for line in lines:
        status.print(f"  {line}", soft_wrap=True, markup=False)
    status.print(f"\nThe application is {made.folder / 'app.py'}. Ctrl-C ends it.", soft_wrap=True)
    try:
        process.wait()
    except KeyboardInterrupt:
        status.print("\nStopping.")


def _my_command() -> str:
    """Return how this command was called, so that printed commands can be pasted."""
    called = Path(sys.argv[0])
    found = shutil.which("hookledger")
    if found and called.exists() and Path(found).samefile(called):
        return "hookledger"
    if called.name == "hookledger":
        return shlex.quote(str(called.resolve()))
    return f"{shlex.quote(sys.executable)} -m hookledger"
