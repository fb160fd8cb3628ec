"""What PostgreSQL's error codes mean, whichever driver raises them."""

from __future__ import annotations

POOLER = ("26000", "42P05", "08P01")
"""A prepared statement is not there, is there already, or is another's: what a transaction pooler makes of them."""
SERIALIZATION = "40001"
CONTENTION = ("40P01", SERIALIZATION, "55P03")
"""A deadlock, a serialization failure, a lock that was not had in time: other transactions were in the way."""
SQLITE_BUSY = "BusyError"
ABORTED = "25P02"
"""A statement after one that failed in the same transaction."""
FORBIDDEN = "55000"
"""An object is not in the state that this needs: the code of a write that a copy forbids."""
DATA_ERRORS = ("22", "23", "54")
"""Classes of codes that say that a value cannot be kept."""


def sqlstate(error: BaseException) -> str:
    """Of an error of any driver, as it is or wrapped; empty where there is none."""
    for link in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(link, "sqlstate", None)
        if isinstance(code, str):
            return code
    return ""


def is_contention(error: BaseException) -> bool:
    """Whether other transactions were in the way, and not the code: of a statement, or of one before it that the code
    ran on after. Of a group, if one of its exceptions is. On SQLite: the write lock was not had in time."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_contention, error.exceptions))
    if SQLITE_BUSY in (type(error).__name__, type(error.__cause__).__name__):
        return True
    before = error.__cause__ or error.__context__ if sqlstate(error) == ABORTED else None
    return sqlstate(error) in CONTENTION or (before is not None and is_contention(before))


def hint(error: BaseException) -> str | None:
    """Which setting to look at, for errors that a setting causes."""
    code = sqlstate(error)
    if code == SERIALIZATION:
        return "handlers' transactions must be READ COMMITTED, or their outcome cannot be written"
    if code not in POOLER:
        return None
    if type(error).__module__.startswith("psycopg") or "_pg3_" in str(error):
        return "behind a transaction pooler connect psycopg with prepare_threshold=None"
    if type(error).__module__.startswith("sqlalchemy"):
        return (
            "behind a transaction pooler give create_async_engine connect_args with statement_cache_size=0 and a "
            "prepared_statement_name_func of unique names"
        )
    return "behind a transaction pooler set pooler = true in hookledger.toml"
