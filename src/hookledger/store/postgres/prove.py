"""Proves at start-up that transactions in the user's own library will do."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from asyncpg.pool import PoolConnectionProxy

from ...errors import ConfigError, HandlerCommitted, HookledgerError, Unavailable
from ...ids import new_id
from ...ledger import Intent
from ...states import EffectKind, Repeat
from ..protocol import Adapter, Transactions
from ..sqlstate import hint, sqlstate
from .transaction import PostgresTransaction

_NOT_ALLOWED_OR_NOT_THERE = ("42501", "3F000", "42P01", "42703", "25006")


async def prove(
    transactions: Transactions,
    begin: Callable[[Adapter], PostgresTransaction],
    sql: Callable[[str], str],
    connection: PoolConnectionProxy[Any],
) -> None:
    """Do once what a handler's transaction does, and undo it. `connection` is ours, in a separate transaction."""
    adapter = transactions.adapter()
    tx, lock, name = begin(adapter), secrets.randbits(62), type(transactions).__name__
    await connection.fetchval(sql("hold"), lock)
    try:
        await tx.begin()
        [(elsewhere,)] = await adapter.run(sql("hold"), [lock])
        if not elsewhere:
            await tx.once(_intent(EffectKind.ONCE))
            await tx.plan(_intent(EffectKind.LATER))
            async with tx.turn:
                await tx.settle([])
    except HandlerCommitted:
        raise ConfigError(f"{name} commits each statement: it is in autocommit mode; turn that off") from None
    except HookledgerError:
        raise
    except Exception as error:
        if sqlstate(error) in _NOT_ALLOWED_OR_NOT_THERE:
            raise ConfigError(f"{name} cannot write Hookledger's tables: {error}") from error
        raise Unavailable(f"{name}: {hint(error) or error or type(error).__name__}") from error
    finally:
        await tx.rollback()
    if elsewhere:
        raise ConfigError(f"{name} reaches another database than the inbox's own: they could not commit together")


def _intent(kind: EffectKind) -> Intent:
    return Intent(
        identity=secrets.token_bytes(32),
        kind=kind,
        source="",
        name="hookledger.check",
        key="check",
        event_id=new_id(),
        claim=0,
        repeat=Repeat.SAFE,
        lane=secrets.token_hex(8),
    )
