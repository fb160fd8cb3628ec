"""Holds the sender's log against the database, with drivers and SQL of its own."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import asyncpg

from hookledger.clock import Clock
from hookledger.store.connect import connect
from hookledger.store.ops.consistency import ConsistencyReport

UNFINISHED = ("pending", "processing", "retrying")

Row = dict[str, Any]


class Database:
    """Reads over a new connection each time, so that it survives whatever happens to the database in between."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._sqlite = url.startswith("sqlite:///")
        self._prefix = "" if self._sqlite else "hookledger."

    def rows(self, sql: str) -> list[Row]:
        """`{h}` in the SQL stands for where Hookledger's own tables are."""
        sql = sql.replace("{h}", self._prefix)
        return self._from_sqlite(sql) if self._sqlite else asyncio.run(self._from_postgres(sql))

    def _from_sqlite(self, sql: str) -> list[Row]:
        connection = apsw.Connection(self.url.removeprefix("sqlite:///"))
        try:
            connection.set_busy_timeout(20_000)
            cursor = connection.execute(sql)
            try:
                names = [column[0] for column in cursor.get_description()]
            except apsw.ExecutionCompleteError:
                return []
            found = [dict(zip(names, row, strict=True)) for row in cursor]
        finally:
            connection.close()
        for row in found:
            for name, value in row.items():
                if name in ("id", "event_id", "request_id") and isinstance(value, bytes):
                    row[name] = UUID(bytes=value)
        return found

    async def _from_postgres(self, sql: str) -> list[Row]:
        connection = await asyncpg.connect(self.url, timeout=60)
        try:
            return [dict(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    # ── what the tests look at ──

    def states(self) -> Counter[str]:
        rows = self.rows("SELECT state, count(*) AS n FROM {h}events GROUP BY state")
        return Counter({row["state"]: row["n"] for row in rows})

    def unfinished(self) -> int:
        states = self.states()
        return sum(states[state] for state in UNFINISHED)

    def event(self, key: str) -> Row:
        [found] = [row for row in self.rows("SELECT * FROM {h}events") if row["key"] == key]
        return found

    def events(self) -> dict[str, Row]:
        rows = self.rows("SELECT * FROM {h}events")
        found = {row["key"]: row for row in rows}
        assert len(found) == len(rows), "two events have the same key"
        return found

    def effects(self) -> list[Row]:
        return self.rows("SELECT * FROM written ORDER BY event_key, attempt, pid")

    def attempts(self) -> list[Row]:
        return self.rows("SELECT * FROM {h}attempts ORDER BY event_id, claim")

    def outcomes(self, key: str | None = None) -> Counter[str]:
        """How many attempts ended how, of all events or of one."""
        ident = None if key is None else self.event(key)["id"]
        return Counter(a["outcome"] for a in self.attempts() if ident in (None, a["event_id"]))


class Log:
    """Every answer that the sender got, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._answers: list[Row] = []

    def answers(self) -> list[Row]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]  # the sender may be in the middle of a line
            self._read += len(whole)
            self._answers += map(json.loads, whole.splitlines())
        return self._answers

    def acked(self) -> Counter[str]:
        """The events with a 2xx, and how many of them."""
        return Counter(a["id"] for a in self.answers() if 200 <= a["status"] < 300)

    def acked_more_than(self, count: int) -> bool:
        return len(self.acked()) > count

    def statuses(self) -> Counter[int]:
        return Counter(a["status"] for a in self.answers())


def check(database: Database, logs: Iterable[Log]) -> None:
    """Call it when nothing is left to do: nothing acked is missing, nothing happened twice, the books balance."""
    events = database.events()
    acked: Counter[str] = Counter()
    for log in logs:
        acked += log.acked()
    missing = acked.keys() - events.keys()
    assert not missing, f"acked and lost: {sorted(missing)[:10]} of {len(missing)}"

    unfinished = {key: row["state"] for key, row in events.items() if row["state"] in UNFINISHED}
    assert not unfinished, f"not in a final state: {dict(list(unfinished.items())[:10])}"

    check_deliveries(database, events, acked)
    check_effects(database, events)
    check_attempts(database, events)
    check_books(database)


def check_books(database: Database) -> None:
    """What the inbox says of itself must be what was found here by other means."""

    async def ask() -> ConsistencyReport:
        store = connect(database.url, clock=Clock())
        await store.open()
        try:
            return await store.consistency.report()
        finally:
            await store.close()

    books = asyncio.run(ask())
    assert not books.imbalances, f"the books are off: {books.imbalances}"
    assert books.events == database.states()
    assert books.made + books.from_quarantine == books.kept


def check_deliveries(database: Database, events: dict[str, Row], acked: Counter[str]) -> None:
    deliveries = database.rows("SELECT * FROM {h}deliveries")
    keys = {row["id"]: key for key, row in events.items()}
    astray = [d for d in deliveries if d["event_id"] not in keys]
    assert not astray, f"deliveries of no event: {astray[:3]}"
    accepted = Counter(keys[d["event_id"]] for d in deliveries if d["outcome"] == "accepted")
    assert accepted == Counter(dict.fromkeys(events, 1)), "not exactly one accepted delivery for each event"
    arrived = Counter(keys[d["event_id"]] for d in deliveries)
    short = {key: (n, arrived[key]) for key, n in acked.items() if arrived[key] < n}
    assert not short, f"more acks than deliveries on record: {short}"
    others = {d["outcome"] for d in deliveries} - {"accepted", "duplicate"}
    assert not others, f"deliveries were taken for {others}"


def check_effects(database: Database, events: dict[str, Row]) -> None:
    effects = Counter(row["event_key"] for row in database.effects())
    processed = Counter({key: 1 for key, row in events.items() if row["state"] == "processed"})
    assert effects - processed == Counter(), "effects that should not be there"
    assert processed - effects == Counter(), "processed without its effect"


def check_attempts(database: Database, events: dict[str, Row]) -> None:
    by_event: dict[UUID, list[Row]] = {row["id"]: [] for row in events.values()}
    for attempt in database.attempts():
        assert attempt["event_id"] in by_event, "an attempt at no event"
        by_event[attempt["event_id"]].append(attempt)
    for key, row in events.items():
        done = [a for a in by_event[row["id"]] if a["outcome"] == "processed"]
        expected = [row["claim"] - 1] if row["state"] == "processed" else []
        assert [a["claim"] for a in done] == expected, f"{key}: {row}, attempts {by_event[row['id']]}"
        spent = [a for a in by_event[row["id"]] if a["outcome"] != "waiting"]
        assert row["attempts"] == len(spent), f"{key}: attempts counted {row['attempts']}, on record {spent}"
