"""Keeps a receiver and a worker running, and ends them together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..store.sqlite.watch import VARIABLE as LOCK_WATCH
from ..store.sqlite.watch import LockWatch
from .common import status

PARENT_PIPE = "HOOKLEDGER_PARENT_PIPE"
"""A pipe whose end means that the supervisor is gone, even by kill -9."""
FATAL = frozenset({2, 3, 5})
"""Exit codes that starting again cannot mend: usage, configuration, schema."""


def when_parent_ends(then: Callable[[], object]) -> None:
    """Call `then`, in a thread of its own, when the process that started us is gone; if it wants us to know."""
    pipe = os.environ.get(PARENT_PIPE)
    if not pipe:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(int(pipe), 1)
        then()

    threading.Thread(target=wait, name="hookledger-parent", daemon=True).start()


class Supervisor:
    """`commands`: the subcommands to run and their arguments.

    A child that dies is started again, slower each time it dies young. A
    worker that holds SQLite's write lock over `lock_limit` seconds is killed:
    it is frozen, and every ack waits for it.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        environment: Mapping[str, str],
        lock_limit: float,
        grace: float,
    ) -> None:
        self._commands = commands
        self._environment = environment
        self._lock_limit = lock_limit
        self._grace = grace
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._born: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._early_deaths: dict[str, int] = {}
        self._stopping = False

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        when_parent_ends(self._stop)
        read, write = os.pipe()
        os.set_inheritable(read, True)
        with tempfile.TemporaryDirectory(prefix="hookledger-") as folder:
            watch_file = Path(folder) / "lock"
            LockWatch.create(watch_file)
            watch = LockWatch(watch_file)
            environment = {
                **os.environ,
                **self._environment,
                PARENT_PIPE: str(read),
            }
            try:
                return self._watch(watch, environment, {LOCK_WATCH: str(watch_file)}, read)
            finally:
                os.close(write)
                self._end_children()

    def _stop(self, *_: object) -> None:
        if self._stopping:
            self._grace = 0.0
            return
        self._stopping = True
        status.print(f"Stopping: what runs has up to {self._grace:.0f} s. Once more ends it now.")

    def _watch(
        self, watch: LockWatch, environment: Mapping[str, str], for_worker: Mapping[str, str], pipe: int
    ) -> int:
        self._due = dict.fromkeys(self._commands, 0.0)
        while not self._stopping:
            for name, due in list(self._due.items()):
                if time.monotonic() >= due:
                    del self._due[name]
                    extra = for_worker if name == "work" else {}
                    self._start(name, {**environment, **extra}, pipe)
            for name, child in list(self._children.items()):
                code = child.poll()
                if code is None:
                    continue
                del self._children[name]
                if name == "work":
                    watch.clear()  # the lock died with it; its successor does not hold it
                if code in FATAL and time.monotonic() - self._born[name] < 10:
                    return code
                self._start_later(name, code)
            if watch.held_for() > self._lock_limit and "work" in self._children:
                status.print("[red]The worker holds SQLite's write lock for too long: killing it.[/]")
                watch.clear()
                self._children["work"].kill()
            time.sleep(0.1)
        return 0

    def _start(self, name: str, environment: Mapping[str, str], pipe: int) -> None:
        command = [sys.executable, "-m", "hookledger", name, *self._commands[name]]
        self._children[name] = subprocess.Popen(  # noqa: S603 - our own command
            command, env=dict(environment), pass_fds=[pipe], start_new_session=True
        )
        self._born[name] = time.monotonic()

    def _start_later(self, name: str, code: int) -> None:
        young = time.monotonic() - self._born[name] < 10
        self._early_deaths[name] = self._early_deaths.get(name, 0) + 1 if young else 0
        delay = min(30.0, 0.1 * 2 ** self._early_deaths[name])
        status.print(f"[yellow]{name} ended with {code}; starting it again in {delay:.1f} s.[/]")
        self._due[name] = time.monotonic() + delay

    def _end_children(self) -> None:
        """Ask, wait, insist."""
        for child in self._children.values():
            child.terminate()
        begun = time.monotonic()
        while any(child.poll() is None for child in self._children.values()):
            if time.monotonic() - begun > self._grace:
                for child in self._children.values():
                    child.kill()
                    child.wait()
            time.sleep(0.05)
