"""No search reads a table: each filter goes along the index meant for it, at 100,000 events, be it rare or not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw

from hookledger.filters import EffectFilter, Filter
from hookledger.states import EffectState, State
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.search import Searching
from hookledger.store.sqlite.store import SqliteStore
from hookledger.store.trouble import Looking, Trouble
from tests.builders import Raw
from tests.contract.test_plans import FILL_POSTGRES, FILL_SQLITE, ROWS, TABLES, nodes

MORE = [
    "UPDATE events SET key_origin = 'composite' WHERE key LIKE 'k%3'",
    "UPDATE events SET object_id = 'o' || substr(key, 2) WHERE key LIKE 'k%5'",
    """UPDATE events SET state = 'failed', reason = 'r', cause = 'c' || substr(key, 4, 1), first_processed_at = NULL
       WHERE state = 'processed' AND key LIKE 'k%1'""",
    "UPDATE events SET attention = {true} WHERE key LIKE 'k%77'",
    "UPDATE events SET source = 'rare', type = 'rare' WHERE key LIKE 'k%999'",
]
THEN = datetime(2023, 11, 15, tzinfo=UTC)

ADMITTED = {"events_admitted", "events_admitted_ids", "events_admitted_keys"}
"""Each holds the admitted events alone, which are few and read whole: to PostgreSQL one is as good as the other."""

# What is asked for, and the indexes of `events` that may be used for it besides the primary key.
FILTERS: dict[str, tuple[Filter, set[str]]] = {
    "nothing": (Filter(), set()),
    "source": (Filter(source="s1"), {"events_of_kind"}),
    "a rare source": (Filter(source="rare"), {"events_of_kind"}),
    "type": (Filter(type="t1"), {"events_of_kind"}),
    "a rare type": (Filter(type="rare"), {"events_of_kind"}),
    "the beginning of a type": (Filter(type="r*"), {"events_of_kind"}),
    "source and type": (Filter(source="s1", type="t1"), {"events_of_kind"}),
    "failed": (Filter(states=(State.FAILED,)), {"events_in_state"}),
    "trouble": (Filter(states=(State.FAILED, State.NEEDS_REVIEW, State.RETRYING)), {"events_in_state"}),
    "failed of a source": (Filter(source="s1", states=(State.FAILED,)), {"events_in_state"}),
    "processed": (Filter(states=(State.PROCESSED,)), set()),
    "pending": (Filter(states=(State.PENDING,)), {"events_waiting", "events_waiting_alone"}),
    "processing": (Filter(states=(State.PROCESSING,)), {"events_leased"}),
    "key": (Filter(key="k17", source="s1"), {"events_of_key"}),
    "object": (Filter(object_id="o17"), {"events_of_object"}),
    "account": (Filter(account="acct_17"), {"events_of_account"}),
    "effect": (Filter(effect="e1:k17", source="s1"), set()),
    "any effect of a name": (Filter(effect="e1"), set()),
    "cause": (Filter(cause="c1"), {"events_by_cause"}),
    "attention": (Filter(attention=True), {"events_marked", "events_in_state"}),
    "since": (Filter(since=THEN), set()),
    "until": (Filter(until=THEN), ADMITTED),
    "a source and a time": (
        Filter(source="s1", since=THEN, until=THEN + timedelta(hours=1)),
        {"events_of_kind", *ADMITTED},
    ),
    "text": (Filter(text="{}"), set()),
    "text that is nowhere": (Filter(text="nowhere"), set()),
    "error": (Filter(error="nowhere"), set()),
}
QUEUE = {"events_waiting", "events_waiting_alone", "events_leased"}
"""Read whole for a page: asked only when the queue is short, and to see whether it is."""


class Heard:
    """Hears what a search asks its database."""

    def __init__(self, search: Searching | Looking) -> None:
        self._dialect = search._dialect
        self._fetch = self._dialect.fetch
        self.statements: list[tuple[str, Sequence[Any]]] = []
        self._dialect.fetch = self._hear  # type: ignore[method-assign]

    async def _hear(self, sql: str, values: Sequence[Any], seconds: float | None = None) -> list[Any]:
        self.statements.append((sql, values))
        return await self._fetch(sql, values, seconds)


async def fill(store: Store, raw: Raw) -> None:
    on_sqlite = isinstance(store, SqliteStore)
    statements = [text for text in (FILL_SQLITE if on_sqlite else FILL_POSTGRES) if not text.startswith("ANALYZE")]
    for statement in (*statements, *MORE):
        await raw.run(statement.replace("{true}", "1" if on_sqlite else "true"))
    for statement in ["ANALYZE"] if on_sqlite else [f"ANALYZE {table}" for table in sorted(TABLES)]:
        await raw.run(statement)
    assert await raw.count("events") == ROWS


def wrong(plan: dict[str, Any], allowed: set[str]) -> list[str]:
    """Nodes that read a table of ours whole, or go along another index of events."""
    bad = []
    for node in nodes(plan):
        kind, table, index = node["Node Type"], node.get("Relation Name"), node.get("Index Name", "")
        if kind == "Seq Scan" and table in TABLES:
            bad.append(f"{kind} on {table}")
        elif index.startswith("events_") and index not in allowed | {"events_pkey"}:
            bad.append(f"{kind} along {index}")
        elif "Index" in kind and "Index Cond" not in node and index not in QUEUE | ADMITTED and table != "deliveries":
            bad.append(f"{kind} along all of {index}")
    return bad


async def explain(store: PostgresStore, sql: str, values: Sequence[Any]) -> list[tuple[str, dict[str, Any]]]:
    """The plan for these values, and the one that a statement gets after its first five uses, which knows none."""
    async with store._use() as connection:
        statement = await connection.prepare(sql)
        [custom] = await statement.explain(*values)
        nothing = ", ".join("NULL" for _ in statement.get_parameters())
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        await connection.execute(f"PREPARE checked AS {sql}")
        run = f"checked({nothing})" if nothing else "checked"
        [generic] = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {run}"))
        await connection.execute("DEALLOCATE checked; RESET plan_cache_mode")
    return [("custom", custom["Plan"]), ("generic", generic["Plan"])]


async def test_no_search_scans_at_100_000_events(store: Store, raw: Raw) -> None:  # proves R50
    await fill(store, raw)
    assert isinstance(store, SqliteStore | PostgresStore)
    heard, bad = Heard(store.search), []
    for name, (where, allowed) in FILTERS.items():
        heard.statements.clear()
        await store.search.page(where)
        for sql, values in heard.statements:
            if isinstance(store, PostgresStore):
                more = {"events_of_kind"} if "RECURSIVE" in sql else QUEUE if "AS q" in sql else set()
                for plan_name, plan in await explain(store, sql, values):
                    bad += [f"{name} ({plan_name}): {words}" for words in wrong(plan, allowed | more)]
    if isinstance(store, SqliteStore):
        bad += await _scans(store, heard)
    assert not bad, "\n".join(bad)


async def _scans(store: SqliteStore, heard: Heard) -> list[str]:
    """SQLite: whatever is read is looked up, or is the index of the queue."""
    heard.statements.clear()
    for where, _ in FILTERS.values():
        await store.search.page(where)
    await store.search.failures()
    await store.search.lag()

    def job(connection: apsw.Connection) -> list[str]:
        bad = []
        for sql, values in heard.statements:
            plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}", tuple(values))]
            tables = TABLES | {"w", "f", "r"} | ({"e"} if "CO-ROUTINE e" not in plan else set())
            for detail in plan:
                table = detail.removeprefix("SCAN ").split()[0]
                is_ours = detail.startswith("SCAN ") and table in tables
                if is_ours and not any(index in detail for index in QUEUE | {"events_in_state", "events_marked"}):
                    bad.append(f"{detail}: {sql}")
        return bad

    return await store._do(job)


OPEN, FLYING, ALL = {"effects_open"}, {"effects_leased"}, {"effects_of_event"}
MARKED = {"events_marked", "effects_of_event"}
LOOKS: dict[str, tuple[Callable[[Trouble], Awaitable[object]], set[str]]] = {
    "failed events": (lambda trouble: trouble.events(State.FAILED), {"events_in_state"}),
    "events in review": (
        lambda trouble: trouble.events(State.NEEDS_REVIEW),
        {"events_in_state", "events_in_review"},
    ),
    "alerts": (lambda trouble: trouble.alerts(11), {"events_marked"}),
    "alerts of effects": (lambda trouble: trouble.effect_alerts(11), MARKED),
    "effects": (lambda trouble: trouble.effects(EffectFilter()), OPEN | FLYING),
    "effects of a name": (lambda trouble: trouble.effects(EffectFilter(name="e1", source="s")), OPEN | FLYING),
    "done effects": (lambda trouble: trouble.effects(EffectFilter((EffectState.DONE,))), ALL),
    "how many": (lambda trouble: trouble.tally(EffectState.UNKNOWN), OPEN | {"effects_in_doubt"}),
    "how many failed": (lambda trouble: trouble.tally(EffectState.FAILED, outbox=True), OPEN),
    "the oldest": (lambda trouble: trouble.oldest(EffectState.FAILED, 1, outbox=True), OPEN),
    "overdue": (lambda trouble: trouble.overdue(300.0), OPEN),
}


async def test_no_look_at_trouble_scans_at_100_000_effects(store: Store, raw: Raw) -> None:  # proves R50
    await fill(store, raw)
    assert isinstance(store, SqliteStore | PostgresStore)
    heard, bad = Heard(store.trouble), []
    for name, (look, allowed) in LOOKS.items():
        heard.statements.clear()
        await look(store.trouble)
        for sql, values in heard.statements:
            if isinstance(store, PostgresStore):
                plans = await explain(store, sql, values)
                used = [(how, node) for how, plan in plans for node in nodes(plan)]
                bad += [f"{name} ({how}): {words}" for how, node in used for words in elsewhere(node, allowed)]
            else:
                bad += [f"{name}: {detail}" for detail in await whole(store, sql, values, allowed)]
    assert not bad, "\n".join(bad)


def elsewhere(node: dict[str, Any], allowed: set[str]) -> list[str]:
    """What a node reads along another index than those allowed, or along none."""
    index = node.get("Index Name", "")
    if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in TABLES:
        return [f"all of {node['Relation Name']}"]
    keys = {"events_pkey", "effects_pkey", "effect_calls_pkey"}
    return [f"along {index}"] if index and index not in allowed | keys else []


async def whole(store: SqliteStore, sql: str, values: Sequence[Any], allowed: set[str]) -> list[str]:
    """Tables that SQLite reads from end to end, and not along an index that has few of their rows."""

    def job(connection: apsw.Connection) -> list[str]:
        plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}", tuple(values))]
        partial = allowed & {"events_marked", "effects_leased"}
        return [
            detail
            for detail in plan
            if detail.startswith("SCAN ")
            and detail.split()[1] in TABLES | {"f"}
            and not any(index in detail for index in partial)
        ]

    return await store._do(job)
