"""The intake's responses: only this module chooses their status codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from http import HTTPStatus
from uuid import UUID

import msgspec
from msgspec import Struct

from ..errors import (
    ContentRefused,
    Forbidden,
    Malformed,
    NoKey,
    Rejected,
    TooLarge,
    TooSlow,
    Unauthentic,
    UnknownSource,
    WrongEncoding,
    WrongMethod,
)
from ..model import Recorded, unpack_headers
from ..providers.contract import Contract
from ..providers.handshake import Handshake
from ..states import DeliveryOutcome
from .request import Send

STATUS: dict[type[Rejected], int] = {
    Malformed: 400,
    Unauthentic: 401,
    Forbidden: 403,
    UnknownSource: 404,
    WrongMethod: 405,
    TooSlow: 408,
    TooLarge: 413,
    WrongEncoding: 415,
    ContentRefused: 400,
    NoKey: 422,
    Rejected: 422,
}
RETRY_AFTER = 5
"""Seconds that a sender should wait after a 503."""

_Pairs = tuple[tuple[str, str], ...]
_DUPLICATE = DeliveryOutcome.DUPLICATE
_JSON: _Pairs = (("content-type", "application/json"),)


class Response(Struct, frozen=True):
    status: int
    body: bytes = b""
    headers: _Pairs = _JSON
    authentic: bool = False
    """Whether the request was authentic."""


Answer = Callable[[Response], object]
"""Sends the response to one sender."""


class EventReply(Struct, frozen=True):
    """The response body for a request with one event."""

    status: DeliveryOutcome
    event: UUID


_in_json = msgspec.json.Encoder().encode


def recorded(contract: Contract, items: Sequence[Recorded]) -> Response:
    """Return the response for recorded events: 202, or the provider's own form of success; 200 if all were known."""
    answer = contract.answer
    if answer.body is not None:
        kind = () if answer.content_type is None else (("content-type", answer.content_type),)
        return Response(answer.status, answer.body, kind, authentic=True)
    status = 200 if answer.status == 202 and _all_known(items) else answer.status
    if len(items) != 1:
        return Response(status, b'{"status":"recorded"}', authentic=True)
    [item] = items
    return Response(status, _in_json(EventReply(item.outcome, item.event_id)), _JSON, True)


def answered(status: int, headers: bytes, body: bytes) -> Response:
    """Return what a handler answered. `headers`: in wire form."""
    return Response(status, body, tuple(unpack_headers(headers)), authentic=True)


def busy(status: int, retry_after: int) -> Response:
    """Return the response to a recorded delivery that has no answer yet: come again."""
    error = b'{"error":"unavailable"}' if status == 503 else b'{"error":"busy"}'
    return Response(status, error, (*_JSON, ("retry-after", str(retry_after))), authentic=True)


def _all_known(items: Sequence[Recorded]) -> bool:
    for item in items:
        if item.outcome is not _DUPLICATE:
            return False
    return bool(items)


def health(answer: tuple[int, bytes] | None) -> Response:
    """Return the response of a health check; 404 for None."""
    return Response(*(answer or (404, b'{"error":"not found"}')))


def rejected(error: Rejected, contract: Contract | None = None) -> Response:
    """Return the 4xx for a rejected request. Its reason helps to set up a source and reveals no secret."""
    status = STATUS[type(error)]
    if contract is not None and contract.rejection is not None and isinstance(error, Malformed | Unauthentic):
        status = contract.rejection
        if contract.answer.body == b"":  # providers that test the endpoint expect an empty body here, too
            return Response(status, b"", ())
    headers = (*_JSON, ("allow", "POST")) if isinstance(error, WrongMethod) else _JSON
    return Response(status, f'{{"error":"{error.reason}"}}'.encode(), headers)


def handshake(contract: Handshake, body: bytes, headers: _Pairs) -> Response:
    """Return the response to a handshake."""
    return Response(contract.status, body, headers)


def unavailable() -> Response:
    """Return a 503: not recorded, or unknown, so the sender must retry. A 4xx would make it give up."""
    headers = (*_JSON, ("retry-after", str(RETRY_AFTER)))
    return Response(503, b'{"error":"unavailable"}', headers)


_PHRASES = {status.value: status.phrase for status in HTTPStatus}  # some providers require another one


@lru_cache(maxsize=64)
def head(status: int, headers: _Pairs, length: int, keep: bool) -> bytes:
    """Return the head of an HTTP/1.1 response, without its date and the empty line."""
    phrase = _PHRASES.get(status, "Unassigned")
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    if status != HTTPStatus.NO_CONTENT:
        lines.append(f"content-length: {length}")
    if not keep:
        lines.append("connection: close")
    return "".join(line + "\r\n" for line in lines).encode("latin-1")


async def send(response: Response, send_message: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    if response.status != HTTPStatus.NO_CONTENT:
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send_message({"type": "http.response.start", "status": response.status, "headers": headers})
    await send_message({"type": "http.response.body", "body": response.body})
