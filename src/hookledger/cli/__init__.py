"""The command line: data on stdout, status on stderr, named exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import sys

try:
    import click
except ImportError:  # the light core was installed
    sys.exit("The command line needs more than the library: pip install 'hookledger[server]'")

from .. import __version__
from ..errors import HookledgerError
from .bulk import bulk
from .circuits import circuits
from .common import exit_code, status
from .decide import resolve, retry
from .demo import demo
from .doctor import doctor
from .effects import effects
from .groups import Sections
from .import_keys import import_keys
from .jobs import jobs
from .keys import keys
from .look import events, show
from .output import lose_status
from .pauses import pause, resume
from .processes import receive, serve, serve_api, work
from .providers import providers
from .prune import erase, prune
from .quarantine import quarantine
from .reconcile import reconcile
from .rejections import rejections
from .replay import discard, replay
from .schema import migrate
from .send import send
from .trouble import failures, lag

EPILOG = "Settings have environment variables: --help of each command names them."


@click.group(cls=Sections, epilog=EPILOG, context_settings={"show_default": True})
@click.version_option(__version__, prog_name="hookledger")
def cli() -> None:
    """A webhook inbox: accepts each authentic event once, and commits its handler's writes with its outcome."""


SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Run": (serve, receive, work, serve_api, migrate),
    "Look": (events, show, failures, lag, effects, doctor, keys, providers),
    "Decide": (retry, replay, resolve, discard, reconcile, bulk, jobs),
    "Control": (pause, resume, circuits),
    "Intake": (rejections, quarantine, import_keys),
    "Data": (prune, erase),
    "Try": (send, demo),
}
cli.add_sections(SECTIONS)


def _wait_for_readers() -> None:
    """A pipe takes 64 KiB at a time. With PYTHONUNBUFFERED, or when somebody left it in non-blocking mode, Python
    would lose the rest without a word: a buffer writes until all is written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or no file at all
        os.set_blocking(sys.stdout.fileno(), True)
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            given = sys.stdout
            buffered = io.BufferedWriter(io.FileIO(given.fileno(), "w", closefd=False))
            sys.stdout = io.TextIOWrapper(buffered, given.encoding, given.errors, line_buffering=True)


def main() -> None:
    """The `hookledger` command."""
    lose_status()
    _wait_for_readers()
    try:
        cli(standalone_mode=True)
    except HookledgerError as error:
        status.error(str(error))
        sys.exit(exit_code(error))
