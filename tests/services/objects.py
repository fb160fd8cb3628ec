"""A provider's API that gives out objects by their path: real HTTP on loopback, which breaks as it is told.

It shares no code with what it tests.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tests.services.loopback import Handler, Service, started

BAD = "not json"
HUGE = "huge"
HANG = "hang"
CUT = "cut"
SLOW = "slow"


class Asked(NamedTuple):
    """One request, as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    status: int = 200
    content: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


class Objects(Service):
    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[str, Any] = {}
        """By path and query: what is there, or a Reply. Anything else is 404."""
        self.trouble: deque[Reply | str | None] = deque()
        """What the next requests get instead; None: nothing goes wrong."""
        self.when_idle: Callable[[], Reply | str | None] = lambda: None
        """What a request gets for which nothing else is said."""
        self.delay: Callable[[], float] = lambda: 0.0
        """Seconds between reading an object and answering with it."""
        self.asked: list[Asked] = []

    @property
    def targets(self) -> list[str]:
        return [asked.target for asked in self.asked]


class _Handler(Handler):
    service: Objects

    def reply(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.service.asked.append(Asked(self.command, self.path, headers, body))
        trouble = self.service.trouble.popleft() if self.service.trouble else self.service.when_idle()
        match trouble:
            case Reply():
                self._answer(trouble)
            case "not json":
                self._answer(Reply(200, b'{"id": '))
            case "huge":
                self._answer(Reply(200, b" " * 9_000_000))
            case "hang":
                self.service.gate.wait(60)
            case "cut":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b'{"id":')
                self.close_connection = True
            case _:
                if trouble == SLOW:
                    self.service.gate.wait(60)
                found = self.service.objects.get(self.path, Reply(404, {"message": "Not Found"}))
                time.sleep(self.service.delay())
                self._answer(found if isinstance(found, Reply) else Reply(200, found))

    def _answer(self, reply: Reply) -> None:
        self.answer(reply.status, reply.content, **reply.headers)


def running() -> AbstractContextManager[Objects]:
    return started(Objects())
