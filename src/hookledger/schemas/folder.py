"""The folder of schemas: `SOURCE/TYPE/VERSION.json`, and `SOURCE/TYPE/default.json` for every other version.

A type or version is written as in a URL: all but letters, digits, `.`, `_` and `-` as `%XX`, so that the type
`orders/create` is the folder `orders%2Fcreate`.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

from ..errors import ConfigError
from .bundle import Folder
from .compiled import Schema, load_schema
from .settings import SchemaSettings

log: logging.Logger = logging.getLogger(__name__)

DEFAULT = "default"
SUFFIX = ".json"
MAX_SCHEMAS = 10_000

Versions = Mapping[str, Schema]


class Schemas:
    """Compiled schemas by source, type and version."""

    def __init__(self, found: Mapping[tuple[str, str], Versions] | None = None) -> None:
        self._found = dict(found or {})

    def __bool__(self) -> bool:
        return bool(self._found)

    def find(self, source: str, type: str, version: str | None = None) -> Schema | None:  # noqa: A002 - the model's
        """Return the schema of exactly this version, else the default one of the type; None if there is none."""
        versions = self._found.get((source, type))
        if versions is None:
            return None
        return versions.get(DEFAULT if version is None else version) or versions.get(DEFAULT)

    def of(self, source: str) -> Schemas:
        """Return those of one source."""
        return Schemas({kind: versions for kind, versions in self._found.items() if kind[0] == source})

    @property
    def names(self) -> list[str]:
        return sorted(schema.name for versions in self._found.values() for schema in versions.values())


def escaped(name: str) -> str:
    """Return a type or version as the name of a folder or file."""
    written = quote(name, safe="", errors="replace").replace("~", "%7E")
    return written.replace(".", "%2E") if set(name) <= {"."} else written


def path_of(source: str, type: str, version: str | None = None) -> PurePosixPath:  # noqa: A002 - the model's
    """Return where in the folder a schema is."""
    return PurePosixPath(source, escaped(type), escaped(DEFAULT if version is None else version) + SUFFIX)


def load(settings: SchemaSettings, sources: Iterable[str], versioned: Container[str] | None = None) -> Schemas:
    """Compile the schemas of these sources. ConfigError names file and place. `versioned`: the sources whose events
    have versions; None: all."""
    root = Path(settings.path)
    if not root.is_dir():
        if settings.path != SchemaSettings().path or root.exists():
            raise ConfigError(f"[schemas] path: {settings.path} is no folder: create it, or correct the path")
        return Schemas()
    sources = list(sources)
    for other in sorted(path.name for path in root.iterdir() if path.is_dir() and path.name not in sources):
        if close := get_close_matches(other, sources, n=1, cutoff=0.8):
            log.warning("%s is not used: no source has this name; did you mean %s?", root / other, close[0])
    folder, found = Folder(root), dict[tuple[str, str], dict[str, Schema]]()
    count = 0
    for source in sources:
        if not (root / source).is_dir():
            continue
        for kind in sorted((root / source).iterdir()):
            if not kind.is_dir():
                if kind.suffix != SUFFIX or kind.name.startswith("."):  # such as .DS_Store, or a Python package's
                    continue
                raise ConfigError(
                    f"{kind}: a schema is SOURCE/TYPE/VERSION{SUFFIX}: write {root / source / 'TYPE'}/default.json"
                )
            for file in sorted(kind.iterdir()):
                if file.suffix != SUFFIX:
                    continue
                if (count := count + 1) > MAX_SCHEMAS:
                    raise ConfigError(f"{root} has more than {MAX_SCHEMAS:,} schemas")
                name, version = _unescaped(kind, kind.name), _version(file)
                _warn_of_version(file, version, source, versioned)
                schema = load_schema(folder, PurePosixPath(source, kind.name, file.name))
                found.setdefault((source, name), {})[version] = schema
    return Schemas(found)


def _warn_of_version(file: Path, version: str, source: str, versioned: Container[str] | None) -> None:
    if version != DEFAULT and versioned is not None and source not in versioned:
        log.warning(
            "%s checks no new event: source %r reads no versions; set its option version, or name the file default%s",
            *(file, source, SUFFIX),
        )


def _version(file: Path) -> str:
    if "*" in unquote(file.stem):
        raise ConfigError(f"{file}: a schema is of one version: name it, or write default{SUFFIX} for all others")
    return _unescaped(file, file.stem)


def _unescaped(path: Path, name: str) -> str:
    plain = unquote(name, errors="replace")
    if escaped(plain) != name:
        raise ConfigError(f"{path}: the name must be written as {escaped(plain)!r}: rename it")
    return plain
