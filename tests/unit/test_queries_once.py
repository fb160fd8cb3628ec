"""Queries that stand once for each database may only become fewer."""

from pathlib import Path

STORE = Path(__file__).parents[2] / "src/hookledger/store"
MOST = 91
"""How many are left; lower it with each operation that moves to store/ops/. Eight are for guards, asked in the
handler's transaction."""


def test_queries_for_one_database_only_become_fewer() -> None:
    files = [path for dialect in ("postgres", "sqlite") for path in (STORE / dialect).glob("*.sql")]
    assert sum(path.read_text().count("\n-- name: ") for path in files) <= MOST
