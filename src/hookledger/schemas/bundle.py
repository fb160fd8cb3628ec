"""One document from a schema's file and the files that it names: every `$ref` becomes a pointer inside it.

Nothing is fetched, and nothing is read that lies outside the folder. So the compiler never has to resolve a name, and
`bounds.py` sees all that a check may do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from ..errors import ConfigError, UnreadableError
from ..providers.tolerant import check_nesting

DRAFT = "https://json-schema.org/draft/2020-12/schema"
MAX_BYTES = 1024 * 1024
"""Of one file."""
MAX_FILES = 200
"""That one schema is made of."""
SHARED = "hookledger:files"
"""In `$defs`: the other files."""
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values are schemas by name."""
DATA = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas."""
NOT_SUPPORTED = {
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
    "$dynamicAnchor": "use $anchor, or a $ref to a place in $defs",
    "$recursiveAnchor": "use $anchor, or a $ref to a place in $defs",
}

Document = dict[str, Any] | bool


class Folder:
    """Reads the files of one folder, each once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._inside = root.resolve()
        self._read: dict[PurePosixPath, Document] = {}

    def read(self, path: PurePosixPath, named_in: str = "") -> Document:
        """Return a file's JSON; ConfigError names the file. `named_in`: the place that names it."""
        if path not in self._read:
            self._read[path] = self._decode(path, named_in)
        return self._read[path]

    def _decode(self, path: PurePosixPath, named_in: str) -> Document:
        file = self.root / path
        because = f"{named_in}: " if named_in else ""
        try:
            inside = file.resolve().is_relative_to(self._inside)
            raw = file.read_bytes() if inside else b""
        except (OSError, RuntimeError, ValueError) as error:  # a circle of links; a name with a null byte
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"{because}{file} cannot be read: {why}; check the $ref") from error
        if not inside:
            raise ConfigError(f"{because}{path} is outside {self.root}: a $ref stays inside the folder of schemas")
        if len(raw) > MAX_BYTES:
            raise ConfigError(f"{file} has more than {MAX_BYTES:,} bytes: no schema needs so many")
        try:
            check_nesting(raw)
            document = msgspec.json.decode(raw)
        except (UnreadableError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{file} is not JSON: {error}") from error
        if not isinstance(document, dict | bool):
            raise ConfigError(f"{file} is no schema: a schema is an object, true or false")
        return document


def bundle(folder: Folder, path: PurePosixPath) -> Document:
    """Return the schema of a file with the files that it names under `$defs`. ConfigError names file and place."""
    return _Bundle(folder, path).document()


class _Bundle:
    def __init__(self, folder: Folder, path: PurePosixPath) -> None:
        self._folder = folder
        self._places: dict[PurePosixPath, str] = {path: ""}
        """Where in the document each file stands."""
        self._waiting = [path]

    def document(self) -> Document:
        parts: dict[str, Document] = {}
        root = self._waiting[0]
        while self._waiting:
            path = self._waiting.pop()
            parts[self._places[path]] = self._written(path)
        whole = parts.pop("")
        if isinstance(whole, dict) and parts:
            names = {place.rpartition("/")[2]: part for place, part in parts.items()}
            defined = whole.get("$defs", {})
            if not isinstance(defined, dict):
                raise ConfigError(f"{self._folder.root / root} at /$defs: expected an object")
            whole = whole | {"$defs": {**defined, SHARED: names}}
        return whole

    def _written(self, path: PurePosixPath) -> Document:
        document = self._folder.read(path)
        if isinstance(document, bool):
            return document
        if str(document.get("$schema", DRAFT)).rstrip("#") != DRAFT:
            raise ConfigError(
                f"{self._folder.root / path} at /$schema: only JSON Schema 2020-12 is checked: write {DRAFT}"
            )
        if "$id" in document:  # names are places in the folder
            document = {key: value for key, value in document.items() if key != "$id"}
        written: Document = self._schema(document, path, document, "")
        return written

    def _schema(self, value: Any, path: PurePosixPath, document: Mapping[str, Any], place: str) -> Any:
        if isinstance(value, list):
            return [self._schema(one, path, document, f"{place}/{n}") for n, one in enumerate(value)]
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for key, inner in value.items():
            where = f"{place}/{key}"
            if key in NOT_SUPPORTED:
                raise ConfigError(f"{self._folder.root / path} at {where}: not supported: {NOT_SUPPORTED[key]}")
            if key == "$id":
                raise ConfigError(f"{self._folder.root / path} at {where}: remove it: files are named by their place")
            if key == "$ref" and isinstance(inner, str):
                found[key] = self._pointer(inner, path, document, where)
            elif key == "$anchor" or key in DATA:
                if key in DATA:
                    found[key] = inner
            elif key in MAPS and isinstance(inner, dict):
                found[key] = {
                    name: self._schema(one, path, document, f"{where}/{name}") for name, one in inner.items()
                }
            else:
                found[key] = self._schema(inner, path, document, where)
        return found

    def _pointer(self, reference: str, path: PurePosixPath, document: Mapping[str, Any], where: str) -> str:
        """Return the place in the whole document that a `$ref` means."""
        said = f"{self._folder.root / path} at {where}"
        name, _, fragment = reference.partition("#")
        name, fragment = unquote(name), unquote(fragment)
        if ":" in name.partition("/")[0] or name.startswith("//"):
            raise ConfigError(
                f"{said}: {reference!r} is remote, and nothing is fetched: copy it into {self._folder.root}"
            )
        target, base = path, document
        if name:
            target = _normal(path.parent / name) if not name.startswith("/") else _normal(PurePosixPath(name[1:]))
            if ".." in target.parts:
                raise ConfigError(f"{said}: {reference!r} is outside {self._folder.root}")
            read = self._folder.read(target, said)
            base = read if isinstance(read, dict) else {}
        if target not in self._places:
            if len(self._places) == MAX_FILES:
                raise ConfigError(f"{said}: the schema is made of more than {MAX_FILES} files")
            self._places[target] = f"/$defs/{SHARED}/{len(self._places)}"
            self._waiting.append(target)
        if fragment and not fragment.startswith("/"):
            fragment = _anchored(base, fragment, said)
        return "#" + quote(self._places[target] + fragment, safe="/~:$")  # the compiler decodes it again


def _normal(path: PurePosixPath) -> PurePosixPath:
    """Return the path without `.` and `..`, as far as that is possible."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


def _anchored(document: Mapping[str, Any], name: str, said: str) -> str:
    """Return the pointer of an anchor."""
    for place, value in _inside(document, ""):
        if value.get("$anchor") == name:
            return place
    raise ConfigError(f"{said}: there is no $anchor {name!r}")


def _inside(value: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, dict):
        yield place, value
        for key, inner in value.items():
            if key in MAPS and isinstance(inner, dict):  # a field may be named as a keyword is
                for name, schema in inner.items():
                    yield from _inside(schema, f"{place}/{key}/{name.replace('~', '~0').replace('/', '~1')}")
            elif key not in DATA:
                yield from _inside(inner, f"{place}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _inside(inner, f"{place}/{number}")


def names_in(document: Document) -> frozenset[str]:
    """Return the names of fields that a schema has, which are no values of events."""
    found: set[str] = set()
    for _, value in _inside(document, ""):
        for keyword in ("properties", "dependentSchemas", "dependentRequired"):
            if isinstance(named := value.get(keyword), dict):
                found.update(named)
        if isinstance(named := value.get("dependentRequired"), dict):
            found.update(name for names in named.values() if isinstance(names, list) for name in names)
        if isinstance(required := value.get("required"), list):
            found.update(name for name in required if isinstance(name, str))
    return frozenset(found)
