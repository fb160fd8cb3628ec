"""One run of the application for a guarded request: its body given to it whole, its response captured whole."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from typing import Any, Literal

from msgspec import Struct

from ..errors import HookledgerError
from ..model import Headers, StoredAnswer, pack_headers
from ..receive.request import Message, Scope, Send

log: logging.Logger = logging.getLogger(__name__)

NEVER_STORED = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer"),
        *(b"transfer-encoding", b"upgrade", b"date", b"server", b"content-length"),
        *(b"set-cookie", b"www-authenticate", b"authentication-info"),
    }
)
"""Headers of one connection or one moment, and those that are for the first client alone."""
_OF_RESPONSES = "http.response."
"""How the names of ASGI extensions begin whose messages are not part of a plain response: trailers, early hints …"""
_BREAKS = re.compile(rb"[\r\n\0]")
_CANCEL_END = 5.0
"""Seconds for an application that is cancelled."""


class NotStorable(HookledgerError):
    """The response cannot be stored."""


class Captured(Struct, frozen=True):
    """A whole response."""

    status: int
    headers: Headers
    body: bytes
    kind: Literal["run", "stored", "refused"] = "run"
    """The application's answer; the stored one; or a problem that we tell."""

    def stored(self, keep: float) -> StoredAnswer:
        """What of it is kept, for so many seconds."""
        return StoredAnswer(self.status, pack_headers(self.headers, without=NEVER_STORED), self.body, keep)


def from_stored(answer: StoredAnswer) -> Captured:
    """Return the response that was stored."""
    lines = answer.headers.split(b"\r\n") if answer.headers else []
    pairs = (line.partition(b": ") for line in lines)
    return Captured(answer.status, tuple((name, value) for name, _, value in pairs), answer.body, "stored")


async def send_whole(response: Captured, send: Send) -> None:
    """Send a response in one piece."""
    headers = [pair for pair in response.headers if pair[0] not in (b"content-length", b"transfer-encoding")]
    if response.status not in (204, 205):
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


class NotSent(OSError):
    """The application's response was not sent: what the route did was rolled back, or its outcome is unknown."""


class Exchange:
    """The application's side of one request. `limit`: bytes of the response's body."""

    def __init__(self, app: Any, scope: Scope, body: bytes, limit: int) -> None:
        self._app = app
        self.scope = scope
        self._body: bytes | None = body
        self._limit = limit
        loop = asyncio.get_running_loop()
        self.response: asyncio.Future[Captured] = loop.create_future()
        """The whole response, before any of it is sent; or why there is none."""
        self.response.add_done_callback(_heard)
        self._sent: asyncio.Future[None] = loop.create_future()
        self._sent.add_done_callback(_heard)
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        extensions = scope.get("extensions")
        if extensions:
            scope["extensions"] = {
                name: value for name, value in extensions.items() if not name.startswith(_OF_RESPONSES)
            }

    # ── what the application sees ──

    async def _receive(self) -> Message:
        """Its body, then the end of the connection once the response is sent: a client that disconnects earlier does
        not end the route, whose answer is stored for its next request."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        with contextlib.suppress(NotSent):
            await asyncio.shield(self._sent)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Keep a part of the response. The last part returns when it may be taken for sent: what the application does
        then, such as background tasks, follows the commit."""
        try:
            whole = self._take(message)
        except NotStorable as error:
            self.abandon(error)
            raise
        if whole:
            if not self.response.done():
                assert self._start is not None
                headers = tuple((bytes(name).lower(), bytes(value)) for name, value in self._start["headers"])
                self.response.set_result(Captured(self._start["status"], headers, b"".join(self._parts)))
            await asyncio.shield(self._sent)

    def _take(self, message: Message) -> bool:
        """Whether the response is whole now."""
        if message["type"] == "http.response.start":
            headers = tuple(message.get("headers", ()))  # any iterable, which may give them only once
            self._start = {**message, "headers": headers}
            if message.get("trailers"):
                raise NotStorable("it announces trailers: send it without")
            for name, value in headers:
                if _BREAKS.search(name) or _BREAKS.search(value) or b":" in name:
                    raise NotStorable(f"its header {bytes(name)!r:.60} has a line break or is malformed")
            if 300 <= message["status"] < 400:
                raise NotStorable(
                    f"it is a redirect ({message['status']}): answer 201 with the header Location instead"
                )
            return False
        if message["type"] != "http.response.body" or self._start is None:
            raise NotStorable(f"the application sent {message['type']!r}, which is not part of a plain response")
        more = bool(message.get("more_body", False))
        if more and not any(bytes(name).lower() == b"content-length" for name, _ in self._start["headers"]):
            raise NotStorable("it is streamed without a content length: return it whole")
        part = bytes(message.get("body", b""))
        self._size += len(part)
        if self._size > self._limit:
            raise NotStorable(f"its body has over {self._limit} bytes: raise max_answer, or answer with a reference")
        self._parts.append(part)
        return not more

    # ── what we do with it ──

    async def run(self) -> Captured:
        """Run the application until its response is whole; raise what it raised instead."""
        self._task = task = asyncio.create_task(self._call())
        both: set[asyncio.Future[Any]] = {task, self.response}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not self.response.done():
            error = task.exception() if not task.cancelled() else asyncio.CancelledError("it cancelled itself")
            if error is None:
                raise NotStorable("the application ended without a whole response")
            raise error if isinstance(error, Exception) else RuntimeError(f"the application ended: {error!r}")
        return self.response.result()

    async def _call(self) -> None:
        await self._app(self.scope, self._receive, self._send)

    def abandon(self, error: Exception) -> None:
        """End the run with this error, unless the response is whole."""
        if not self.response.done():
            self.response.set_exception(error)

    def release(self, *, kept: bool) -> None:
        """Let the application continue after its response; `kept`: whether the outcome of this response is
        recorded, so that it is sent."""
        if self._sent.done():
            return
        if kept:
            self._sent.set_result(None)
        else:
            self._sent.set_exception(
                NotSent("the response was not sent: the route was rolled back, or its outcome is unknown")
            )

    async def stop(self) -> None:
        """Cancel what of the application still runs before its response was whole."""
        task = self._task
        whole = self.response.done() and self.response.exception() is None
        if task is None or task.done() or whole:
            return
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_END)

    async def finish(self) -> None:
        """Wait for the end of the application, such as its background tasks."""
        if self._task is None:
            return
        await asyncio.wait([self._task])
        error = None if self._task.cancelled() else self._task.exception()
        answered = self.response.done() and self.response.exception() is None
        if error is not None and answered and self._sent.exception() is None:
            log.error("the application failed after its response, such as in a background task", exc_info=error)


def _heard(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
