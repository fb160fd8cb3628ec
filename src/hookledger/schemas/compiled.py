"""A compiled schema, and the breaks that it finds in content. Patterns take linear time; a check is bounded.

`jsonschema_rs` finds all errors, with all alternatives that did not fit and a copy of each wrong value, before it
returns the first: half a million wrong items cost 700 MB. So a large content is explained by a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import ConfigError
from .bounds import check_bounds
from .breaks import MAX_BREAKS, Break, expected, found, pointer
from .bundle import Document, Folder, bundle, names_in

MAX_PATTERN = 1024 * 1024
"""Bytes that one compiled pattern may take."""
SMALL = 1_000
"""Values of content that is explained whole, at most."""
MAX_ERRORS = 50_000
"""That an explanation may find: content of fewer values is explained whole if each may have more."""
LONG = 1_000
"""Characters of text that count as one more value."""
FIRST_ITEMS = 20
"""Items of each array that are explained in larger content."""
FIRST_FIELDS = 500
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_UNUSUAL = (b"0e000", b"0e+000", b"0" * 200, b"NaN", b"Infinity")
"""In JSON, with its digits as 0, that may have a number which JSON cannot hold."""
LARGEST = 1.7976931348623157e308


class NotJson(ValueError):
    """The content has a number that JSON does not have."""

    def __init__(self, path: Sequence[str | int]) -> None:
        super().__init__("not a number of JSON")
        self.path = path


def is_plain(raw: bytes) -> bool:
    """Whether content decoded from these bytes has only numbers that JSON can hold, as far as a quick look tells."""
    if raw.lstrip()[:1] not in (b"{", b"["):  # a form may write them as %XX
        return False
    digits = raw.translate(_DIGITS)  # several times as fast as a regular expression
    return not any(one in digits for one in _UNUSUAL)


class Schema:
    """One file of the folder, compiled. `name`: SOURCE/TYPE/VERSION.json, as causes have it."""

    def __init__(self, name: str, document: Document, file: Path | str | None = None) -> None:
        """Raises ConfigError, with file and place, for a schema that is wrong or whose check has no bound."""
        said = str(file or name)
        self.name = name
        self.document = document
        self._known = names_in(document)
        self._validator = _compiled(document, said)
        self._small = max(1, min(SMALL, MAX_ERRORS // check_bounds(document, said)))
        """Values of content that is explained whole."""

    def check(self, content: object, *, plain: bool = False) -> list[Break]:
        """Return the breaks in an event's content; none if it fits. `plain`: what `is_plain` says of its bytes."""
        if plain:
            try:
                if self._validator.is_valid(content):
                    return []
            except ValueError:  # a lone surrogate in a name
                pass
        return self._check_plain(content)

    def _check_plain(self, content: object) -> list[Break]:
        try:
            # The validator sees infinity and NaN as null.
            plain = _plain(content) if _is_unusual(content) else content
        except NotJson as error:
            return [Break(pointer(error.path, self._known), "a number of JSON", "NaN")]
        return [] if self._validator.is_valid(plain) else self._explained(plain)

    def _explained(self, plain: object) -> list[Break]:
        if _size(plain, self._small) <= self._small:
            told: Iterator[Any] = map(_telling, self._validator.iter_errors(plain))
        else:
            errors = map(_telling, self._validator.iter_errors(_part(plain, [self._small])))
            told = filter(lambda error: _holds(error, _at(plain, error.instance_path)[1]), errors)
        breaks = [self._break(error, plain) for error in islice(told, MAX_BREAKS)]
        return list(dict.fromkeys(breaks)) or [Break("", "content that fits the schema", found(plain))]

    def _break(self, error: Any, whole: object) -> Break:
        kind, (path, value) = error.kind, _at(whole, error.instance_path)
        if kind.name == "required":
            return Break(pointer([*path, kind.property], self._known), "a value", "nothing")
        shown = found(error.instance if value is _NOWHERE else value)
        return Break(pointer(path, self._known), expected(kind.name, getattr(kind, "value", None)), shown)


def load_schema(folder: Folder, path: PurePosixPath) -> Schema:
    """Return a file's schema, compiled. ConfigError names file and place."""
    return Schema(str(path), bundle(folder, path), folder.root / path)


