"""Keeps a receiver, a worker and, if it has tokens, the API running, and stops them together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.markup import escape

from ..store.sqlite.watch import VARIABLE as LOCK_WATCH
from ..store.sqlite.watch import LockWatch
from .common import status
from .monitor import LONGEST_PATH, MONITORS

PARENT_PIPE = "HOOKLEDGER_PARENT_PIPE"
"""A pipe that closes when the supervisor ends, even by kill -9."""
MONITOR = "HOOKLEDGER_MONITOR"
"""Where a child answers health checks and gives its metrics; the variable of --monitor."""
WORKING = "HOOKLEDGER_WORKING"
"""A file that proves that a child started: a worker creates it with its first claim, others just before listening."""
FATAL = frozenset({2, 3, 5})
"""Exit codes that a restart cannot fix: usage, configuration, schema."""
API = "api"
"""The child that no delivery waits for: it runs at lower priority, and its failure after start-up does not end the
others."""
WATCHED = frozenset({"work", API})
"""Children that write beside the receiver."""
NICE = 5
"""Niceness of the API, which leaves it about a third of a receiver's share. With hardly any CPU time it would be as
bad as a frozen process while it holds SQLite's write lock."""


def when_parent_ends(then: Callable[[], object]) -> None:
    """Call `then`, in its own thread, when the process that started us ends and passed us PARENT_PIPE."""
    pipe = os.environ.get(PARENT_PIPE)
    if not pipe:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(int(pipe), 1)
        then()

    threading.Thread(target=wait, name="hookledger-parent", daemon=True).start()


def report_started() -> None:
    """Tell the supervisor, if there is one, that this process has started to work."""
    if file := os.environ.get(WORKING):
        with contextlib.suppress(OSError):
            Path(file).touch()


def other_monitors(own: str) -> dict[str, str]:
    """Return the Unix sockets of the supervisor's other children, by name; empty without a supervisor."""
    given = os.environ.get(MONITORS)
    found = msgspec.json.decode(given, type=dict[str, str]) if given else {}
    return {name: path for name, path in found.items() if name != own}


def lower_priority(pid: int) -> None:
    """Lower the priority of a process that leads its own session. The kernel may schedule by session, and then only
    the session's priority counts."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, NICE)  # all threads; PRIO_PROCESS would change only the first
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(NICE))


def safe_path() -> list[str]:
    """Return Python options that keep the current folder off the children's path, as for the installed command: the
    project's folder may have a `queue.py`."""
    return [] if Path(sys.argv[0]).name == "__main__.py" else ["-P"]


