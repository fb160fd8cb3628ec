"""Checks of what providers document; every mistake is a BadResult that names the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import BadResult

JsonObject = Mapping[str, Any]


def text_of(what: str, given: object, most: int, *, least: int = 1) -> str:
    """Return the text if it has from `least` to `most` characters."""
    if not isinstance(given, str):
        raise BadResult(f"{what} is text, not {type(given).__name__}")
    if not least <= len(given) <= most:
        said = f"at most {most:,}" if least == 0 else f"{least:,} to {most:,}"
        raise BadResult(f"{what} has {len(given):,} characters, {said} are allowed: {_advice(given)}")
    return given


def _advice(given: str) -> str:
    return "shorten it, or answer with a link" if given else "write it, or leave the field out"


def objects_of(what: str, given: Iterable[object], most: int, *, least: int = 0) -> list[dict[str, Any]]:
    """Return the JSON objects if there are from `least` to `most`. An object may be a mapping, or a model of the
    provider's SDK with `to_dict`."""
    if isinstance(given, str | bytes | Mapping):
        raise BadResult(f"{what} is a list of objects, not {type(given).__name__}")
    made = [object_of(f"{what}[{number}]", one) for number, one in enumerate(given)]
    if not least <= len(made) <= most:
        said = f"at most {most}" if least == 0 else f"{least} to {most}"
        raise BadResult(f"{what} has {len(made)} entries, {said} are allowed: leave some out")
    return made


def object_of(what: str, given: object) -> dict[str, Any]:
    """Return a mapping, or a model of the provider's SDK, as a dict."""
    if not isinstance(given, Mapping) and callable(to_dict := getattr(given, "to_dict", None)):
        given = to_dict()
    if not isinstance(given, Mapping):
        raise BadResult(f"{what} is a JSON object, not {type(given).__name__}")
    return dict(given)


def without_none(**fields: Any) -> dict[str, Any]:
    """Return the fields that are given."""
    return {name: value for name, value in fields.items() if value is not None}


def one_of(what: str, given: object, allowed: Sequence[object]) -> None:
    if given not in allowed:
        raise BadResult(f"{what} is {' or '.join(map(repr, allowed))}, not {given!r:.60}")
