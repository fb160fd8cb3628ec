"""SQLite's tables, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from ..session import Session
from ..tables import FORBIDDEN_TOO, FORBIDS_WRITES, LOCAL, Table, Values, created, fitting, page, quoted, sizes
from .connection import rows as ask
from .session import connection_of

# The message is a literal: SQLite before 3.47 cannot open a file whose schema has an expression there.
_FORBID = "WHEN NOT EXISTS (SELECT 1 FROM copies WHERE writing) BEGIN SELECT RAISE(ABORT, {}); END"


class SqliteTables:
    async def describe(self, db: Session) -> list[Table]:
        connection = connection_of(db)
        found = (_table(connection, name) for name in created(__package__) if name not in LOCAL)
        return [table for table in found if table.columns]

    async def read(self, db: Session, table: Table, after: Values | None, rows: int, size: int) -> list[Values]:
        connection, given = connection_of(db), after or ()

        def asked(what: str, limit: int) -> list[Values]:
            sql = page(table, what, quoted(table.name), "?", first=after is None)
            return [tuple(row) for row in connection.execute(sql, (*given, limit))]

        if long := sizes(table, "BLOB"):
            rows = fitting([row[0] for row in asked(long, rows)], size)
        return asked(", ".join(map(quoted, table.columns)), rows) if rows else []

    async def insert(self, db: Session, table: Table, rows: Sequence[Values]) -> None:
        names, values = ", ".join(map(quoted, table.columns)), ", ".join("?" * len(table.columns))
        sql = f"INSERT INTO {quoted(table.name)} ({names}) VALUES ({values})"  # noqa: S608 - of our own schema
        connection_of(db).executemany(sql, rows)

    async def count(self, db: Session, table: Table) -> int:
        sql = f"SELECT count(*) FROM {quoted(table.name)}"  # noqa: S608 - of our own schema
        number: int = connection_of(db).execute(sql).get
        return number

    async def analyze(self, db: Session) -> None:
        """Nothing: queries name their indexes."""

    async def forbid(self, db: Session, message: str) -> None:
        connection, forbid = connection_of(db), _FORBID.format("'" + message.replace("'", "''") + "'")
        for table in (*(table.name for table in await self.describe(db)), *FORBIDDEN_TOO):
            for verb in ("INSERT", "UPDATE", "DELETE"):
                name = quoted(f"{FORBIDS_WRITES}_{verb.lower()}_{table}")
                connection.execute(f"CREATE TRIGGER {name} BEFORE {verb} ON {quoted(table)} {forbid}")

    async def say(self, db: Session, message: str) -> None:
        await self.allow(db)
        await self.forbid(db, message)

    async def allow(self, db: Session) -> None:
        connection = connection_of(db)
        sql = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB ?"
        for (name,) in ask(connection, sql, (f"{FORBIDS_WRITES}_*",)):
            connection.execute(f"DROP TRIGGER {quoted(name)}")


def _table(connection: apsw.Connection, name: str) -> Table:
    """Without columns if no table has this name."""
    found = ask(connection, "SELECT name, type, pk FROM pragma_table_info(?)", (name,))
    key = sorted((place, column) for column, _, place in found if place)
    return Table(name, {column: kind for column, kind, _ in found}, tuple(column for _, column in key))
