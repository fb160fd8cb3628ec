"""Reads one HTTP request within its limits. The body stays bytes, exactly as received."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
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


async def read(scope: Scope, receive: Receive, limits: Limits, max_body: int) -> Request:
    """The whole request; refused as soon as it is over a limit, not after."""
    headers = tuple(scope["headers"])  # the names are in lower case already: ASGI says so
    _check_headers(headers, limits, max_body)
    body = await _body(receive, limits, max_body)
    client = scope.get("client")
    return Request(
        scope["method"],
        scope["path"],
        scope.get("query_string", b""),
        headers,
        body,
        client[0] if client else None,
    )


def _check_headers(headers: tuple[tuple[bytes, bytes], ...], limits: Limits, max_body: int) -> None:
    size = 0
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"content-encoding" and value.lower() != b"identity":
            raise WrongEncoding("content_encoding")
        if name == b"content-length" and value.isdigit() and int(value[:20]) > max_body:
            raise TooLarge("body_too_large")
    if size > limits.header_bytes or len(headers) > limits.headers:
        raise Malformed("headers_too_large")


async def _body(receive: Receive, limits: Limits, max_body: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(limits.seconds):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise Malformed("disconnected")
                part = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(part)
                if size > max_body:
                    raise TooLarge("body_too_large")
                parts.append(part)
    except TimeoutError:
        raise TooSlow("body_too_slow") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)
