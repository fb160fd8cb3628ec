"""The ceiling: an ASGI app that reads the body, keeps nothing and answers 202."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_START = {"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]}
_BODY = {"type": "http.response.body", "body": b""}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(_START)
    await send(_BODY)
