"""Fields of a request, as contracts and settings name them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ..errors import ConfigError
from ..model import Request
from .forms import parameters

Content = dict[str, object]
"""One event's JSON, or a form as names and texts."""


class Header(Struct, frozen=True):
    """A request header; the name is lower-case."""

    name: bytes


class Body(Struct, frozen=True):
    """A field of the event's content; of the item, if the body holds several."""

    path: tuple[str, ...]


class Query(Struct, frozen=True):
    """A parameter of the URL."""

    name: str


class Present(Struct, frozen=True):
    """The name of the first of these fields that is present, for providers whose type is a field's name."""

    names: tuple[str, ...]


class Constant(Struct, frozen=True):
    """A fixed text, such as a stage of the work as part of a key."""

    text: str


Field = Header | Body | Query | Present | Constant


def header(name: str) -> Header:
    return Header(name.lower().encode("ascii"))


def body(path: str) -> Body:
    """`body("data.object.id")`."""
    return Body(tuple(path.split(".")))


def query(name: str) -> Query:
    return Query(name)


def present(*names: str) -> Present:
    return Present(names)


def field(text: str) -> Field:
    """Read a field from settings: `header:X-Event-Id`, `body:data.id`, `query:shop` or `text:stage-1`."""
    place, _, name = text.partition(":")
    makers: dict[str, Callable[[str], Field]] = {"header": header, "body": body, "query": query, "text": Constant}
    if name and place in makers and (name.isascii() or place in ("body", "text")):
        return makers[place](name)
    raise ConfigError(f"{text!r} is not a field: write header:NAME, body:PATH.TO.FIELD, query:NAME or text:WORDS")


def written(field: Field) -> str:
    """Return a field as text; the inverse of `field`."""
    match field:
        case Header(name):
            return f"header:{name.decode('ascii')}"
        case Body(path):
            return f"body:{'.'.join(path)}"
        case Query(name):
            return f"query:{name}"
        case Constant(text):
            return f"text:{text}"
        case Present(names):
            return f"name of the first field present: {', '.join(names)}"


def found(field: Field, request: Request, content: Content) -> object:
    """Return the field's value, of any type; None if absent. Of several headers the first is used."""
    # By class, the most frequent first: this is on the hot path, and a match statement costs several times as much.
    kind = type(field)
    if kind is Body:
        inner: object = content
        for name in field.path:  # type: ignore[union-attr]
            if not isinstance(inner, dict):
                return None
            inner = inner.get(name)
        return inner
    if kind is Header:
        return request.value(field.name)  # type: ignore[union-attr, arg-type]
    match field:
        case Query(name):
            return parameters(request.query).get(name)
        case Constant(text):
            return text
        case Present(names):
            return next((name for name in names if name in content), None)
    return None


ABSENT = object()


def inside(field: Body, content: Content) -> object:
    """Return the field's value, perhaps None for null; ABSENT without such a field."""
    inner: object = content
    for name in field.path:
        if not isinstance(inner, dict) or name not in inner:
            return ABSENT
        inner = inner[name]
    return inner


def exact(value: object) -> bytes | None:
    """Return a value's exact bytes; None unless it is a text or an integer and not blank."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    elif isinstance(value, int) and not isinstance(value, bool):
        value = b"%d" % value
    return value if isinstance(value, bytes) and value.strip() else None
