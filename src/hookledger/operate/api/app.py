"""The API application: authenticates, finds the call, checks the role, decodes the request, and runs the call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from ...errors import ConfigError
from ...observe.lines import ACTED, tell
from ..context import Context
from .auth import Tokens
from .call import MOST_BODY, Asked, Call
from .errors import ApiOff, Malformed, NoSuchCall, NoSuchVersion, NotJson, TooLarge, TooSlow, WrongMethod, answer
from .schema import BASE
from .shares import Shares
from .table import CALLS

MAX_REQUESTS, MAX_REQUESTS_EACH = 32, 16
"""Concurrent requests, in total and per client address; more get 503."""
BODIES, BODIES_EACH = 2**26, 5 * 2**23
"""Bytes of request bodies held, in total and per client address."""
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Api:
    """The ASGI application. `context` opens the store on first use, and raises Unavailable while the database is
    down."""

    def __init__(
        self, tokens: Tokens, context: Callable[[], Awaitable[Context]], calls: Sequence[Call] = CALLS
    ) -> None:
        self._tokens = tokens
        self._context = context
        self._places = Shares(MAX_REQUESTS, MAX_REQUESTS_EACH)
        self._bodies = Shares(BODIES, BODIES_EACH)
        paths: dict[str, dict[str, Call]] = {}
        for call in calls:
            paths.setdefault(call.path, {})[call.method] = call
        self._paths = [(compile_path(path)[0], methods) for path, methods in paths.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except Exception as error:
            response = _json(*answer(error))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if not self._tokens:
            raise ApiOff
        local = _local(request)
        caller = self._tokens.who(request.headers.getlist("authorization"))
        call, path = self._find(request.method, local)
        caller.require(call.role)
        query = _query(call, request.query_params)
        client = request.client.host if request.client else ""
        with contextlib.ExitStack() as reading:
            read = await self._read(request, client, reading) if call.takes_body else b""
            body = _body(call, request.headers, read) if call.takes_body else None
            with self._places.one(client):  # after the body is read: a slow sender takes no place
                asked = Asked(await self._context(), caller, path, query, body, self._tokens.unauthenticated)
                return await self._perform(call, asked)

    def _find(self, method: str, local: str) -> tuple[Call, dict[str, str]]:
        """Return the call with exactly this path and method."""
        for pattern, methods in self._paths:
            if match := pattern.fullmatch(local):
                call = methods.get(method)
                if call is None:
                    raise WrongMethod(", ".join(sorted(methods)))
                return call, _storable(match.groupdict())
        raise NoSuchCall

    async def _read(self, request: Request, client: str, reading: contextlib.ExitStack) -> bytes:
        """Return the body; TooLarge beyond the limit."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > MOST_BODY:
                raise TooLarge(f"the body is larger than {MOST_BODY:,} bytes")
            self._bodies.take(client, len(part))
            reading.callback(self._bodies.release, client, len(part))
            parts.append(part)
        return b"".join(parts)

    async def _perform(self, call: Call, asked: Asked[Any, Any]) -> Response:
        try:
            async with asyncio.timeout(call.seconds):
                result = await call.does(asked)
        except TimeoutError as error:
            late = call.late if call.takes_body else "nothing was changed"
            raise TooSlow(f"the call took more than {call.seconds:g} s: {late}") from error
        if call.takes_body:
            subject = None if call.path.endswith("/erase") else "/".join(asked.path.values()) or None
            tell(ACTED, actor=asked.caller.name, action=f"{call.method} {call.path}", subject=subject)
        return _json(200, result)


def _local(request: Request) -> str:
    """Return the path below the API version."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    if path != BASE and not path.startswith(f"{BASE}/"):
        raise NoSuchVersion
    return str(path.removeprefix(BASE))


def _storable(path: dict[str, str]) -> dict[str, str]:
    """Return the path's values; NoSuchCall if one has a NUL or is not valid Unicode."""
    if any("\0" in value or value.encode(errors="ignore").decode() != value for value in path.values()):
        raise NoSuchCall
    return path


def _query(call: Call, given: QueryParams) -> Any:
    """Return the query parameters as the call's type; unknown ones are an error, and single ones given twice."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(call.query)}
    values: dict[str, Any] = {}
    for name in given:
        if name not in fields:  # only the first: reporting all of many takes seconds
            raise Malformed(f"unknown parameter {name[:100]!r}")
        several = given.getlist(name)
        if any("\0" in value for value in several):
            raise Malformed(f"parameter {name} contains a NUL")
        many = "tuple" in str(fields.get(name)) or "list" in str(fields.get(name))
        if len(several) > 1 and not many:
            raise Malformed(f"parameter {name} is given more than once")
        if "datetime" in str(fields.get(name)) and several[0][4:5] != "-":  # a number would be taken for seconds
            raise Malformed(f"parameter {name} is not an ISO 8601 time with a time zone")
        values[name] = several if many else several[0]
    query = _converted(lambda: msgspec.convert(values, call.query, strict=False))
    for name, value in values.items():
        if getattr(query, name) is None:  # made of the word null
            raise Malformed(f"parameter {name} must not be {value}: leave it out")
    return query


def _body(call: Call, headers: Headers, body: bytes) -> Any:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or headers.get("content-encoding", "identity").lower() != "identity":
        raise NotJson("the body is not JSON: send Content-Type: application/json without a content encoding")
    return _converted(lambda: msgspec.json.decode(body, type=call.body))


def _converted(convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except (msgspec.MsgspecError, ConfigError, UnicodeError, RecursionError) as error:
        raise Malformed(str(error).replace("`$.", "`")) from error


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    encoded = msgspec.json.encode(body)
    return Response(encoded, status, {**HEADERS, **(headers or {})}, media_type="application/json")
