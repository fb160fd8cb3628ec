"""The process that runs handlers which answer: a command that only a receiver starts."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from ..inbox import Inbox
from ..inline.client import AnswerClient
from ..inline.process import serve
from ..receive.answering import Answerer
from ..store.sqlite.watch import VARIABLE as LOCK_WATCH
from ..store.sqlite.watch import LockWatch
from . import exits
from .common import inbox_options, run, set_up_logging
from .monitor import LONGEST_PATH, Monitor, watch_answerer
from .output import end_now
from .supervise import MONITOR, PARENT_PIPE, WORKING, safe_path

log: logging.Logger = logging.getLogger(__name__)

NAME = "answering"
LOCK_LIMIT = 3
"""How often [work] transaction_limit it may hold SQLite's write lock before it counts as frozen."""
PATIENCE = 20.0
"""Seconds beyond every handler's timeout and lease after which a silent process is killed."""


@click.command(NAME, hidden=True)
@click.option("--socket", "descriptor", type=int, required=True, help="File descriptor of the receiver's socket.")
@click.option("--log-level", default="info", help="Lowest level to log.")
@click.option("--log-json", is_flag=True, help="Write only JSON lines to stderr.")
@click.option("--log-dev", is_flag=True, help="Log each delivery and attempt, in short lines.")
@click.option("--metrics", help="Path of the Unix socket for its metrics.")
@inbox_options
def answering(
    inbox: Inbox, descriptor: int, log_level: str, log_json: bool, log_dev: bool, metrics: str | None
) -> None:
    """Run handlers that answer, for a receiver"""
    set_up_logging(log_level, as_json=log_json, dev=log_dev)
    with (
        Monitor(NAME, inbox, f"unix:{metrics}" if metrics else None, by_settings=False) as monitor,
        socket.socket(fileno=descriptor) as line,
    ):
        line.set_inheritable(False)  # its end is ours, not also that of a program that a handler starts
        # A handler that blocks the event loop cannot be stopped; what it held is reclaimed after the exit.
        started = partial(watch_answerer, monitor, inbox)
        run(serve(inbox, line, started=started, stuck=lambda: end_now(exits.STUCK)))
    logging.shutdown()
    end_now(exits.OK)  # also if a thread of a handler lives on


class AnswerProcess:
    """Starts the process when the intake opens. `environment` leads it to the same inbox."""

    def __init__(self, inbox: Inbox, environment: Mapping[str, str], arguments: Sequence[str]) -> None:
        self._inbox = inbox
        self._environment = environment
        self._arguments = arguments
        self.monitors: dict[str, str] = {}
        """The Unix socket with its metrics, by its name; empty while no handler answers."""

    def _start(self, descriptor: int, lock_watch: Path) -> subprocess.Popen[bytes]:
        told = {name: value for name, value in os.environ.items() if name not in (PARENT_PIPE, MONITOR, WORKING)}
        command = [sys.executable, *safe_path(), "-m", "hookledger", NAME, "--socket", str(descriptor)]
        command += [*self._arguments, *(["--metrics", self.monitors[NAME]] if self.monitors else [])]
        env = {**told, **self._environment, LOCK_WATCH: str(lock_watch)}
        return subprocess.Popen(command, env=env, pass_fds=[descriptor], stdin=subprocess.DEVNULL)  # noqa: S603

    async def __call__(self, stack: contextlib.AsyncExitStack) -> Answerer:
        inbox, settings, work = self._inbox, self._inbox.settings.answers, self._inbox.settings.work
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hookledger-")))
        place, told = folder / f"{NAME}.lock", str(folder / f"{NAME}.socket")
        if len(os.fsencode(told)) <= LONGEST_PATH:
            self.monitors = {NAME: told}
        else:
            log.warning("there are no metrics of the answering process: the path of %s is too long", folder)
        LockWatch.create(place)
        watch, limit = LockWatch(place), work.transaction_limit * LOCK_LIMIT + 2

        def start(descriptor: int) -> subprocess.Popen[bytes]:
            watch.clear()  # a lock ends with the process that held it
            Path(told).unlink(missing_ok=True)  # so does its socket, and one that is not quite dead keeps none out
            return self._start(descriptor, place)

        client = AnswerClient(
            start,
            queue=settings.queue,
            patience=inbox.routes.longest_timeout(work.timeout) + settings.lease + PATIENCE,
            leave=work.longest_stop,
            stalls=lambda: watch.held_for() > limit,
        )
        client.open()
        stack.push_async_callback(client.close)
        return client
