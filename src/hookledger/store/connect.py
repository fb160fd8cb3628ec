"""From a database URL to its store."""

from __future__ import annotations

from pathlib import Path

from ..clock import Clock
from ..errors import ConfigError
from .protocol import Store


def connect(
    url: str,
    *,
    clock: Clock,
    schema: str = "hookledger",
    pooler: bool = False,
    lease: float = 60.0,
    transaction_limit: float = 1.0,
) -> Store:
    """The store for a `postgresql://…` or `sqlite:///…` URL. Drivers are imported only when they are used."""
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        try:
            from .postgres.store import PostgresStore
        except ImportError as error:
            raise ConfigError("PostgreSQL needs asyncpg: pip install 'hookledger[postgres]'") from error
        return PostgresStore(url, schema=schema, clock=clock, pooler=pooler, idle_limit=lease)
    if scheme == "sqlite":
        path = rest.removeprefix("/")
        if not path or path == ":memory:":
            raise ConfigError("SQLite needs a file, so that receiver and worker see the same: sqlite:///inbox.db")
        try:
            from .sqlite.store import SqliteStore
        except ImportError as error:
            raise ConfigError("SQLite needs apsw: pip install 'hookledger[sqlite]'") from error
        return SqliteStore(Path(path), clock=clock, limit=transaction_limit)
    # Never the whole of it: it may hold a password.
    given = f"{scheme}://…" if rest else "something without ://"
    raise ConfigError(f"a database is postgresql://… or sqlite:///FILE, not {given}")
