"""A piece of the consistency check reads no table whole: looked up in the planners' own words, at 100,000 events."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import apsw
import apsw.ext
import pytest

from hookledger.ids import new_id
from hookledger.store.ops.rules import WALKS, about_keys, page
from hookledger.store.postgres.session import Queries, numbered, values_of
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.session import Session
from hookledger.store.sqlite.session import query
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import Raw
from tests.contract.test_plans import FILL_POSTGRES, FILL_SQLITE, nodes

pytestmark = pytest.mark.without_statistics

SMALL = {"entity_changes"}
"""Has what workers have not looked at yet."""


class Pieces:
    """As much of a session as composing a query needs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def piece(self, name: str) -> str:
        if isinstance(self._store, SqliteStore):
            return query(name)
        assert isinstance(self._store, PostgresStore)
        return Queries(self._store._schema, self._store._clock, self._store.sql)(name)


def texts(store: Store) -> dict[str, str]:
    db = cast(Session, Pieces(store))
    found = {rule: about_keys(db, rule) for walk in WALKS.values() if not walk.wide for rule in walk.rules}
    for name in ("next_keys", "last_key"):
        found |= {f"{name} of {walk.table}": page(db, walk, name) for walk in WALKS.values()}
    return found


def parameters(name: str, rule: str) -> Any:
    walk = next((w for w in WALKS.values() if rule in w.rules or rule.endswith(f" of {w.table}")), None)
    assert walk is not None
    makes: dict[str, Any] = {"uuid": new_id(), "bytea": b"\x77" * 32, "integer": 1, "bigint": 1}
    key = tuple(makes[kind] for kind in walk.key.values())
    if name == "keys":
        return [key] * 500
    if name in ("most", "skip"):
        return 500
    return key[int(name[-1])]


async def test_no_piece_scans(store: Store, raw: Raw) -> None:
    for statement in FILL_SQLITE if isinstance(store, SqliteStore) else FILL_POSTGRES:
        await raw.run(statement)
    bad = await (_scans_sqlite if isinstance(store, SqliteStore) else _scans_postgres)(store)  # type: ignore[arg-type]
    assert not bad, "\n".join(bad)


async def _scans_sqlite(store: SqliteStore) -> list[str]:
    def job(connection: apsw.Connection) -> list[str]:
        bad = []
        for rule, text in texts(store).items():
            args = [None] * apsw.ext.query_info(connection, text).bindings_count
            plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {text}", args)]
            if rule.startswith("last_key") and not any("TEMP B-TREE" in detail for detail in plan):
                continue  # begins at the end of the primary key
            scanned = [re.match(r"SCAN (\w+)", detail) for detail in plan]
            bad += [f"{rule}: {one[0]}" for one in scanned if one and one[1] not in ("json_each", "k", "c")]
        return bad

    return await store._do(job)


async def _scans_postgres(store: PostgresStore) -> list[str]:
    bad = []
    async with store._use() as connection:
        for rule, text in texts(store).items():
            sql, names = numbered(text)
            given = {name.partition("__")[0]: None for name in names}
            args = values_of(names, {name: parameters(name, rule) for name in given})
            statement = await connection.prepare(sql)
            [custom] = await statement.explain(*args)
            bad += [f"{rule}: {line}" for line in _whole(custom["Plan"])]
            nothing = ", ".join("NULL" for _ in statement.get_parameters())
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            await connection.execute(f"PREPARE checked AS {sql}")
            run = f"checked({nothing})" if nothing else "checked"
            [generic] = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {run}"))
            bad += [f"{rule} (generic): {line}" for line in _whole(generic["Plan"])]
            await connection.execute("DEALLOCATE checked; RESET plan_cache_mode")
    return bad


def _whole(plan: dict[str, Any]) -> list[str]:
    found = [node for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    return [f"{node['Node Type']} on {node['Relation Name']}" for node in found if _large(node)]


def _large(node: dict[str, Any]) -> bool:
    return node["Relation Name"] not in SMALL | {"pruned"}  # `pruned` is empty here
