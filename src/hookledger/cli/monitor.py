"""`--monitor`: /healthz, /readyz and /metrics of one process, in a separate thread, so that a blocked event loop can
be told from a dead process.

/healthz says whether the event loop runs and, for a worker, the heartbeat; never what the database does: its outage
must not restart workers. Without authentication; off by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from ..errors import ConfigError, HookledgerError
from ..inbox import Inbox
from ..inline.answerer import InlineAnswerer
from ..observe.metrics.counts import WorkCounts
from ..observe.metrics.process import ProcessMetrics
from ..operate.metrics import METRICS, metrics_of
from ..receive import respond
from ..receive.health import ALIVE, Readiness
from ..receive.request import Receive, Scope, Send
from ..work.loop import Worker
from .common import Decorator, setting

if TYPE_CHECKING:
    from ..operate.api.http import HttpListener
    from ..operate.api.listener import Operator

log: logging.Logger = logging.getLogger(__name__)

BEAT = 0.25
"""Seconds between two signs of life of the event loop."""
PATIENCE = 7.0
"""Seconds to wait for the event loop's answer; the database check on it ends earlier."""
CHILD_PATIENCE = 1.5
"""Seconds that a process which this one started has for its metrics: who asks for ours must not give us up."""
SCRAPE = 9.0
"""Seconds to wait for the metrics of the database: Prometheus waits 10 for all of them."""
MONITORS = "HOOKLEDGER_MONITORS"
"""Under `serve`: the Unix sockets of all children, by name, as JSON, for the metrics of the operator's listener."""
LONGEST_PATH = 100
"""Bytes of a Unix socket's path; the kernel allows a few more."""
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/\s]+)):(?P<port>\d{1,5})")

monitor_option: Decorator = setting(
    "--monitor",
    "monitor_at",
    variable="MONITOR",
    help="HOST:PORT or unix:PATH for health and metrics of this process.",
)


class Address(NamedTuple):
    """Where a monitor listens: a host and a port, or a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""


def address(text: str) -> Address:
    """Return the address that HOST:PORT or unix:PATH names."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path or "\0" in path or len(os.fsencode(path)) > LONGEST_PATH:
            raise ConfigError(f"--monitor {text!r}: the path must have 1 to {LONGEST_PATH} bytes")
        return Address(path=path)
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ConfigError(f"--monitor {text!r} is neither HOST:PORT nor unix:PATH")
    return Address(found["six"] or found["host"], int(found["port"]))


def listen(where: Address) -> socket.socket:
    """Return a listening socket; ConfigError if another process listens there."""
    try:
        if where.path:
            _remove_stale(where.path)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(where.path)
            listening.listen(64)
            return listening
        family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
        return socket.create_server((where.host, where.port), family=family, backlog=64)
    except OSError as error:
        at = f"unix:{where.path}" if where.path else f"{where.host}:{where.port}"
        raise ConfigError(f"the monitor cannot listen on {at}: {error.strerror or error}") from error


