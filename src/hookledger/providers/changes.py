"""Change fields of a sample: `data.object.customer=cus_1`."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import ConfigError

_SHOWN = 12


class Change(Struct, frozen=True):
    path: tuple[str, ...]
    value: Any


def read(text: str) -> Change:
    """Read a change: names and list indexes joined by dots, `=`, and JSON or plain text."""
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise ConfigError(f"--set {text!r} has no value: write path.to.field=value")
    names = tuple(name.replace("\\.", ".") for name in re.split(r"(?<!\\)\.", path))
    try:
        return Change(names, msgspec.json.decode(value))
    except msgspec.DecodeError:
        return Change(names, value)


def apply(content: Any, change: Change) -> bool:
    """Set the field in place; return whether the sample had it. Only the last name may be new."""
    *outer, last = change.path
    inner = content
    for number, name in enumerate(outer):
        inner = _step(inner, name, change.path[: number + 1])
    if isinstance(inner, list) and last == str(len(inner)):
        inner.append(change.value)
        return False
    if isinstance(inner, dict):
        known = last in inner
        inner[last] = change.value
        return known
    _step(inner, last, change.path)
    inner[int(last)] = change.value
    return True


def _step(inner: Any, name: str, path: tuple[str, ...]) -> Any:
    if isinstance(inner, dict) and name in inner:
        return inner[name]
    if isinstance(inner, list) and name.isdecimal() and int(name) < len(inner):
        return inner[int(name)]
    where = ".".join(path[:-1]) or "the body"
    raise ConfigError(f"--set {'.'.join(path)}: the sample has no such field; {where} {_holds(inner)}")


def _holds(inner: Any) -> str:
    if isinstance(inner, dict):
        names = [*inner][:_SHOWN] + (["…"] if len(inner) > _SHOWN else [])
        return f"has {', '.join(names)}" if names else "is an empty object"
    if isinstance(inner, list):
        return f"is a list with indexes 0 to {len(inner) - 1}" if inner else "is an empty list"
    return f"is {msgspec.json.encode(inner).decode()}, which has no fields"
