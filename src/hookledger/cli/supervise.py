"""Keeps a receiver, a worker and perhaps the API running, and ends them together."""

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

from rich.markup import escape

from ..store.sqlite.watch import VARIABLE as LOCK_WATCH
from ..store.sqlite.watch import LockWatch
from .common import status

PARENT_PIPE = "HOOKLEDGER_PARENT_PIPE"
"""A pipe whose end means that the supervisor is gone, even by kill -9."""
WORKING = "HOOKLEDGER_WORKING"
"""A file that a worker makes when it has claimed something: it did start, whatever ends it from then on."""
FATAL = frozenset({2, 3, 5})
"""Exit codes that starting again cannot mend: usage, configuration, schema."""
API = "api"
"""The child that nobody's delivery waits for: it has less of the processor when that is short, and once all have
started, nothing that ends it ends the others."""
WATCHED = frozenset({"work", API})
"""What writes beside the receiver."""
NICE = 5
"""How much it stands back: about a third of a receiver's share. One that hardly ran at all would be as bad as a
frozen one while it has SQLite's write lock."""


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


def say_that_it_works() -> None:
    """Tell the supervisor, if there is one, that this process has begun its work."""
    if file := os.environ.get(WORKING):
        with contextlib.suppress(OSError):
            Path(file).touch()


def stand_back(pid: int) -> None:
    """Lower the priority of a process that leads a session of its own; the kernel may group by sessions, and then
    only what is said of the group counts."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, NICE)  # of all its threads; by the process it would be the first one's
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(NICE))


def _away() -> list[str]:
    """`-m` looks for every module in the current folder first. The installed command does not, so neither do the
    children that it starts: a `queue.py` in the project's folder is not the one that we mean."""
    return [] if Path(sys.argv[0]).name == "__main__.py" else ["-P"]


class Supervisor:
    """`commands`: the subcommands to run and their arguments.

    A child that dies is started again, slower each time it dies young. A
    worker that had begun its work is started again at once: if an event kills
    it, the event is set apart, and the others need not wait. One of those in
    WATCHED that holds SQLite's write lock over `lock_limit`
    seconds is killed: it is frozen, and every ack waits for it.
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
        self._watches: dict[str, LockWatch] = {}
        self._grace = grace
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._born: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._early_deaths: dict[str, int] = {}
        self._lives: Counter[str] = Counter()
        self._working: dict[str, Path] = {}
        self._stopping = False

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        when_parent_ends(self._stop)
        read, write = os.pipe()
        os.set_inheritable(read, True)
        with tempfile.TemporaryDirectory(prefix="hookledger-") as folder:
            environment = {**os.environ, **self._environment, PARENT_PIPE: str(read)}
            try:
                return self._watch(environment, Path(folder), read)
            finally:
                os.close(write)
                self._end_children()

    def _stop(self, *_: object) -> None:
        if self._stopping:
            self._grace = 0.0
            return
        self._stopping = True
        status.print(f"Stopping: what runs has up to {self._grace:.0f} s. Once more ends it now.")

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

    def _try_to_start(self, name: str, environment: Mapping[str, str], folder: Path, pipe: int) -> None:
        self._born[name] = time.monotonic()
        try:
            self._start(name, {**environment, **self._watched(name, folder)}, pipe)
        except OSError as error:  # no more processes, files or room: the others go on
            self._start_later(name, f"cannot be started: {error}")

    def _watched(self, name: str, folder: Path) -> dict[str, str]:
        """Blank for each life: a lock died with whoever held it, and its successor does not hold it."""
        self._working[name] = folder / f"{name}.working"
        self._working[name].unlink(missing_ok=True)
        told = {WORKING: str(self._working[name])}
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
            status.print(f"[red]{name} holds SQLite's write lock for too long: killing it.[/]")
            self._watches[name].clear()
            self._children[name].kill()

    def _start(self, name: str, environment: Mapping[str, str], pipe: int) -> None:
        command = [sys.executable, *_away(), "-m", "hookledger", name, *self._commands[name]]
        self._children[name] = child = subprocess.Popen(  # noqa: S603 - our own command
            command, env=dict(environment), pass_fds=[pipe], start_new_session=True
        )
        self._lives[name] += 1
        if name == API:
            stand_back(child.pid)

    def _young(self, name: str) -> bool:
        return time.monotonic() - self._born[name] < 10

    def _is_fatal(self, name: str, code: int) -> bool:
        return code in FATAL and self._young(name) and (name != API or self._lives[name] == 1)

    def _start_later(self, name: str, why: str) -> None:
        early = self._young(name) and not self._working[name].exists()
        self._early_deaths[name] = self._early_deaths.get(name, 0) + 1 if early else 0
        delay = min(30.0, 0.1 * 2 ** self._early_deaths[name])
        status.print(f"[yellow]{name} {escape(why)}; starting it again in {delay:.1f} s.[/]")
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
