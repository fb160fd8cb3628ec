"""PostgreSQL's tables, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ...errors import WrongState
from ..session import Session
from ..sqlstate import FORBIDDEN
from ..tables import FORBIDDEN_TOO, FORBIDS_WRITES, LOCAL, Table, Values, created, fitting, page, quoted, sizes
from .session import connection_of

COPY_TIMEOUT = 300.0
"""Seconds for the rows of one batch."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_COLUMNS = """
SELECT c.relname AS table_name, a.attname AS name, format_type(a.atttypid, NULL) AS kind,
       array_position(i.indkey::int2[], a.attnum) AS place
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r' ORDER BY c.oid, a.attnum
"""
_EACH = "FOR EACH STATEMENT EXECUTE FUNCTION {}()"
_FUNCTION = """
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.copies WHERE writing) THEN
        RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE =
            coalesce((SELECT message FROM {schema}.copies), 'this inbox is being moved to another database');
    END IF;
    RETURN NULL;
END $$
"""

# How a value is to be seen outside, and how it is given to the driver; other types are the same for both.
_OUT: dict[str, Callable[[Any], Any]] = {
    "uuid": lambda value: value.bytes,
    "timestamp with time zone": lambda value: (value - _EPOCH) // _MICROSECOND,
    "boolean": int,
}
_IN: dict[str, Callable[[Any], Any]] = {
    "uuid": lambda value: UUID(bytes=value),
    "timestamp with time zone": lambda value: _EPOCH + value * _MICROSECOND,
    "boolean": bool,
    "text": lambda value: value.replace("\0", "\ufffd"),  # which no text here can hold
    "character varying": lambda value: value.replace("\0", "\ufffd"),
}
KINDS = {*_OUT, *_IN, "bytea", "smallint", "integer", "bigint", "double precision"}
"""The types of columns that a copy knows."""


class PostgresTables:
    def __init__(self, schema: str) -> None:
        self._schema = schema

    def _place(self, name: str) -> str:
        return f"{quoted(self._schema)}.{quoted(name)}"

    async def describe(self, db: Session) -> list[Table]:
        found: dict[str, list[Any]] = {}
        for row in await connection_of(db).fetch(_COLUMNS, quoted(self._schema)):
            found.setdefault(row["table_name"], []).append(row)
        names = [name for name in created(__package__) if name in found and name not in LOCAL]
        return [_table(name, found[name]) for name in names]

    async def read(self, db: Session, table: Table, after: Values | None, rows: int, size: int) -> list[Values]:
        kinds = [table.columns[name] for name in table.key]
        given = [_IN[kind](value) if kind in _IN else value for kind, value in zip(kinds, after or (), strict=False)]

        async def ask(what: str, limit: int) -> list[Any]:
            sql = page(table, what, self._place(table.name), "$", first=after is None)
            found: list[Any] = await connection_of(db).fetch(sql, *given, limit)
            return found

        if long := sizes(table, "bytea"):
            rows = fitting([row[0] for row in await ask(long, rows)], size)
        found = await ask(", ".join(map(quoted, table.columns)), rows) if rows else []
        return _converted(table, found, _OUT)

    async def insert(self, db: Session, table: Table, rows: Sequence[Values]) -> None:
        await connection_of(db).copy_records_to_table(
            table.name,
            schema_name=self._schema,
            columns=list(table.columns),
            records=_converted(table, rows, _IN),
            timeout=COPY_TIMEOUT,
        )

    async def count(self, db: Session, table: Table) -> int:
        sql = f"SELECT count(*) FROM {self._place(table.name)}"  # noqa: S608 - of our own schema
        number: int = await connection_of(db).fetchval(sql, timeout=None)
        return number

    async def analyze(self, db: Session) -> None:
        for table in await self.describe(db):
            await connection_of(db).execute(f"ANALYZE {self._place(table.name)}", timeout=COPY_TIMEOUT)

    async def forbid(self, db: Session, message: str) -> None:
        del message  # the function reads it from `copies`
        connection, function = connection_of(db), self._place(FORBIDS_WRITES)
        schema = quoted(self._schema)
        await connection.execute(_FUNCTION.format(function=function, schema=schema, code=FORBIDDEN))
        names = [*(table.name for table in await self.describe(db)), *FORBIDDEN_TOO]
        # First what every arrival locks first: a transaction that holds it never waits for us.
        for table in sorted(names, key=lambda name: name != "identities"):
            sql = f"CREATE TRIGGER {FORBIDS_WRITES} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {{}} {_EACH}"
            try:
                await connection.execute(sql.format(self._place(table), function))
            except asyncpg.LockNotAvailableError as error:
                raise WrongState(
                    f"a transaction has written to {table} and is not over: stop workers first"
                ) from error

    async def say(self, db: Session, message: str) -> None:
        """Nothing: see `forbid`."""

    async def allow(self, db: Session) -> None:
        # And the triggers with it.
        await connection_of(db).execute(f"DROP FUNCTION {self._place(FORBIDS_WRITES)}() CASCADE")


def _table(name: str, columns: Sequence[Any]) -> Table:
    key = sorted((row["place"], row["name"]) for row in columns if row["place"] is not None)
    return Table(name, {row["name"]: row["kind"] for row in columns}, tuple(column for _, column in key))


def _converted(table: Table, rows: Sequence[Any], how: dict[str, Callable[[Any], Any]]) -> list[Values]:
    """The rows with each value but NULL converted by the type of its column."""
    converters = [(place, how[kind]) for place, kind in enumerate(table.columns.values()) if kind in how]
    found = []
    for row in rows:
        values = list(row)
        for place, convert in converters:
            if values[place] is not None:
                values[place] = convert(values[place])
        found.append(tuple(values))
    return found
