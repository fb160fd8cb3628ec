"""Where something stands in a request: the words contracts and configurations are written in."""

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
    """A field of the event's content: of the item where the body holds several."""

    path: tuple[str, ...]


class Query(Struct, frozen=True):
    """A parameter of the URL."""

    name: str


class Present(Struct, frozen=True):
    """The name of the first of these fields that the content has, for providers whose type is a field's name."""

    names: tuple[str, ...]


class Constant(Struct, frozen=True):
    """Always this text: a stage of the work, say, as part of a key."""

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
    """A field as written in configuration: `header:X-Event-Id`, `body:data.id`, `query:shop` or `text:stage-1`."""
    place, _, name = text.partition(":")
    makers: dict[str, Callable[[str], Field]] = {"header": header, "body": body, "query": query, "text": Constant}
    if name and place in makers and (name.isascii() or place in ("body", "text")):
        return makers[place](name)
    raise ConfigError(f"{text!r} is not a field: write header:NAME, body:PATH.TO.FIELD, query:NAME or text:WORDS")


def written(field: Field) -> str:
    """A field as people write it; the other way round for what `field` reads."""
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
            return f"whichever field is there: {', '.join(names)}"


def found(field: Field, request: Request, content: Content) -> object:
    """What stands there, of whatever kind; None if nothing does. Of several headers the first counts."""
    # By class, the most frequent first: on the way of an ack a match statement costs several times as much.
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
    """What the content has there, be it null; ABSENT where it has no such field."""
    inner: object = content
    for name in field.path:
        if not isinstance(inner, dict) or name not in inner:
            return ABSENT
        inner = inner[name]
    return inner


def exact(value: object) -> bytes | None:
    """A field's exact bytes; what is neither text nor an integer, or is blank, is nothing."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    elif isinstance(value, int) and not isinstance(value, bool):
        value = b"%d" % value
    return value if isinstance(value, bytes) and value.strip() else None
