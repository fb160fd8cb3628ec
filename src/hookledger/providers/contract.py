"""What Hookledger must know of a provider, as data. One value of `Contract` per provider, one module each.

A contract has no code: what is particular to a provider is a value here, and the steps of the path read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, TypedDict
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from .schemes import Scheme

MIB = 1024 * 1024
MAX_NESTING = 128
UNKNOWN_TYPE = "unknown"
"""The type of an event that lacks its contract's first type field; handlers bind to it like to any other."""


class Header(Struct, frozen=True):
    """A request header; the name is lower-case."""

    name: bytes


class Body(Struct, frozen=True):
    """A field of the event's JSON: of the item where the body holds several."""

    path: tuple[str, ...]


Field = Header | Body


def header(name: str) -> Header:
    return Header(name.lower().encode("ascii"))


def body(path: str) -> Body:
    """`body("data.object.id")`."""
    return Body(tuple(path.split(".")))


def field(text: str) -> Field:
    """A field as written in configuration: `header:X-Event-Id` or `body:data.id`."""
    place, _, name = text.partition(":")
    if name and name.isascii():
        if place == "header":
            return header(name)
        if place == "body":
            return body(name)
    raise ConfigError(f"{text!r} is not a field: write header:NAME or body:PATH.TO.FIELD")


class Answer(Struct, frozen=True):
    """What the provider takes for success."""

    status: int = 202
    body: bytes = b""
    content_type: str | None = None


class Handshake(Struct, frozen=True):
    """How the provider asks whether an endpoint is there: it sends `value` and wants it back in `answer`."""

    method: Literal["GET", "POST", "OPTIONS"]
    value: Field
    answer: Answer


class Contract(Struct, frozen=True, kw_only=True, dict=True):
    """One provider: how its requests are proved, what makes two of them one event, how it is answered."""

    name: str
    title: str
    scheme: Scheme

    # What an event is
    id: Field | None = None
    """The provider's own id of the event, the same on every redelivery."""
    key: tuple[Field, ...] = ()
    """What makes two deliveries one event; the id alone if empty. All of them must be present."""
    type: tuple[Field, ...] = ()
    """Joined by "."; those after the first may be absent."""
    object_id: tuple[Field, ...] = ()
    """The first one present counts."""
    occurred_at: Field | None = None
    occurred_unit: Literal["s", "ms"] = "s"
    """Of a number; a string is ISO 8601."""
    delivery_id: Field | None = None
    """The provider's id of this one arrival."""
    volatile: tuple[Body, ...] = ()
    """What may differ between deliveries of the same event."""
    repeatable: frozenset[str] = frozenset()
    """Types (by their first field) whose identical bodies are each an intent of their own, so that the body
    is no second identity."""

    # What the body looks like
    items: tuple[str, ...] | None = None
    """The path to the array of events; () where the body is that array; None where the body is one event."""
    form_field: str | None = None
    """The form field that holds the JSON where the provider can be set to send a form."""
    max_body: int = MIB

    # How it behaves
    secret_headers: frozenset[bytes] = frozenset({b"authorization", b"proxy-authorization", b"cookie"})
    """Never stored."""
    retry_hours: float = 0.0
    """How long the provider repeats a delivery by itself."""
    answer: Answer = Answer()
    handshake: Handshake | None = None
    notes: tuple[str, ...] = ()
    """What the user should know."""

    def __post_init__(self) -> None:
        if self.items is not None and self.key_fields and not any(isinstance(f, Body) for f in self.key_fields):
            raise ConfigError("a request with several events has one set of headers: a key needs a body field")

    @cached_property
    def body_fields(self) -> tuple[Body, ...]:
        """What is read of an event's JSON to identify it."""
        fields = (*self.key_fields, *self.type, *self.object_id, self.id, self.occurred_at, self.delivery_id)
        return tuple(field for field in fields if isinstance(field, Body))

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return self.key or (() if self.id is None else (self.id,))

    @cached_property
    def body_authenticated(self) -> bool:
        return "body" in self.scheme.fields

    @cached_property
    def id_authenticated(self) -> bool:
        """Whether the signature covers the whole key."""
        return all(map(self._signed, self.key_fields))

    @cached_property
    def type_authenticated(self) -> bool:
        """False where whoever captured a request can send it again as another type."""
        return all(map(self._signed, self.type))

    @cached_property
    def needs_public_url(self) -> bool:
        """Whether the URL is signed; behind a proxy only the configuration knows what the provider called."""
        return "url" in self.scheme.fields

    def _signed(self, field: Field) -> bool:
        return self.body_authenticated if isinstance(field, Body) else field.name == self.scheme.id_header


class UnreadableError(ValueError):
    """The body is not what the contract says; the text is the reason, without any of the body in it."""


def decode(contract: Contract, raw: bytes) -> object:
    """The body's JSON, or UnreadableError.

    More tolerant than msgspec alone: lone surrogates and NaN are what some providers send, so the standard
    library has the second word.
    """
    # The bytes are signed and the content type is not, so the bytes decide; no JSON text begins like this.
    if contract.form_field is not None and raw.startswith(contract.form_field.encode() + b"="):
        raw = _from_form(raw, contract.form_field.encode())
    try:
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            document = json.loads(raw.decode())
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except ValueError:
        raise UnreadableError("not JSON") from None
    # The interpreter's own limit depends on how deep the caller is; the same bytes must always be read alike.
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and _depth(raw) > MAX_NESTING:
        raise UnreadableError("nested too deeply")
    return document


def contents(contract: Contract, document: object) -> list[object]:
    """The events in a decoded body, in their order, or UnreadableError."""
    if contract.items is None:
        return [document]
    for name in contract.items:
        document = document.get(name) if isinstance(document, dict) else None
    if not isinstance(document, list):
        raise UnreadableError("no array of events")
    return document


def outline(contract: Contract) -> Callable[[bytes], dict[str, Any]] | None:
    """Reads only the fields that identify an event, which is far cheaper than reading all of it.

    None where the body holds several events. The function raises ValueError for whatever is not plain JSON of
    the expected shape: `decode` has the last word then.
    """
    if contract.items is not None:
        return None
    tree: dict[str, Any] = {}
    for field in contract.body_fields:
        *outer, last = field.path
        branch = tree
        for name in outer:
            branch = branch.setdefault(name, {})
            if branch is Any:
                return None  # one field inside another: reading all of it is right too
        branch.setdefault(last, Any)
    decoder = msgspec.json.Decoder(_typed(tree))

    def read(raw: bytes) -> dict[str, Any]:
        if raw.count(b"[") + raw.count(b"{") > MAX_NESTING:
            raise ValueError("perhaps nested too deeply")
        raw.decode()  # what is not read is not checked either
        return decoder.decode(raw)  # type: ignore[no-any-return]

    return read


def _typed(tree: dict[str, Any]) -> Any:
    fields = {name: Any if inner is Any else _typed(inner) for name, inner in tree.items()}
    return TypedDict("Outline", fields, total=False)  # type: ignore[operator]


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - set(_STEP))


def _depth(raw: bytes) -> int:
    """How deep well-formed JSON is nested."""
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _from_form(raw: bytes, name: bytes) -> bytes:
    try:
        fields = parse_qsl(raw, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise UnreadableError("not a form") from None
    values = [value for key, value in fields if key == name]
    if len(values) != 1:
        raise UnreadableError("not a form with one payload")
    return values[0]
