"""Every table of ours, whatever its columns are: what a copy needs of a database.

Rows travel as tuples of None, int, float, str and bytes, which is how SQLite keeps them: ids as bytes, times as
microseconds, booleans as 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from .session import Session
from .text import migrations

Values = tuple[Any, ...]

FORBIDDEN_TOO = (
    "consistency_checks",
    "consistency_violations",
    "migrations",
    "probe",
    "rate_writers",
    "schema_support",
    "workers",
)
"""Tables about the database itself and the processes that use it, which are not copied: a check of one database
proves nothing about another."""
LOCAL = ("copies", *FORBIDDEN_TOO)
"""The same with the table that says whether writes are forbidden."""
FORBIDS_WRITES = "forbids_writes"
"""Begins the names of the triggers that do, and names the function behind them."""
_CREATED = re.compile(r"^CREATE TABLE (?:\{schema\}\.)?(\w+)", re.MULTILINE)


class Table(NamedTuple):
    name: str
    columns: dict[str, str]
    """The type of each, as the database names it, in their order."""
    key: tuple[str, ...]

    def key_of(self, row: Values) -> Values:
        """The primary key of a row."""
        names = list(self.columns)
        return tuple(row[names.index(column)] for column in self.key)


class Tables(Protocol):
    """The tables of one database. Each method is a part of an operation, in its transaction."""

    async def describe(self, db: Session) -> list[Table]:
        """Those that are copied, in the order in which migrations create them."""

    async def read(self, db: Session, table: Table, after: Values | None, rows: int, size: int) -> list[Values]:
        """The rows with a key after this one, in the order of keys: at most so many, and so many bytes unless the
        first alone has more."""

    async def insert(self, db: Session, table: Table, rows: Sequence[Values]) -> None: ...

    async def count(self, db: Session, table: Table) -> int: ...

    async def analyze(self, db: Session) -> None:
        """Count what queries are planned by, where the database does not do so in the next minute anyway."""

    async def forbid(self, db: Session, message: str) -> None:
        """Let every write to a table of ours fail with this message, which `copies` has too, in every process, from
        the commit of this transaction on. Waits for transactions that have written."""

    async def say(self, db: Session, message: str) -> None:
        """Change the message."""

    async def allow(self, db: Session) -> None:
        """End that."""


def created(package: str) -> list[str]:
    """The tables that a store's migrations create: others in the same database are the application's."""
    found = [name for _, _, text in migrations(package) for name in _CREATED.findall(text)]
    return list(dict.fromkeys(found))


def page(table: Table, what: str, place: str, mark: str, *, first: bool) -> str:
    """The SELECT of the rows after a key, `place` being the table's whole name; the limit is the last parameter."""
    key = ", ".join(map(quoted, table.key))
    after = ", ".join(f"{mark}{number + 1}" for number in range(len(table.key)))
    where = "" if first else f"WHERE ({key}) > ({after})"
    limit = f"{mark}{1 if first else len(table.key) + 1}"
    return f"SELECT {what} FROM {place} {where} ORDER BY {key} LIMIT {limit}"  # noqa: S608 - of our own schema


def sizes(table: Table, kind: str) -> str | None:
    """The bytes of a row that may be many, as an expression: of its columns of this type."""
    long = [name for name, type_ in table.columns.items() if type_ == kind and name not in table.key]
    return " + ".join(f"coalesce(octet_length({quoted(name)}), 0)" for name in long) or None


def fitting(found: Sequence[int], size: int) -> int:
    """How many of these rows, by their bytes; one at least."""
    total = 0
    for number, row in enumerate(found):
        total += row
        if total > size:
            return max(1, number)
    return len(found)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
