"""Walks from kind to kind on SQLite: their cost does not grow with the events of a kind.

Their plans say so even where it does: SQLite begins a comparison of several columns at the rows that equal them.
"""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from hookledger.store.sqlite.session import queries, query
from hookledger.store.text import migrations

LAST = "\U0010ffff"
WALKS: dict[str, tuple[str, Any]] = {
    "waiting": (queries()["waiting"], (10**16,)),
    "longest_due": (query("longest_due"), {"now": 10**16, "late": 60}),
    "kinds_between": (
        query("kinds_between"),
        {"source": "", "type": "", "last_source": LAST, "last_type": LAST, "limit": 100},
    ),
}


def steps(events: int, walk: str) -> int:
    """How many steps SQLite takes for the walk through so many events of each of two types, in two versions."""
    connection = apsw.Connection(":memory:")
    for _, _, sql in migrations("hookledger.store.sqlite"):
        connection.execute(sql)
    connection.execute(
        """WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT ?)
           INSERT INTO events (id, source, type, version, key, key_origin, fingerprint, request_id, item, received_at,
                               run_started_at, state, due_at, crashes)
           SELECT randomblob(16), 's', 't' || (n % 2), 'v' || (n / 2 % 2), 'k', 'signed_id', x'', x'', 0, n, n,
                  'pending', n, n / 4 % 2 * 2
           FROM n""",
        (4 * events,),
    )
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1
        return False

    connection.set_progress_handler(count, 1)
    found = connection.execute(*WALKS[walk]).fetchall()
    assert found
    return taken


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_costs_the_same_however_many_events_there_are(walk: str) -> None:
    assert steps(1000, walk) < 1.1 * steps(10, walk)
