"""Reads one HTTP request within its limits. The body stays bytes, exactly as received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from msgspec import Struct

from ..clock import Seconds
from ..errors import Malformed, TooLarge, TooSlow, WrongEncoding
from ..model import Request

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stranger may make us read."""

    headers: int = 64
    """How many headers."""
    header_bytes: int = 16_384
    """All names and values together."""
    seconds: Seconds = Seconds("10s")
    """For the whole body to arrive."""


async def read(
    scope: Scope, receive: Receive, limits: Limits, max_body: int, loop: asyncio.AbstractEventLoop
) -> Request:
    """The whole request over ASGI; refused as soon as it is over a limit, not after."""
    headers = tuple(scope["headers"])  # the names are in lower case already: ASGI says so
    check_headers(headers, limits, max_body)
    body = await _in_time(_gather(_parts(receive), max_body), limits, loop)
    client = scope.get("client")
    remote = client[0] if client else None
    return Request(scope["method"], scope["path"], scope.get("query_string", b""), headers, body, remote)


_WATCHED = frozenset({b"content-encoding", b"transfer-encoding", b"content-length", b"expect"})


def check_headers(headers: Sequence[tuple[bytes, bytes]], limits: Limits, max_body: int) -> bool:
    """Refuses what can be refused before the body comes; whether the sender waits to be told to go on."""
    size = 0
    waits = False
    for name, value in headers:
        size += len(name) + len(value)
        if name in _WATCHED:
            if name == b"content-encoding" and value.lower() != b"identity":
                raise WrongEncoding("content_encoding")
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                raise WrongEncoding("transfer_encoding")
            if name == b"content-length" and value.isdigit() and int(value[:20]) > max_body:
                raise TooLarge("body_too_large")
            waits = waits or (name == b"expect" and value.lower() == b"100-continue")
    if size > limits.header_bytes or len(headers) > limits.headers:
        raise Malformed("headers_too_large")
    return waits


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Malformed("disconnected")
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def _gather(parts: AsyncIterable[bytes], max_body: int) -> bytes:
    gathered: list[bytes] = []
    size = 0
    async for part in parts:
        size += len(part)
        if size > max_body:
            raise TooLarge("body_too_large")
        gathered.append(part)
    return gathered[0] if len(gathered) == 1 else b"".join(gathered)


async def _in_time(body: Awaitable[bytes], limits: Limits, loop: asyncio.AbstractEventLoop) -> bytes:
    """By hand, because asyncio.timeout costs as much as verifying the signature."""
    task = asyncio.current_task(loop)
    assert task is not None
    overdue = False

    def strike() -> None:
        nonlocal overdue
        overdue = True
        task.cancel()

    timer = loop.call_later(limits.seconds, strike)
    try:
        return await body
    except asyncio.CancelledError:
        if not overdue:
            raise
        task.uncancel()
        raise TooSlow("body_too_slow") from None
    finally:
        timer.cancel()
