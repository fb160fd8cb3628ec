"""Answers to a provider that asks whether the endpoint is there: narrowly, so that the endpoint stays closed.

A handshake never reaches a handler. What is given back is a short text of a harmless alphabet, or nothing.
"""

from __future__ import annotations

import hmac
import re

import msgspec
from msgspec import Struct

from ..errors import Forbidden, Malformed
from ..model import Request
from ..providers.fields import Body, Content, Field, Header, exact, found
from ..providers.handshake import Handshake
from ..providers.reading import decode
from ..providers.tolerant import UnreadableError, picker
from . import respond
from .endpoint import Endpoint

MAX_VALUE = 1024


class Shake(Struct, frozen=True):
    """How a handshake is answered."""

    response: respond.Response
    fetch: str | None = None
    """What must be got first."""
    keep: bool = False
    """It is recorded as an event besides."""


def methods(endpoint: Endpoint) -> frozenset[str]:
    """The methods that this source takes."""
    return frozenset({"POST", *(handshake.method for handshake in endpoint.contract.handshakes)})


def ask_unsigned(endpoint: Endpoint, request: Request) -> Shake | None:
    """What an unsigned question is answered; None where the request is none."""
    return _ask(endpoint, request, signed=False)


def ask_signed(endpoint: Endpoint, request: Request) -> Shake | None:
    """The same for a request whose signature is right."""
    return _ask(endpoint, request, signed=True)


def _ask(endpoint: Endpoint, request: Request, *, signed: bool) -> Shake | None:
    for handshake in endpoint.contract.handshakes:
        if handshake.signed is signed and handshake.method == request.method:
            fields = _Fields(endpoint, request, handshake)
            if fields.are_of(handshake):
                return _answer(endpoint, handshake, fields)
    return None


class _Fields:
    """What a question says, read only as far as its handshake looks."""

    def __init__(self, endpoint: Endpoint, request: Request, handshake: Handshake) -> None:
        self._request = request
        wanted = [field for field, _ in handshake.when] + [handshake.value, handshake.fetch, handshake.token]
        paths = [field.path for field in wanted if isinstance(field, Body)]
        needs_body = paths and request.method == "POST"
        self._content = _content(endpoint, request, paths, believed=handshake.signed) if needs_body else {}

    def are_of(self, handshake: Handshake) -> bool:
        if handshake.body is not None and not re.fullmatch(handshake.body.encode(), self._request.body):
            return False
        for field, expected in handshake.when:
            value = self.text(field)
            if value is None or (expected is not None and value != expected):
                return False
        return True

    def text(self, field: Field | None) -> str | None:
        if field is None:
            return None
        if isinstance(field, Header) and len(self._request.values(field.name)) > 1:
            raise Malformed("handshake_duplicate")
        value = exact(found(field, self._request, self._content))
        return None if value is None else value.decode("utf-8", "replace")


def _content(endpoint: Endpoint, request: Request, paths: list[tuple[str, ...]], *, believed: bool) -> Content:
    """These fields of the body as far as it is readable; of the first of several items."""
    contract, raw = endpoint.contract, request.body
    try:
        if contract.content == "json" and contract.form_field is None:
            read = picker(*paths, array=raw.lstrip().startswith(b"["))
            document = read.believed(raw) if believed else read(raw)
        else:
            document = decode(contract, raw)
    except UnreadableError:
        return {}
    if isinstance(document, list) and document:
        document = document[0]
    return document if isinstance(document, dict) else {}


def _answer(endpoint: Endpoint, handshake: Handshake, fields: _Fields) -> Shake:
    if handshake.token is not None:
        _check_token(endpoint, fields.text(handshake.token) or "")
    value = fields.text(handshake.value) or ""
    if handshake.value is not None and not (len(value) <= MAX_VALUE and re.fullmatch(handshake.alphabet, value)):
        raise Malformed("handshake_malformed")
    if handshake.origins and value not in endpoint.rules.origins:
        raise Forbidden("handshake_origin")
    fetch = fields.text(handshake.fetch)
    if handshake.fetch is not None and not (fetch and re.fullmatch(handshake.fetch_pattern, fetch)):
        raise Malformed("handshake_url")
    words = {"value": value, "mac": _mac(endpoint, handshake, value)}
    body, kind = b"", ""
    if handshake.json is not None:
        body, kind = msgspec.json.encode(_filled(handshake.json, words)), "json"
    elif handshake.text is not None:
        body, kind = handshake.text.format(**words).encode(), "text"
    headers = tuple((name, text.format(**words)) for name, text in handshake.headers)
    if kind:
        content_type = "application/json" if kind == "json" else "text/plain; charset=utf-8"
        headers = (("content-type", content_type), ("x-content-type-options", "nosniff"), *headers)
    return Shake(respond.handshake(handshake, body, headers), fetch, handshake.keep)


def _filled(pairs: tuple[tuple[str, str | int], ...], words: dict[str, str]) -> dict[str, str | int]:
    return {name: part.format(**words) if isinstance(part, str) else part for name, part in pairs}


def _check_token(endpoint: Endpoint, presented: str) -> None:
    """403 also where no token is configured: an open endpoint would confirm itself to anybody."""
    expected = endpoint.rules.verify_token
    if expected is None or not hmac.compare_digest(expected.encode(), presented.encode("utf-8", "replace")):
        raise Forbidden("handshake_token")


def _mac(endpoint: Endpoint, handshake: Handshake, value: str) -> str:
    if handshake.mac is None:
        return ""
    public, key = b"", endpoint.secrets[0].key
    if handshake.paired:
        public, _, key = key.partition(b"\0")
    mac = hmac.new(key, value.encode(), handshake.mac).hexdigest()
    return f"{public.decode()}|{mac}" if handshake.paired else mac
