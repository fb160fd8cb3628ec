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
from .common import exit_code, status
from .decide import circuits, reset, resolve, retry, trip
from .demo import demo
from .doctor import doctor
from .effects import effects
from .import_keys import import_keys
from .jobs import jobs
from .keys import keys
from .look import events, show
from .output import lose_status
from .pauses import pause, pauses, resume
from .processes import operate, receive, serve, work
from .providers import providers
from .prune import erase, prune
from .quarantine import admit, deliveries
from .reconcile import reconcile
from .rejections import recheck, rejections
from .replay import discard, replay
from .schema import migrate
from .send import send
from .trouble import failures, lag

EPILOG = "Every option can be given by an environment variable; --help of each command names them."


@click.group(epilog=EPILOG, context_settings={"auto_envvar_prefix": "HOOKLEDGER", "show_default": True})
@click.version_option(__version__, prog_name="hookledger")
def cli() -> None:
    """A webhook inbox: each authentic event accepted once, its handler's writes committed with its outcome."""


LOOK = (
    *(events, show, failures, lag, effects, jobs, pauses, deliveries, rejections, keys, doctor, circuits),
    providers,
)
DECIDE = (
    *(retry, replay, reconcile, resolve, discard, bulk, pause, resume),
    *(admit, recheck, import_keys, trip, reset),
)
KEEP = (prune, erase)


def _show_variables(command: click.Command) -> None:
    for option in command.params:
        if isinstance(option, click.Option):
            option.show_envvar = True
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _show_variables(part)


for command in (serve, receive, work, operate, migrate, *LOOK, *DECIDE, *KEEP, send, demo):
    cli.add_command(command)
    _show_variables(command)


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
