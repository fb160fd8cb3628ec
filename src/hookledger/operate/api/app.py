"""The API: who asks, which call, is it allowed, what is asked, then the call itself. One answer for every error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from ...errors import ConfigError
from .auth import Tokens
from .call import MOST_BODY, Asked, Call, Services
from .errors import ApiOff, Malformed, NoSuchCall, NotJson, TooLarge, TooSlow, WrongMethod, answer
from .schema import BASE
from .shares import Shares
from .table import CALLS

log = logging.getLogger(__name__)

AT_ONCE, AT_ONCE_EACH = 32, 16
"""Requests that are worked on, in all and of one client address; beyond it the answer is 503."""
BODIES, BODIES_EACH = 2**26, 5 * 2**23
"""Bytes of bodies that are held, arriving or being worked on."""
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Api:
    """`services`: opened when they are first needed; it raises Unavailable while the database is."""

    def __init__(
        self, tokens: Tokens, services: Callable[[], Awaitable[Services]], calls: Sequence[Call] = CALLS
    ) -> None:
        self._tokens = tokens
        self._services = services
        self._places = Shares(AT_ONCE, AT_ONCE_EACH)
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
            response = _refusal(error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if not self._tokens:
            raise ApiOff
        caller = self._tokens.who(request.headers.getlist("authorization"))
        call, path = self._find(request)
        caller.require(call.role)
        query = _query(call, request.query_params)
        client = request.client.host if request.client else ""
        with contextlib.ExitStack() as reading:
            read = await self._read(request, client, reading) if call.takes_body else b""
            body = _body(call, request.headers, read) if call.takes_body else None
            with self._places.one(client):  # only now: the body takes as long as its sender likes
                asked = Asked(await self._services(), caller, path, query, body, self._tokens.refused)
                return await self._perform(call, asked)

    def _find(self, request: Request) -> tuple[Call, dict[str, str]]:
        """Exactly the path of a call: no slash more, no letter in another case."""
        local = request.scope["path"].removeprefix(request.scope.get("root_path", "")).removeprefix(BASE)
        for pattern, methods in self._paths:
            if match := pattern.fullmatch(local):
                call = methods.get(request.method)
                if call is None:
                    raise WrongMethod(", ".join(sorted(methods)))
                return call, _storable(match.groupdict())
        raise NoSuchCall

    async def _read(self, request: Request, client: str, reading: contextlib.ExitStack) -> bytes:
        """The body, and no more of it than is allowed."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > MOST_BODY:
                raise TooLarge(f"the body is over {MOST_BODY:,} bytes")
            self._bodies.take(client, len(part))
            reading.callback(self._bodies.give_back, client, len(part))
            parts.append(part)
        return b"".join(parts)

    async def _perform(self, call: Call, asked: Asked[Any, Any]) -> Response:
        try:
            async with asyncio.timeout(call.seconds):
                result = await call.does(asked)
        except TimeoutError as error:
            raise TooSlow(f"it took more than {call.seconds:g} s: {call.late}") from error
        if call.takes_body:
            log.info("%s %s by %s", call.method, call.path, asked.caller.name)
        return _json(200, result)


def _storable(path: dict[str, str]) -> dict[str, str]:
    """What is no text has no name here."""
    if any("\0" in value or not _encodes(value) for value in path.values()):
        raise NoSuchCall
    return path


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _query(call: Call, given: QueryParams) -> Any:
    """The parameters as the call's type has them; unknown ones are refused, and single ones given twice."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(call.query)}
    values: dict[str, Any] = {}
    for name in given:
        if name not in fields:  # said of the first: to look for each of many among all takes seconds
            raise Malformed(f"there is no parameter {name[:100]!r}")
        several = given.getlist(name)
        if any("\0" in value for value in several):
            raise Malformed(f"the parameter {name} has a NUL in it")
        many = "tuple" in str(fields.get(name)) or "list" in str(fields.get(name))
        if len(several) > 1 and not many:
            raise Malformed(f"the parameter {name} is given more than once")
        if "datetime" in str(fields.get(name)) and several[0][4:5] != "-":  # a number would be taken for seconds
            raise Malformed(f"the parameter {name} is no time in ISO 8601 with its zone")
        values[name] = several if many else several[0]
    query = _converted(lambda: msgspec.convert(values, call.query, strict=False))
    for name, value in values.items():
        if getattr(query, name) is None:  # made of the word null
            raise Malformed(f"the parameter {name} is not {value}: leave it out")
    return query


def _body(call: Call, headers: Headers, body: bytes) -> Any:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or headers.get("content-encoding", "identity").lower() != "identity":
        raise NotJson("this is sent with Content-Type: application/json, and without a content encoding")
    return _converted(lambda: msgspec.json.decode(body, type=call.body))


def _converted(convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except (msgspec.MsgspecError, ConfigError, UnicodeError, RecursionError) as error:
        raise Malformed(str(error).replace("`$.", "`")) from error


def _refusal(error: Exception) -> Response:
    status, body, headers = answer(error)
    return _json(status, body, headers)


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    encoded = msgspec.json.encode(body)
    return Response(encoded, status, {**HEADERS, **(headers or {})}, media_type="application/json")
