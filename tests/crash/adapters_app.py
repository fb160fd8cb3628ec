"""The application under test with its transactions in another library: the environment says in which.

At its first attempt a handler writes, asks for both kinds of effects, and kills its process before the outcome.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from hookledger import Event, Inbox, SyncEvent
from hookledger.contrib.psycopg import AsyncConnections, Connections
from hookledger.contrib.sqlalchemy import AsyncSessions, Sessions
from hookledger.effects.model import Op
from hookledger.store.protocol import Transactions
from tests.crash.app import SECRETS, WRITE

URL = os.environ["HOOKLEDGER_DATABASE"]
DIALECT = URL.replace("postgresql://", "postgresql+psycopg://")
LIBRARY = os.environ["LIBRARY"]
LIBRARIES: dict[str, Callable[[], Transactions]] = {
    "sqlalchemy-asyncpg": lambda: AsyncSessions(
        async_sessionmaker(create_async_engine(DIALECT.replace("+psycopg", "+asyncpg")))
    ),
    "sqlalchemy-psycopg": lambda: AsyncSessions(async_sessionmaker(create_async_engine(DIALECT))),
    "sqlalchemy-plain": lambda: Sessions(sessionmaker(create_engine(DIALECT))),
    "psycopg": lambda: AsyncConnections(AsyncConnectionPool(URL, open=False)),
    "psycopg-plain": lambda: Connections(ConnectionPool(URL, open=False)),
}

inbox = Inbox(transactions=LIBRARIES[LIBRARY]() if LIBRARY in LIBRARIES else ())
stripe = inbox.source("stripe", provider="stripe", secrets=[SECRETS["stripe"]])


@inbox.effect(repeat="safe")
async def note(op: Op) -> None:
    """Nothing but its row in the ledger is looked at."""


def killed(event: Event[Any] | SyncEvent[Any]) -> None:
    if event.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


async def handle(event: Event[Any]) -> None:
    row = (event.key, event.attempt, os.getpid())
    if isinstance(event.tx, AsyncSession):
        await event.tx.execute(text(_named(WRITE)), dict(zip("abc", row, strict=True)))
    elif isinstance(event.tx, psycopg.AsyncConnection):
        await event.tx.execute(_percent(WRITE), row)
    else:
        await event.tx.execute(WRITE, *row)
    assert await event.once("credit", event.key)
    await event.later(note, event.key)
    killed(event)


def handle_plain(event: SyncEvent[Any]) -> None:
    row = (event.key, event.attempt, os.getpid())
    if isinstance(event.tx, Session):
        event.tx.execute(text(_named(WRITE)), dict(zip("abc", row, strict=True)))
    elif isinstance(event.tx, psycopg.Connection):
        event.tx.execute(_percent(WRITE), row)
    else:
        event.tx.execute(WRITE, *row)
    assert event.once("credit", event.key)
    event.later(note, event.key)
    killed(event)


def _named(sql: str) -> str:
    return sql.replace("$1", ":a").replace("$2", ":b").replace("$3", ":c")


def _percent(sql: str) -> Any:
    return sql.replace("$1", "%s").replace("$2", "%s").replace("$3", "%s")


stripe.on("order")(handle_plain if LIBRARY.endswith("-plain") else handle)
