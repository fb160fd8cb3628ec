"""Which failures mean only that other transactions were in the way, and what a handler with guards makes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import apsw
import asyncpg
import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from hookledger import GuardBusy, Permanent, Retry
from hookledger.errors import Unavailable
from hookledger.model import Claimed
from hookledger.states import KeyOrigin
from hookledger.store.sqlstate import is_contention
from hookledger.work.outcome import CONTENTION_DELAY, CONTENTION_MAX, contended
from tests.builders import KIND

CODES = ["40P01", "40001", "55P03"]


def drivers(code: str) -> list[BaseException]:
    """The same code, as each library raises it."""
    asyncpgs = asyncpg.PostgresError.new({"C": code, "M": "in the way"})
    psycopgs = psycopg.errors.lookup(code)("in the way")
    return [asyncpgs, psycopgs, DBAPIError("SELECT 1", None, psycopgs)]


@pytest.mark.parametrize("code", CODES)
def test_by_code(code: str) -> None:
    assert all(map(is_contention, drivers(code)))
    for error in drivers(code):
        assert is_contention(BaseExceptionGroup("several", [ValueError(), BaseExceptionGroup("more", [error])]))


@pytest.mark.parametrize("code", ["23505", "57014", "08006", "25P02", "42P01"])
def test_other_codes_are_not(code: str) -> None:
    assert not any(map(is_contention, drivers(code)))


def raised(error: BaseException, cause: BaseException | None, context: BaseException | None) -> BaseException:
    error.__cause__, error.__context__ = cause, context
    return error


def test_what_follows_from_it() -> None:
    deadlock, *_ = drivers("40P01")
    aborted, *_ = drivers("25P02")
    assert is_contention(raised(ValueError("wrapped"), deadlock, deadlock))
    assert is_contention(raised(aborted, None, deadlock)), "a statement after it, in the same transaction"
    assert not is_contention(raised(ValueError("another matter"), None, deadlock)), "while it was handled"


def test_the_write_lock_of_sqlite(tmp_path: Path) -> None:
    one, two = (apsw.Connection(str(tmp_path / "file.db")) for _ in range(2))
    one.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.BusyError) as busy:
        two.execute("BEGIN IMMEDIATE")
    assert is_contention(busy.value)
    assert is_contention(raised(Unavailable("SQLite: busy"), busy.value, None))
    assert not is_contention(Unavailable("SQLite: the disk is full"))


def claimed(snoozes: int) -> Claimed:
    at = datetime(2027, 1, 31, tzinfo=UTC)
    facts = (None, None, None, at, 1, 1, snoozes, 0, 0.0, 0, b"", b"", b"")
    return Claimed(UUID(int=1), 1, KIND.source, KIND.type, "evt_1", KeyOrigin.SIGNED_ID, *facts)


def test_it_waits_longer_each_time() -> None:
    deadlock, *_ = drivers("40P01")
    first, longest = CONTENTION_DELAY, CONTENTION_MAX
    for snoozes, most in ((0, first), (3, first * 8), (50, longest), (10**6, longest)):
        waits = [contended(claimed(snoozes), deadlock) for _ in range(20)]
        delays = {wait.after for wait in waits if isinstance(wait, GuardBusy)}
        assert len(delays) > 1, "and never all at the same moment"
        assert all(most / 2 <= delay <= most for delay in delays)


@pytest.mark.parametrize("decided", [Retry("later"), Permanent("never")])
def test_what_the_handler_decides_stays(decided: Exception) -> None:
    deadlock, *_ = drivers("40P01")
    assert contended(claimed(0), raised(decided, deadlock, deadlock)) is decided
    failure = ValueError()
    assert contended(claimed(0), failure) is failure
