"""The command line: data on stdout, status on stderr, named exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import sys

try:
    import click
except ImportError:  # installed without the server extra
    sys.exit("the command line is not installed: pip install 'hookledger[server]'")

from .. import __version__
from ..errors import HookledgerError
from .alerts import alerts
from .answering import answering
from .audit import audit
from .bulk import bulk
from .check import check
from .circuits import circuits
from .common import exit_code, status
from .copy import copy
from .decide import resolve, retry
from .demo import demo
from .doctor import doctor
from .effects import effects
from .events import events
from .failures import failures, lag
from .groups import Sections
from .import_keys import import_keys
from .jobs import jobs
from .keys import keys
from .migrate import migrate
from .output import lose_status
from .pauses import pause, resume
from .processes import receive, serve, serve_api, work
from .providers import providers
from .prune import erase, prune
from .quarantine import quarantine
from .reconcile import reconcile
from .rejections import rejections
from .replay import discard, replay
from .review import approve, reject, settle
from .schemas import schemas
from .send import send
from .show import show
from .top import top

EPILOG = "Each command's --help names the environment variables of its settings."


@click.group(cls=Sections, epilog=EPILOG, context_settings={"show_default": True})
@click.version_option(__version__, prog_name="hookledger")
def cli() -> None:
    """A webhook inbox that accepts each event once and never repeats an effect blindly"""


SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Run": (serve, receive, work, serve_api, migrate),
    "Look": (events, show, failures, lag, top, effects, doctor, check, alerts, audit, keys, providers),
    "Decide": (retry, replay, resolve, approve, reject, settle, discard, reconcile, bulk, jobs),
    "Control": (pause, resume, circuits),
    "Intake": (rejections, quarantine, schemas, import_keys),
    "Data": (prune, erase, copy),
    "Try": (send, demo),
}
cli.add_sections(SECTIONS)
cli.add_command(answering)  # hidden: only a receiver starts it


def _wait_for_readers() -> None:
    """Make stdout block and buffer, so that a pipe gets all of the output.

    With PYTHONUNBUFFERED, or on a pipe in non-blocking mode, Python drops what does not fit into 64 KiB.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or no file at all
        os.set_blocking(sys.stdout.fileno(), True)
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            given = sys.stdout
            buffered = io.BufferedWriter(io.FileIO(given.fileno(), "w", closefd=False))
            sys.stdout = io.TextIOWrapper(buffered, given.encoding, given.errors, line_buffering=True)


def main() -> None:
    """Run the `hookledger` command."""
    lose_status()
    _wait_for_readers()
    try:
        cli(standalone_mode=True)
    except HookledgerError as error:
        status.error(str(error))
        sys.exit(exit_code(error))
