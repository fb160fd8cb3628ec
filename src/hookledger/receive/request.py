"""Read an HTTP request over ASGI, within limits. The body stays bytes, exactly as received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Seconds
from ..errors import Malformed, TooLarge, TooSlow, Unavailable, WrongEncoding
from ..model import Request
from .budget import BodyBudget, no_room
from .http_form import check_codings, check_form

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on what the receiver reads from a request."""

    headers: int = 64
    """Number of headers."""
    header_bytes: int = 16_384
    """Bytes of all header names and values together."""
    seconds: Seconds = Seconds("10s")
    """Time for the whole body to arrive."""
    body_bytes: int = 128 * 1024 * 1024
    """Bytes in memory of all bodies that are not answered yet. Bodies over 64 KiB get at most half of it; when it is
    used up, the slowest upload gets 503. Always at least twice the largest `max_body`."""

    def fitting(self, largest: int) -> Limits:
        """Return the limits with room for the largest body that a source accepts."""
        return replace(self, body_bytes=max(self.body_bytes, 2 * largest))


def local_paths(scope: Scope) -> Iterator[str]:
    """Yield the possible paths below the mount point, the likeliest first.

    A server or framework passes the path with `root_path`, as ASGI requires, or without. If a proxy strips a prefix,
    `root_path` holds that prefix and the mount point, and the path begins with the mount point only.
    """
    path: str = scope["path"]
    segments = [segment for segment in scope.get("root_path", "").split("/") if segment]
    for gone in range(len(segments)):
        root = "/" + "/".join(segments[gone:])
        if path == root or path.startswith(root + "/"):
            yield path[len(root) :]
    yield path


class Reader:
    """Reads requests over ASGI, all of them within one budget."""

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._loop = loop
        self._arriving: set[AsgiUpload] = set()
        self.budget: BodyBudget = BodyBudget(limits.body_bytes, lambda: self._arriving, loop.time)

    async def read(self, scope: Scope, local: str, receive: Receive, max_body: int, upload: AsgiUpload) -> Request:
        """Return the request; reject it as soon as it exceeds a limit. `local`: its path below the mount point. The
        caller releases the upload."""
        headers = tuple(scope["headers"])  # ASGI guarantees lower-case names
        check_headers(headers, self._limits, max_body)
        timer = self._loop.call_later(self._limits.seconds, upload.end, TooSlow("body_too_slow"))
        self._arriving.add(upload)
        try:
            body = await self._gather(_parts(receive), max_body, upload)
        except asyncio.CancelledError:
            if upload.error is None:
                raise
            upload.task.uncancel()
            if isinstance(upload.error, TooSlow):
                _check_arrived(headers, upload.held)
            raise upload.error from None
        except Malformed:
            _check_arrived(headers, upload.held)
            raise
        finally:
            timer.cancel()  # asyncio.timeout would cost as much as verifying the signature
            self._arriving.discard(upload)
        _check_arrived(headers, upload.held)
        client = scope.get("client")
        remote = client[0] if client else None
        path = scope.get("root_path", "").rstrip("/") + local  # as the sender called it
        return Request(scope["method"], path, scope.get("query_string", b""), headers, body, remote)

    async def _gather(self, parts: AsyncIterable[bytes], max_body: int, upload: AsgiUpload) -> bytes:
        gathered: list[bytes] = []
        async for part in parts:
            if upload.held + len(part) > max_body:
                raise TooLarge("body_too_large")
            gathered.append(part)
            self.budget.add(upload, len(part))
            if upload.error is not None:
                raise upload.error
        return gathered[0] if len(gathered) == 1 else b"".join(gathered)


class AsgiUpload:
    """A body that arrives over ASGI, in its own task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task(loop)
        assert task is not None
        self.task = task
        self.held = 0
        self.started: float = loop.time()
        self.error: Exception | None = None

    def drop(self) -> None:
        self.end(no_room())

    def end(self, error: Exception) -> None:
        """Raise this error in the task that reads the body."""
        self.error = error
        if asyncio.current_task() is not self.task:
            self.task.cancel()


_WATCHED = frozenset({b"host", b"content-encoding", b"transfer-encoding", b"content-length", b"expect"})


def check_headers(
    headers: Sequence[tuple[bytes, bytes]],
    limits: Limits,
    max_body: int,
    line: tuple[str, str] | None = None,
) -> bool:
    """Reject what can be rejected before the body arrives; return whether the sender waits for "100 Continue".

    `line`: method and HTTP version; None if another server has read the request and checked its form.
    """
    size = hosts = 0
    waits = coded = False
    for name, value in headers:
        size += len(name) + len(value)
        if name in _WATCHED:
            if name == b"host":
                hosts += 1
                continue
            if name == b"content-encoding" and value.lower() != b"identity":
                raise WrongEncoding("content_encoding")
            if name == b"content-length" and value.isdigit() and int(value[:20]) > max_body:
                raise TooLarge("body_too_large")
            coded = coded or name == b"transfer-encoding"
            waits = waits or (name == b"expect" and value.lower() == b"100-continue")
    if size > limits.header_bytes or len(headers) > limits.headers:
        raise Malformed("headers_too_large")
    if line is not None and (hosts != 1 or coded or line[1] != "1.1"):  # otherwise the form is valid
        check_form(*line, headers)
    elif coded:
        check_codings(headers)
    return waits


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Malformed("disconnected")
        more = message.get("more_body", False)
        yield message.get("body", b"")


def _check_arrived(headers: Sequence[tuple[bytes, bytes]], arrived: int) -> None:
    """Raise Unavailable if an announced body is missing: no signature could match, and a 4xx would make the sender
    give up."""
    if arrived:
        return
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value[:20]) > 0:
            raise Unavailable(
                f"a body of {int(value[:20])} bytes was announced and none arrived: a middleware read it first, or "
                "the client stopped; mount Hookledger outside that middleware"
            ).because("no_body")
