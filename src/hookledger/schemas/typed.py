"""Content as a type of the user's: what a handler declares with `body=`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any, is_typeddict

import msgspec

from ..errors import ConfigError, SchemaBreak
from .breaks import MAX_BREAKS, Break, found, in_words, pointer

_AT = re.compile(r" - at `(?:key in )?\$(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_TYPES = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class Body:
    """Converts an event's content to a type; raises SchemaBreak where it does not fit."""

    def __init__(self, kind: Any) -> None:
        """ConfigError for a type that cannot be converted to."""
        self.name: str = f"body {getattr(kind, '__qualname__', repr(kind))}"
        self._convert: Callable[[Any], Any] = _with_pydantic(kind, self.name) or _with_msgspec(kind, self.name)

    def __call__(self, content: Any) -> Any:
        return self._convert(content)


def _broken(name: str, breaks: Sequence[Break]) -> SchemaBreak:
    reason, details = in_words(name, breaks)
    return SchemaBreak(reason, details=details)


def _with_msgspec(kind: Any, name: str) -> Callable[[Any], Any]:
    if not (
        isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind) or is_typeddict(kind))
    ):
        raise ConfigError(
            f"body= takes a msgspec Struct, a dataclass, a TypedDict or a pydantic model, not {kind!r:.100}"
        )
    try:
        msgspec.json.Decoder(kind)  # finds fields of types that it cannot convert
        known = frozenset(_fields_of(kind))
    except Exception as error:  # annotations of the user's that cannot be evaluated raise anything
        raise ConfigError(f"body={name[5:]}: {error}") from error

    def convert(content: Any) -> Any:
        try:
            return msgspec.convert(content, kind)
        except msgspec.ValidationError as error:
            raise _broken(name, [_of_msgspec(str(error), known, content)]) from None
        except UnicodeEncodeError:  # in what is read as a time, an id or a decimal: msgspec does not tell where
            raise _broken(name, [Break("", "text without lone surrogates", found(content))]) from None

    return convert


def _fields_of(kind: Any) -> set[str]:
    """Return the names of fields of a type and of the types inside it."""
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            properties = value.get("properties")
            found.update(properties if isinstance(properties, dict) else ())
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(list(msgspec.json.schema_components([kind])))
    return found


def _of_msgspec(message: str, known: frozenset[str], content: Any) -> Break:
    """Return the break that a message tells of. What it quotes may be a value, and a `__post_init__` may say any."""
    where = _AT.search(message)
    said = message[: where.start()] if where else message
    path = [int(number) if number else (name or "*") for name, number in _STEP.findall(where[1] if where else "")]
    if missing := _MISSING.fullmatch(said):
        return Break(pointer([*path, missing[1]], known), "a value", "nothing")
    if types := _TYPES.fullmatch(said):
        return Break(pointer(path, known), _plainly(types[1]), _plainly(types[2]))
    return Break(pointer(path, known), _wanted(said), _found_at(content, path))


def _wanted(said: str) -> str:
    if said.startswith("Object contains unknown field"):
        return "only the fields of its type"
    if said.startswith("Expected `"):
        return _QUOTED.sub("…", said.removeprefix("Expected ").replace("`", ""))
    return "one of the values of its type" if said.startswith("Invalid enum value") else "what its type allows"


def _found_at(content: Any, path: Sequence[str | int]) -> str:
    for step in path:
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):  # a name that msgspec does not tell
            return "something else"
    return found(content)


def _plainly(kinds: str) -> str:
    """Return msgspec's names of types as JSON's."""
    names = {"int": "integer", "str": "string", "bool": "boolean", "float": "number"}
    return " or ".join(names.get(kind, kind) for kind in kinds.split(" | "))


def _with_pydantic(kind: Any, name: str) -> Callable[[Any], Any] | None:
    """Return the conversion to a pydantic model or dataclass; None if it is none, as without pydantic."""
    pydantic = sys.modules.get("pydantic")
    model: Any = getattr(pydantic, "BaseModel", None)
    if pydantic is None or model is None or not isinstance(kind, type):
        return None
    if not issubclass(kind, model) and "__pydantic_validator__" not in kind.__dict__:  # as its dataclasses have
        return None
    try:
        adapter = pydantic.TypeAdapter(kind)
        known = frozenset(_names_of(adapter, kind))
    except Exception as error:  # of the user's annotations, as above
        raise ConfigError(f"body={name[5:]}: {error}") from error

    def convert(content: Any) -> Any:
        try:
            return adapter.validate_python(content)
        except pydantic.ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)
            breaks = [_of_pydantic(one["type"], one["loc"], known, content) for one in told[:MAX_BREAKS]]
            raise _broken(name, breaks) from None

    return convert


def _names_of(adapter: Any, kind: Any) -> set[str]:
    try:
        return _names(adapter.json_schema())
    except sys.modules["pydantic"].PydanticInvalidForJsonSchema:  # a field of a type that JSON Schema cannot say
        return set(getattr(kind, "model_fields", ()))


def _of_pydantic(kind: str, path: Sequence[str | int], known: frozenset[str], content: Any) -> Break:
    """Return the break of an error code such as `int_parsing`; an error's message may quote values."""
    if kind == "missing":
        return Break(pointer(path, known), "a value", "nothing")
    return Break(pointer(path, known), f"no {kind} error of pydantic", _found_at(content, path))


def _names(schema: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(schema, dict):
        properties = schema.get("properties")
        found.update(properties if isinstance(properties, dict) else ())
        for inner in schema.values():
            found |= _names(inner)
    elif isinstance(schema, list):
        for inner in schema:
            found |= _names(inner)
    return found
