"""An independent remote: a real HTTP server on loopback that keeps its own count of what it got.

It shares no code with what it tests, and lives in the test's process, so that its count survives whatever happens to
the workers. What it does with the next request for an effect is scripted by `will`; without a script it performs.

    POST /EFFECT/KEY    perform, under the header Idempotency-Key
    GET  /EFFECT/KEY    look up: 200 with the result when it was performed, else 404
"""

import json
import socket
import struct
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import quote, unquote

Way = Literal[
    "perform",  # and answer 200
    "perform and hang",  # no answer, until the gate is opened
    "perform and reset",  # the connection is cut with RST
    "perform and fail",  # answers 500
    "hang",  # the same four without having done anything
    "reset",
    "fail",
    "wait",  # until the gate is opened, then perform
    "busy",  # answers 429
    "reject",  # answers 422
]


@dataclass
class Request:
    """One request that arrived to be performed."""

    effect: str
    key: str
    operation: str
    """The idempotency key."""
    body: Any
    at: float
    """Monotonic."""
    performed: bool = False
    answered: int | None = None


class Sink:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.looked_up: Counter[tuple[str, str]] = Counter()
        self.deduplicates: set[str] = set()
        """The effects whose repetitions it recognizes by their idempotency key."""
        self.gate = threading.Event()
        """What hangs goes on when this is set."""
        self._scripts: dict[tuple[str, str], deque[Way]] = defaultdict(deque)
        self._always: dict[str, Way] = {}
        self._done: dict[str, Any] = {}
        self._guard = threading.Lock()
        handler = type("Handler", (_Handler,), {"sink": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ── what it shall do ──

    def will(self, effect: str, key: str, *ways: Way) -> None:
        """With the next requests, in turn."""
        self._scripts[effect, key].extend(ways)

    def always(self, effect: str, way: Way | None) -> None:
        """With every request for this effect that has no script of its own; None: perform again."""
        if way is None:
            self._always.pop(effect, None)
        else:
            self._always[effect] = way

    # ── what it got ──

    def received(self, effect: str, key: str | None = None) -> list[Request]:
        with self._guard:
            return [r for r in self.requests if r.effect == effect and key in (None, r.key)]

    def performed(self, effect: str, key: str | None = None) -> list[Request]:
        return [request for request in self.received(effect, key) if request.performed]

    def keys(self) -> set[tuple[str, str, str]]:
        """(idempotency key, effect, business key) of every request."""
        with self._guard:
            return {(request.operation, request.effect, request.key) for request in self.requests}

    # ── for the handler ──

    def take(self, effect: str, key: str, operation: str, body: Any) -> tuple[Request, Way]:
        request = Request(effect, key, operation, body, time.monotonic())
        with self._guard:
            self.requests.append(request)
            script = self._scripts.get((effect, key))
            return request, script.popleft() if script else self._always.get(effect, "perform")

    def perform(self, request: Request) -> Any:
        """The result; once per idempotency key where the effect is deduplicated."""
        with self._guard:
            known = f"{request.effect} {request.operation}"
            if request.effect in self.deduplicates and known in self._done:
                return self._done[known]
            request.performed = True
            times = sum(r.performed and (r.effect, r.key) == (request.effect, request.key) for r in self.requests)
            self._done[known] = f"{request.effect} {request.key} no. {times}"
            return self._done[known]

    def look_up(self, effect: str, key: str) -> Any | None:
        with self._guard:
            self.looked_up[effect, key] += 1
            performed = any(r.performed and (r.effect, r.key) == (effect, key) for r in self.requests)
        return f"{effect} {key} no. 1" if performed else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that was killed hangs up: no reason to say anything."""


class _Handler(BaseHTTPRequestHandler):
    sink: Sink
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name for it
        pass

    def do_GET(self) -> None:
        found = self.sink.look_up(*self._target())
        self._answer(404 if found is None else 200, {"result": found})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null")
        request, way = self.sink.take(*self._target(), self.headers["Idempotency-Key"], body)
        match way:
            case "busy":
                self._answer(429, {}, request)
            case "reject":
                self._answer(422, {}, request)
            case "reset" | "fail" | "hang":
                self._end(way, request)
            case "perform and reset" | "perform and fail" | "perform and hang":
                self.sink.perform(request)
                self._end(way, request)
            case "wait" | "perform":
                if way == "wait":
                    self.sink.gate.wait()
                self._answer(200, {"result": self.sink.perform(request)}, request)

    def _end(self, way: Way, request: Request) -> None:
        if way.endswith("fail"):
            self._answer(500, {}, request)
        elif way.endswith("reset"):
            self._reset()
        else:
            self.sink.gate.wait()
            if request.performed:
                self._answer(200, {"result": f"{request.effect} {request.key} no. 1"}, request)
            else:
                self._reset()

    def _target(self) -> tuple[str, str]:
        effect, _, key = self.path.removeprefix("/").partition("/")
        return unquote(effect), unquote(key)

    def _answer(self, status: int, content: Any, request: Request | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if request is not None:
            request.answered = status

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()  # it keeps the socket open otherwise
        self.connection.close()


def path(effect: str, key: str) -> str:
    """Where an effect is performed and looked up."""
    return f"/{quote(effect, safe='')}/{quote(key, safe='')}"


@contextmanager
def running_sink() -> Iterator[Sink]:
    sink = Sink()
    sink.start()
    try:
        yield sink
    finally:
        sink.stop()
