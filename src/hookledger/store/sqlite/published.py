"""Published keys on SQLite."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from ..published import PublishedKey
from ..queries import load
from .connection import Run, rows
from .intake import micros

SQL = load(__package__, "published.sql")


class SqlitePublishedKeys:
    def __init__(self, read: Run, write: Run, now: Callable[[], int]) -> None:
        self._read = read
        self._write = write
        self._now = now

    async def keep(self, key: PublishedKey, *, most: int) -> None:
        def job(connection: apsw.Connection) -> None:
            fetched_at = self._now() - micros(key.age)
            values = (key.digest, key.provider, key.url, key.content, key.lifetime, fetched_at)
            connection.execute(SQL["keep"], values)
            connection.execute(SQL["trim"], (key.provider, most))

        await self._write(job)

    async def kept(self) -> list[PublishedKey]:
        def job(connection: apsw.Connection) -> list[PublishedKey]:
            return [PublishedKey(*row) for row in rows(connection, SQL["kept"], (self._now(),))]

        return await self._read(job)
