"""Reads named queries from a `.sql` file: `-- name: claim`, a line of intent, the statement."""

from __future__ import annotations

import re
from importlib.resources import files


def load(package: str, name: str = "queries.sql", **given: str) -> dict[str, str]:
    """Every named query of one file, in order. Where {columns} stands in one, `columns` from above or as `given` goes
    in."""
    text = files(package).joinpath(name).read_text()
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{package}/{name}: a query name stands twice")
    found: dict[str, str] = dict(given)
    for title, body in zip(names, bodies, strict=True):
        found[title] = re.sub(r"{(\w+)}", lambda m: found.get(m[1], m[0]), statement(body))
    return found


def statement(body: str) -> str:
    """The query without the lines of intent above it."""
    lines = body.strip().splitlines()
    while lines and lines[0].startswith("--"):
        del lines[0]
    return "\n".join(lines).strip()


def migrations(package: str) -> list[tuple[int, str, str]]:
    """(version, name, SQL) of every migration of one store, in order."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            found.append((int(match[1]), match[2], entry.read_text()))
    return sorted(found)
