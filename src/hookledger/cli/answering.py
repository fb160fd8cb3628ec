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
from pathlib import Path

import click

from ..inbox import Inbox
from ..inline.client import AnswerClient
from ..inline.process import serve
from ..receive.answering import Answerer
from ..receive.asgi import OpenAnswerer
from ..store.sqlite.watch import VARIABLE as LOCK_WATCH
from ..store.sqlite.watch import LockWatch
from . import exits
from .common import inbox_options, run, set_up_logging
from .output import end_now
from .supervise import MONITOR, PARENT_PIPE, WORKING, safe_path

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
@inbox_options
def answering(inbox: Inbox, descriptor: int, log_level: str, log_json: bool, log_dev: bool) -> None:
    """Run handlers that answer, for a receiver"""
    set_up_logging(log_level, as_json=log_json, dev=log_dev)
    with socket.socket(fileno=descriptor) as line:
        line.set_inheritable(False)  # its end is ours, not also that of a program that a handler starts
        # A handler that blocks the event loop cannot be stopped; what it held is reclaimed after the exit.
        run(serve(inbox, line, stuck=lambda: end_now(exits.STUCK)))
    logging.shutdown()
    end_now(exits.OK)  # also if a thread of a handler lives on


def open_process(inbox: Inbox, environment: Mapping[str, str], arguments: Sequence[str]) -> OpenAnswerer:
    """What starts the process when the intake opens. `environment` leads it to the same inbox."""

    def started(descriptor: int, lock_watch: Path) -> subprocess.Popen[bytes]:
        told = {name: value for name, value in os.environ.items() if name not in (PARENT_PIPE, MONITOR, WORKING)}
        command = [sys.executable, *safe_path(), "-m", "hookledger", NAME, "--socket", str(descriptor), *arguments]
        env = {**told, **environment, LOCK_WATCH: str(lock_watch)}
        return subprocess.Popen(command, env=env, pass_fds=[descriptor], stdin=subprocess.DEVNULL)  # noqa: S603

    async def opened(stack: contextlib.AsyncExitStack) -> Answerer:
        settings, work = inbox.settings.answers, inbox.settings.work
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hookledger-"))) / f"{NAME}.lock"
        LockWatch.create(place)
        watch, limit = LockWatch(place), work.transaction_limit * LOCK_LIMIT + 2

        def start(descriptor: int) -> subprocess.Popen[bytes]:
            watch.clear()  # a lock ends with the process that held it
            return started(descriptor, place)

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

    return opened