def _compiled(document: Document, said: str) -> Any:
    try:
        import jsonschema_rs  # an extra, and only needed where there are schemas
    except ImportError:
        raise ConfigError("schemas need jsonschema-rs: pip install 'hookledger[schemas]'") from None
    try:
        validator = jsonschema_rs.Draft202012Validator(
            document,
            retriever=_denied,
            # Linear in the text, without look-around and back-references; the other engine backtracks.
            pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN, dfa_size_limit=MAX_PATTERN),
        )
    except jsonschema_rs.ValidationError as error:
        place = "".join(f"/{part}" for part in error.instance_path)
        raise ConfigError(f"{said} at {place or '/'}: {_why(error)}") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise ConfigError(f"{said}: it cannot be compiled: {error}") from None
    return validator


def _why(error: Any) -> str:
    words = str(error.message)[:200]
    if error.kind.name == "pattern" or words.endswith('"regex"'):
        return f"{words}: patterns have no look-around and no back-references, and are of limited size"
    return words


def _denied(uri: str) -> Any:
    raise ValueError(f"nothing is fetched: {uri}")


def _telling(error: Any) -> Any:
    """Return the error inside the one alternative that was meant, if all others are of another type."""
    while error.kind.name in ("anyOf", "oneOf", "oneOfNotValid"):
        here = list(error.instance_path)
        meant = [
            branch
            for branch in getattr(error.kind, "context", ())
            if branch and not any(one.kind.name == "type" and list(one.instance_path) == here for one in branch)
        ]
        if len(meant) != 1:
            break
        error = meant[0][0]
    return error


# ── content that is not quite JSON, or large ──


def _is_unusual(value: object) -> bool:
    """Whether it has what JSON does not: lone surrogates, infinity or NaN. Providers send such."""
    match value:
        case str():
            return not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)
        case float():
            return not math.isfinite(value)
        case list():
            return any(map(_is_unusual, value))
        case dict():
            return any(map(_is_unusual, value)) or any(map(_is_unusual, value.values()))
    return False


def _plain(value: object, path: tuple[str | int, ...] = ()) -> object:
    """Return content as JSON: each lone surrogate replaced, a number that is too large as the largest."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case float():
            if math.isnan(value):
                raise NotJson(path)
            return math.copysign(min(abs(value), LARGEST), value)
        case list():
            return [_plain(inner, (*path, number)) for number, inner in enumerate(value)]
        case dict():
            return {str(_plain(name)): _plain(inner, (*path, name)) for name, inner in value.items()}
    return value


def _size(value: object, most: int) -> int:
    """Return the number of values, long texts as several, as far as `most`."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        one = waiting.pop()
        count += 1
        if isinstance(one, str):
            count += len(one) // LONG
        elif isinstance(one, list):
            waiting += one[: most + 1]
        elif isinstance(one, dict):
            waiting += islice(one.values(), most + 1)
    return count


def _part(value: object, left: list[int]) -> object:
    """Return the beginning of each array, object and long text, of all as far as there is room; paths stay what they
    are. `left`: for how many values."""
    left[0] -= 1
    if isinstance(value, str):
        kept = value[: max(1, left[0]) * LONG]
        left[0] -= len(kept) // LONG
        return kept
    if isinstance(value, list):
        return [_part(inner, left) for inner in value[:FIRST_ITEMS] if left[0] > 0]
    if isinstance(value, dict):
        return {name: _part(inner, left) for name, inner in islice(value.items(), FIRST_FIELDS) if left[0] > 0}
    return value


_NOWHERE: Any = object()


def _at(value: Any, path: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """Return the path with names as texts, and the value there. The validator makes a number of every name that could
    be one; _NOWHERE if that is not the name."""
    found: list[str | int] = []
    for step in path:
        if isinstance(value, list):
            found.append(step)
            value = value[int(step)]
        else:
            found.append(str(step))
            value = value.get(str(step), _NOWHERE) if isinstance(value, dict) else _NOWHERE
    return found, value


def _holds(error: Any, whole: Any) -> bool:
    """Whether an error in a part is one of the whole value, too."""
    if whole is _NOWHERE:
        return False
    if error.kind.name == "required":
        return error.kind.property not in whole
    return error.kind.name == "type" or bool(error.instance == whole)
