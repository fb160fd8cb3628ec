"""Answer handshakes, in which a provider checks the endpoint before it delivers.

No handler runs. The answer echoes at most a short text of a safe alphabet, so that the endpoint cannot be abused.
"""

from __future__ import annotations

import hmac
import re

import msgspec
from msgspec import Struct

from ..errors import Forbidden, Malformed, UnreadableError
from ..model import Request
from ..providers.fields import Body, Content, Field, Header, exact, found
from ..providers.handshake import Handshake
from ..providers.reading import decode
from ..providers.tolerant import picker
from . import respond
from .endpoint import Endpoint

MAX_VALUE = 1024


class HandshakeReply(Struct, frozen=True):
    """The answer to a handshake."""

    response: respond.Response
    fetch: str | None = None
    """The URL to fetch before answering."""
    keep: bool = False
    """Whether it is also recorded as an event."""


def methods(endpoint: Endpoint) -> frozenset[str]:
    """Return the HTTP methods that this source accepts."""
    return frozenset({"POST", *(handshake.method for handshake in endpoint.contract.handshakes)})


def answer_unsigned(endpoint: Endpoint, request: Request) -> HandshakeReply | None:
    """Return the reply to an unsigned handshake; None if the request is none."""
    return _answer(endpoint, request, signed=False)


def answer_signed(endpoint: Endpoint, request: Request) -> HandshakeReply | None:
    """Return the reply to a signed handshake, after its signature was verified; None if the request is none."""
    return _answer(endpoint, request, signed=True)


def _answer(endpoint: Endpoint, request: Request, *, signed: bool) -> HandshakeReply | None:
    for handshake in endpoint.contract.handshakes:
        if handshake.signed is signed and handshake.method == request.method:
            fields = _Fields(endpoint, request, handshake)
            if fields.are_of(handshake):
                return _reply(endpoint, handshake, fields)
    return None


class _Fields:
    """The fields of a request that its handshake uses."""

    def __init__(self, endpoint: Endpoint, request: Request, handshake: Handshake) -> None:
        self._request = request
        wanted = [field for field, _ in handshake.when] + [handshake.value, handshake.fetch, handshake.token]
        paths = [field.path for field in wanted if isinstance(field, Body)]
        needs_body = paths and request.method == "POST"
        self._content = _content(endpoint, request, paths, trusted=handshake.signed) if needs_body else {}

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


def _content(endpoint: Endpoint, request: Request, paths: list[tuple[str, ...]], *, trusted: bool) -> Content:
    """Return these fields of the body, of the first of several items; empty if it is unreadable."""
    contract, raw = endpoint.contract, request.body
    try:
        if contract.content == "json" and contract.form_field is None:
            read = picker(*paths, array=raw.lstrip().startswith(b"["))
            document = read.trusted(raw) if trusted else read(raw)
        else:
            document = decode(contract, raw)
    except UnreadableError:
        return {}
    if isinstance(document, list) and document:
        document = document[0]
    return document if isinstance(document, dict) else {}


def _reply(endpoint: Endpoint, handshake: Handshake, fields: _Fields) -> HandshakeReply:
    if handshake.token is not None:
        _check_token(endpoint, fields.text(handshake.token) or "")
    value = fields.text(handshake.value) or ""
    if handshake.value is not None and not (len(value) <= MAX_VALUE and re.fullmatch(handshake.alphabet, value)):
        raise Malformed("handshake_malformed")
    if handshake.origins and value not in endpoint.settings.origins:
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
    return HandshakeReply(respond.handshake(handshake, body, headers), fetch, handshake.keep)


def _filled(pairs: tuple[tuple[str, str | int], ...], words: dict[str, str]) -> dict[str, str | int]:
    return {name: part.format(**words) if isinstance(part, str) else part for name, part in pairs}


def _check_token(endpoint: Endpoint, presented: str) -> None:
    """Raise Forbidden for a wrong token, or if none is configured: else anyone could confirm the endpoint."""
    expected = endpoint.verify_token
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
