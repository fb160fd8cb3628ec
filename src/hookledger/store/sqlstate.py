"""What PostgreSQL's error codes mean, whichever driver raises them."""

from __future__ import annotations

POOLER = ("26000", "42P05", "08P01")
"""A prepared statement is not there, is there already, or is another's: what a transaction pooler makes of them."""
SERIALIZATION = "40001"
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
