"""The command line: data on stdout, status on stderr, named exit codes."""

from __future__ import annotations

import sys

try:
    import click
except ImportError:  # the light core was installed
    sys.exit("The command line needs more than the library: pip install 'hookledger[server]'")

from rich.markup import escape

from .. import __version__
from ..errors import HookledgerError
from .common import exit_code, status
from .decide import circuits, reset, resolve, retry, trip
from .demo import demo
from .doctor import doctor
from .import_keys import import_keys
from .keys import keys
from .look import events, show
from .odd import admit, deliveries
from .processes import receive, serve, work
from .providers import providers
from .prune import erase, prune
from .refused import recheck, rejections
from .replay import discard, replay
from .schema import migrate
from .send import send
from .transfer import export, import_

EPILOG = "Every option can be given by an environment variable; --help of each command names them."


@click.group(epilog=EPILOG, context_settings={"auto_envvar_prefix": "HOOKLEDGER", "show_default": True})
@click.version_option(__version__, prog_name="hookledger")
def cli() -> None:
    """A webhook inbox: each authentic event accepted once, its handler's writes committed with its outcome."""


LOOK = (events, show, deliveries, rejections, keys, doctor, circuits, providers)
DECIDE = (retry, replay, resolve, discard, admit, recheck, import_keys, trip, reset)
KEEP = (prune, erase, export, import_)

for command in (serve, receive, work, migrate, *LOOK, *DECIDE, *KEEP, send, demo):
    cli.add_command(command)
    for option in command.params:
        if isinstance(option, click.Option):
            option.show_envvar = True


def main() -> None:
    """The `hookledger` command."""
    try:
        cli(standalone_mode=True)
    except HookledgerError as error:
        status.print(f"[bold red]error:[/] {escape(str(error))}", markup=True, soft_wrap=True)
        sys.exit(exit_code(error))
