"""Warn about code that blocks an event loop: nothing else in the process runs until it returns."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from traceback import FrameSummary

from msgspec import Struct

log: logging.Logger = logging.getLogger(__name__)

EVERY = 0.25
"""Seconds between two beats of the loop, and between two checks of them."""
LOOKS = 5
"""Checks without a beat after which the loop counts as blocked, for over a second. Checks are counted, not seconds:
a process that was stopped or had no CPU did not check either."""
WORKED = 1.0
"""Seconds of CPU time without a beat that mean the same if checks are late: C code may hold the interpreter's lock,
so that the watchdog cannot check."""
SAME_PLACE = 300.0
"""Seconds in which the same place is reported once."""

_OURS = str(Path(__file__).parents[1]) + os.sep
_PATHS = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_LIBRARIES = (_OURS, *(path + os.sep for path in _PATHS))
_LOOP = tuple(str(Path(asyncio.__file__).with_name(name)) for name in ("events.py", "base_events.py", "runners.py"))


class Busy(Struct, frozen=True):
    """What a task is doing."""

    words: str
    facts: Mapping[str, str] = {}
    """For the log line."""


class Beat(Struct, frozen=True):
    """A heartbeat of the loop."""

    number: int
    cpu: float
    """The CPU time of the loop's thread at that beat."""


class Looks:
    """Decides from a loop's beats whether it is blocked. `now`: the time; `cpu`: CPU time of the loop's thread."""

    def __init__(self, now: float) -> None:
        self._last = now
        self._seen = 0
        self._idle_until = 0.0
        self._count = 0
        self._told = False

    def blocked(self, now: float, cpu: float, beat: Beat, running: bool) -> bool:
        """Check once; return True when the loop becomes blocked, once until the next beat. `running`: whether the
        loop runs."""
        is_late = now - self._last > 2 * EVERY
        self._last = now
        if not running:
            self._idle_until = cpu
        if not running or beat.number != self._seen:
            self._seen, self._count, self._told = beat.number, 0, False
        else:
            self._count = 0 if is_late else self._count + 1
        worked = cpu - max(beat.cpu, self._idle_until)
        is_blocked = running and (self._count >= LOOKS or (is_late and worked > WORKED))
        tells = is_blocked and not self._told
        self._told = self._told or is_blocked
        return tells


class Watchdog:
    """Watches its event loop from a thread. `waits`: what waits while the loop is blocked; `busy`: returns what the
    blocking task is doing, if known."""

    def __init__(
        self, waits: str, busy: Callable[[asyncio.Task[object] | None], Busy | None] = lambda task: None
    ) -> None:
        self._waits = waits
        self._busy = busy
        self._beat = Beat(0, 0.0)
        self._halt = threading.Event()
        self._said: dict[tuple[str, str], float] = {}
        self._thread = threading.Thread(target=self._run, name="hookledger-watchdog", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._cpu = _thread_clock()
        self._give_beat()
        self._thread.start()

    def stop(self) -> None:
        self._halt.set()
        self._timer.cancel()

    def _give_beat(self) -> None:
        self._beat = Beat(self._beat.number + 1, self._cpu())
        self._timer = self._loop.call_later(EVERY, self._give_beat)

    def _run(self) -> None:
        looks = Looks(time.monotonic())
        while not (self._halt.wait(EVERY) or self._loop.is_closed()):
            try:
                if looks.blocked(time.monotonic(), self._cpu(), self._beat, self._loop.is_running()):
                    self._tell()
            except Exception:
                log.exception("the watchdog failed: internal error")

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._watched)
        stack = blocking_part(list(traceback.extract_stack(frame))) if frame is not None else []
        if not stack:
            return  # the loop itself: it has no CPU, or runs library code
        at = place(stack)
        if time.monotonic() < self._said.get((at.filename, at.name), 0.0):
            return
        self._said[at.filename, at.name] = time.monotonic() + SAME_PLACE
        busy = self._busy(asyncio.current_task(self._loop))
        log.warning(
            "%s has blocked the event loop for over 1 s at %s:%s%s: until it returns, %s; await an async call, use "
            "asyncio.to_thread, or declare the function with def, which runs in a thread; if warnings name different "
            "places, check the machine's CPU load\n%s",
            at.name,
            at.filename,
            at.lineno,
            f", {busy.words}" if busy else "",
            self._waits,
            "".join(traceback.format_list(stack)).rstrip(),
            extra=dict(busy.facts) if busy else {},
        )


def _thread_clock() -> Callable[[], float]:
    """Return a clock of the calling thread's CPU time that other threads can read; of the process's where the
    platform has none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def read() -> float:
        try:
            return time.clock_gettime(clock)
        except OSError:  # the thread has ended
            return 0.0

    return read


def blocking_part(stack: list[FrameSummary]) -> list[FrameSummary]:
    """Return the frames that the loop runs, without Hookledger's frames before the application's code."""
    runs = max((i for i, frame in enumerate(stack) if frame.filename in _LOOP), default=-1)
    inner = stack[runs + 1 :]
    first = next((i for i, frame in enumerate(inner) if not frame.filename.startswith(_OURS)), 0)
    return inner[first:]


def place(stack: list[FrameSummary]) -> FrameSummary:
    """Return the innermost frame of the application's code; if it has none, the innermost of all."""
    return next((frame for frame in reversed(stack) if not frame.filename.startswith(_LIBRARIES)), stack[-1])