class Supervisor:
    """Runs child processes. `commands`: the subcommands and their arguments.

    A child that exits is restarted after 0.1 s; the delay doubles, up to 30 s, each time it exits within 10 s of its
    start. A worker that had claimed an event is always restarted after 0.1 s: if the event killed it, that event is
    retried later, and the others need not wait. An exit code in FATAL ends all children, unless it had started.
    A child in WATCHED that holds SQLite's write lock over `lock_limit` seconds counts as frozen and is killed: every
    acknowledgement waits for it.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        environment: Mapping[str, str],
        lock_limit: float,
        shutdown_timeout: float,
    ) -> None:
        self._commands = commands
        self._environment = environment
        self._lock_limit = lock_limit
        self._watches: dict[str, LockWatch] = {}
        self._shutdown_timeout = shutdown_timeout
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._born: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._early_deaths: dict[str, int] = {}
        self._lives: Counter[str] = Counter()
        self._working: dict[str, Path] = {}
        self._sockets: dict[str, str] = {}
        self._stopping = False

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        when_parent_ends(self._stop)
        read, write = os.pipe()
        os.set_inheritable(read, True)
        with tempfile.TemporaryDirectory(prefix="hookledger-") as folder:
            environment = {**os.environ, **self._environment, **self._monitors(Path(folder)), PARENT_PIPE: str(read)}
            try:
                return self._watch(environment, Path(folder), read)
            finally:
                os.close(write)
                self._end_children()

    def _stop(self, *_: object) -> None:
        if self._stopping:
            self._shutdown_timeout = 0.0
            return
        self._stopping = True
        status.print(f"Stopping: this takes up to {self._shutdown_timeout:.0f} s. Ctrl-C again stops immediately.")

    def _watch(self, environment: Mapping[str, str], folder: Path, pipe: int) -> int:
        self._due = dict.fromkeys(self._commands, 0.0)
        while not self._stopping:
            for name, due in list(self._due.items()):
                if time.monotonic() >= due:
                    del self._due[name]
                    self._try_to_start(name, environment, folder, pipe)
            for name, child in list(self._children.items()):
                code = child.poll()
                if code is None:
                    continue
                del self._children[name]
                if self._is_fatal(name, code):
                    return code
                self._start_later(name, f"ended with {code}")
            for name in self._children:
                self._end_if_frozen(name)
            time.sleep(0.1)
        return 0

    def _monitors(self, folder: Path) -> dict[str, str]:
        """Return the children's monitors, in a folder that only this user can read; none if its path is too long."""
        self._sockets = {name: str(folder / f"{name}.socket") for name in self._commands}
        if any(len(os.fsencode(path)) > LONGEST_PATH for path in self._sockets.values()):
            status.print(f"[yellow]No metrics of the worker: the path of {escape(str(folder))} is too long.[/]")
            self._sockets = {}
        return {MONITORS: msgspec.json.encode(self._sockets).decode()}

    def _try_to_start(self, name: str, environment: Mapping[str, str], folder: Path, pipe: int) -> None:
        self._born[name] = time.monotonic()
        try:
            self._start(name, {**environment, **self._watched(name, folder)}, pipe)
        except OSError as error:  # no processes, files or memory left: the others continue
            self._start_later(name, f"cannot be started: {error}")

    def _watched(self, name: str, folder: Path) -> dict[str, str]:
        """Reset the watch files of a new process: a lock ends with the process that held it."""
        self._working[name] = folder / f"{name}.working"
        self._working[name].unlink(missing_ok=True)
        monitor = f"unix:{self._sockets[name]}" if name in self._sockets else ""  # not ours: all would listen there
        told = {WORKING: str(self._working[name]), MONITOR: monitor}
        if name not in WATCHED:
            return told
        file = folder / f"{name}.lock"
        if name in self._watches:
            self._watches[name].clear()
        else:
            LockWatch.create(file)
            self._watches[name] = LockWatch(file)
        return {LOCK_WATCH: str(file), **told}

    def _end_if_frozen(self, name: str) -> None:
        if name in self._watches and self._watches[name].held_for() > self._lock_limit:
            status.print(f"[red]{name} holds SQLite's write lock too long: killing it.[/]")
            self._watches[name].clear()
            self._children[name].kill()

    def _start(self, name: str, environment: Mapping[str, str], pipe: int) -> None:
        command = [sys.executable, *safe_path(), "-m", "hookledger", name, *self._commands[name]]
        self._children[name] = child = subprocess.Popen(  # noqa: S603 - our own command
            command, env=dict(environment), pass_fds=[pipe], start_new_session=True
        )
        self._lives[name] += 1
        if name == API:
            lower_priority(child.pid)

    def _young(self, name: str) -> bool:
        return time.monotonic() - self._born[name] < 10

    def _is_fatal(self, name: str, code: int) -> bool:
        """A start may take long on a busy machine: the child says when it is over."""
        return code in FATAL and not self._working[name].exists() and (name != API or self._lives[name] == 1)

    def _start_later(self, name: str, why: str) -> None:
        early = self._young(name) and (name != "work" or not self._working[name].exists())
        self._early_deaths[name] = self._early_deaths.get(name, 0) + 1 if early else 0
        delay = min(30.0, 0.1 * 2.0 ** min(self._early_deaths[name], 20))
        status.print(f"[yellow]{name} {escape(why)}; starting it again in {delay:.1f} s.[/]")
        self._due[name] = time.monotonic() + delay

    def _end_children(self) -> None:
        """Terminate the children, wait, and kill those that remain."""
        for child in self._children.values():
            child.terminate()
        begun = time.monotonic()
        while any(child.poll() is None for child in self._children.values()):
            if time.monotonic() - begun > self._shutdown_timeout:
                for child in self._children.values():
                    child.kill()
                    child.wait()
            time.sleep(0.05)