def _remove_stale(path: str) -> None:
    """Remove the socket of a process that was killed; ConfigError if one listens on it, or it is no socket."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib would read the mode in the same way
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"the monitor cannot listen on unix:{path}: a file of that name is there; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            Path(path).unlink(missing_ok=True)
            return
        except OSError:  # it listens, and its backlog is full
            pass
    raise ConfigError(f"the monitor cannot listen on unix:{path}: another process does; give another path")


class Monitor:
    """The monitor of one process. Use it as a context around the event loop; without an address it only collects."""

    def __init__(self, kind: str, inbox: Inbox, given: str | None, *, by_settings: bool = True) -> None:
        """`given`: the address; without one that of the settings, unless they are for another process, or for all
        children of `serve`."""
        settings = inbox.settings.monitor
        by_settings = by_settings and MONITORS not in os.environ
        at = given or (settings.address if by_settings else None)
        self._at = None if at is None else address(at)
        self._blocked_after = settings.blocked_after
        self.metrics: ProcessMetrics = ProcessMetrics(kind)
        self.problem: Callable[[], str | None] = lambda: None
        """Why the process is not healthy, although its event loop runs."""
        self.others: Mapping[str, str] = {}
        """The Unix sockets of processes that this one started, whose metrics are joined with ours, by kind."""
        self._ready: Callable[[], Awaitable[respond.Response]] | None = None
        self._asking: asyncio.Task[respond.Response] | None = None
        self._watched: asyncio.AbstractEventLoop | None = None
        self._beaten = 0.0
        self._operator: tuple[Operator, asyncio.AbstractEventLoop] | None = None
        self._socket: socket.socket | None = None
        self._server: HttpListener | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="hookledger-monitor", daemon=True)

    def __enter__(self) -> Self:
        """Listen, and answer from a thread; ConfigError if that is impossible."""
        if self._at is not None:
            self._socket = listen(self._at)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._at is None:
            return
        if self._loop is not None and self._server is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(2.0)
        if self._at.path:
            Path(self._at.path).unlink(missing_ok=True)

    # ── what the process says, on its own loop ──

    def watch(self, ready: Callable[[], Awaitable[respond.Response]]) -> None:
        """Watch the running loop; `ready` is asked there."""
        self._watched = asyncio.get_running_loop()
        self._ready = ready
        self._beat()

    def operates(self, operator: Operator) -> None:
        """This process has an operator's listener, which knows the database, on the running loop."""
        operator.metrics = self.metrics
        self._operator = operator, asyncio.get_running_loop()

    def _beat(self) -> None:
        assert self._watched is not None
        self._beaten = time.monotonic()
        self._watched.call_later(BEAT, self._beat)

    # ── in the monitor's thread ──

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the monitor has ended: internal error")

    async def _serve(self) -> None:
        from ..operate.api.http import HttpListener

        assert self._socket is not None
        self._loop, self._server = asyncio.get_running_loop(), HttpListener(self._answer)
        await self._server.serve_on(self._socket)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        await respond.send(await self._response(scope["method"], scope["path"]), send)

    async def _response(self, method: str, path: str) -> respond.Response:
        answers = {"/healthz": self._health, "/readyz": self._readiness, METRICS: self._text}
        if path not in answers:
            return respond.health(None)
        if method not in ("GET", "HEAD"):
            return respond.Response(405, b'{"error":"method"}', (("allow", "GET, HEAD"),))
        return await answers[path]()

    async def _health(self) -> respond.Response:
        silent = time.monotonic() - self._beaten
        if self._watched is not None and self._watched.is_running() and silent > self._blocked_after:
            return _not_well("blocked", f"the event loop has not run for {silent:.0f} s")
        if problem := self.problem():
            return _not_well("not healthy", problem)
        return respond.Response(200, ALIVE)

    async def _readiness(self) -> respond.Response:
        """Ask on the process's loop; concurrent callers share one answer."""
        if self._ready is None or self._watched is None:
            return _not_well("not ready", "the process is starting")
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(self._ready, self._watched))
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def _asked(self, _: object) -> None:
        self._asking = None

    async def _ask(
        self, ready: Callable[[], Awaitable[respond.Response]], loop: asyncio.AbstractEventLoop
    ) -> respond.Response:
        async def on_loop() -> respond.Response:
            return await ready()

        asking = on_loop()
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop))
        except TimeoutError:
            return _not_well("not ready", f"no answer within {PATIENCE:g} s")
        except HookledgerError as error:
            return _not_well("not ready", str(error))
        except RuntimeError:  # the loop has ended
            asking.close()
            return _not_well("not ready", "the process is stopping")

    async def _text(self) -> respond.Response:
        from ..observe.metrics.samples import CONTENT_TYPE, joined

        others = asyncio.create_task(metrics_of(self.others, CHILD_PATIENCE))
        texts = [self.metrics.text()]
        if self._operator is not None:
            operator, loop = self._operator
            asking = operator.database_metrics()
            try:
                async with asyncio.timeout(SCRAPE):
                    texts.append(await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop)))
            except TimeoutError:
                log.debug("the metrics of the database are left out: the operator's loop did not answer in time")
            except RuntimeError:  # the loop has ended
                asking.close()
        texts += await others
        return respond.Response(200, joined(texts).encode(), (("content-type", CONTENT_TYPE),))


def _not_well(status: str, problem: str) -> respond.Response:
    return respond.Response(503, msgspec.json.encode({"status": status, "problem": problem}))


def watch_worker(monitor: Monitor, inbox: Inbox, worker: Worker) -> None:
    """Watch a worker, on its loop: it is ready when it is registered and the database can be written."""
    counts, readiness = inbox.work_counts, Readiness(worker.health)

    async def ready() -> respond.Response:
        if not counts.registered:
            return _not_well("not ready", "the worker is not registered: it starts, or stops")
        return respond.health(await readiness.answer("/readyz", why=True))

    monitor.metrics.parts.append(inbox.work_metrics.collect)
    monitor.problem = partial(_heartbeat_problem, counts)
    monitor.watch(ready)


def watch_answerer(monitor: Monitor, inbox: Inbox, answerer: InlineAnswerer) -> None:
    """Watch what answers for a receiver, on its loop."""
    readiness = Readiness(answerer.health)

    async def ready() -> respond.Response:
        return respond.health(await readiness.answer("/readyz", why=True))

    monitor.metrics.parts.append(inbox.answer_metrics.collect)
    monitor.problem = partial(_heartbeat_problem, inbox.answer_counts)
    monitor.watch(ready)


def _heartbeat_problem(counts: WorkCounts) -> str | None:
    return None if counts.heartbeat_alive() else "the thread that renews leases has ended"
