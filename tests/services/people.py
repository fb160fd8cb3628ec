"""Where alerts go: Slack's incoming webhook, PagerDuty's Events API v2 and a webhook of one's own, real HTTP on
loopback, in the shapes that these document. It shares no code with what it tests."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SLACK = "/services/T0000/B0000/made-up-slack-secret"
PAGERDUTY = "/v2/enqueue"
HOOK = "/hook?token=made-up-hook-secret"
ROUTING_KEY = "made-up-routing-key-of-32-letters"
SEVERITIES = ("critical", "error", "warning", "info")


@dataclass
class Post:
    path: str
    headers: dict[str, str]
    raw: bytes
    body: Any = field(init=False)

    def __post_init__(self) -> None:
        self.body = json.loads(self.raw)


class People:
    """What arrived, and what goes wrong: `answers` has a status for every request to a path, or "hang"."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.answers: dict[str, int | str] = {}
        self.gate = threading.Event()
        """What hangs continues when this is set."""
        self.redirected: list[str] = []
        self._guard = threading.Lock()
        handler = type("Handler", (_Handler,), {"people": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
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

    def settings(self, *types: str, **more: Any) -> dict[str, Any]:
        """`[alerts]` with a target of each of these types, named after it."""
        known: dict[str, dict[str, Any]] = {
            "slack": {"type": "slack", "url": self.url + SLACK},
            "pagerduty": {"type": "pagerduty", "url": self.url + PAGERDUTY, "routing_key": ROUTING_KEY},
            "webhook": {"type": "webhook", "url": self.url + HOOK},
        }
        return {"interval": "100ms", "targets": {name: known[name] for name in types}, **more}

    # ── what people see ──

    @property
    def slack(self) -> list[str]:
        """The texts in the channel."""
        return [post.body["text"] for post in self.to(SLACK)]

    @property
    def triggers(self) -> list[dict[str, Any]]:
        """PagerDuty's alerts, each time that one was triggered."""
        return [post.body for post in self.to(PAGERDUTY)]

    @property
    def incidents(self) -> dict[str, int]:
        """How often each was triggered, by its key."""
        found: dict[str, int] = {}
        for body in self.triggers:
            found[body["dedup_key"]] = found.get(body["dedup_key"], 0) + 1
        return found

    def to(self, path: str) -> list[Post]:
        with self._guard:
            return [post for post in self.posts if post.path == path]

    def keep(self, post: Post) -> None:
        with self._guard:
            self.posts.append(post)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed is no news."""


class _Handler(BaseHTTPRequestHandler):
    people: People
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        people = self.people
        raw = self.rfile.read(int(self.headers["content-length"]))
        answer = people.answers.get(self.path)
        if answer == "hang":  # it arrived, and the sender never knows
            people.keep(Post(self.path, {n.lower(): v for n, v in self.headers.items()}, raw))
            people.gate.wait(60)
            return
        if isinstance(answer, int):
            self._answer(answer, b"no")
            return
        if self.path == "/elsewhere":
            people.redirected.append(self.path)
        post = Post(self.path, {n.lower(): v for n, v in self.headers.items()}, raw)
        status, text = _checked(post)
        if status < 300:
            people.keep(post)
        self._answer(status, text)

    def _answer(self, status: int, text: bytes) -> None:
        self.send_response(status)
        if status == 307:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's own
        """Nothing."""


def _checked(post: Post) -> tuple[int, bytes]:
    """What these services answer to a request of this form."""
    if post.path == SLACK:
        return (200, b"ok") if isinstance(post.body.get("text"), str) else (400, b"no_text")
    if post.path == PAGERDUTY:
        payload = post.body.get("payload", {})
        fits = (
            post.body.get("routing_key") == ROUTING_KEY
            and post.body.get("event_action") == "trigger"
            and 0 < len(post.body.get("dedup_key", "")) <= 255
            and 0 < len(payload.get("summary", "")) <= 1024
            and payload.get("source")
            and payload.get("severity") in SEVERITIES
        )
        return (202, b'{"status":"success"}') if fits else (400, b'{"status":"invalid event"}')
    return 200, b"{}"


@contextmanager
def people_listening() -> Iterator[People]:
    people = People()
    people.start()
    try:
        yield people
    finally:
        people.stop()
