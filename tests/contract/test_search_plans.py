"""No search reads a table: each filter goes along the index meant for it, at 100,000 events, be it rare or not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import apsw
import pytest

from hookledger.ids import LAST_ID
from hookledger.states import EffectState, State
from hookledger.store.ops.attention import Attention
from hookledger.store.ops.audit import ActionFilter
from hookledger.store.ops.filters import EffectFilter, Filter
from hookledger.store.postgres import session as postgres
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite import session as sqlite
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import Raw
from tests.contract.test_plans import FILL_POSTGRES, FILL_SQLITE, ROWS, TABLES, nodes

pytestmark = pytest.mark.without_statistics

MORE = [
    "UPDATE events SET key_origin = 'composite' WHERE key LIKE 'k%3'",
    "UPDATE events SET object_id = 'o' || substr(key, 2) WHERE key LIKE 'k%5'",
    """UPDATE events SET state = 'failed', reason = 'r', cause = 'c' || substr(key, 4, 1), first_processed_at = NULL
       WHERE state = 'processed' AND key LIKE 'k%1'""",
    "UPDATE events SET attention = {true} WHERE key LIKE 'k%77'",
    "UPDATE events SET source = 'rare', type = 'rare' WHERE key LIKE 'k%999'",
]
THEN = datetime(2023, 11, 15, tzinfo=UTC)

ADMITTED = {"events_from_quarantine", "events_from_quarantine_ids", "events_from_quarantine_keys"}
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


Statement = tuple[str, Any]
"""SQL and its values: on PostgreSQL in their order, on SQLite by their names."""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
    """What operations ask their database."""
    statements: list[Statement] = []

    def listen(kind: Any, name: str) -> None:
        run = getattr(kind, name)

        def hear(session: Any, sql: str, values: Any) -> Any:
            statements.append((sql, values))
            return run(session, sql, values)

        monkeypatch.setattr(kind, name, hear)

    listen(postgres.PostgresSession, "_fetch")
    listen(postgres.LimitedSession, "_fetch")
    listen(sqlite.SqliteSession, "cursor")
    return statements


async def fill(store: Store, raw: Raw, only: str = "") -> None:
    """Fill every table, or `only` one."""
    on_sqlite = isinstance(store, SqliteStore)
    statements = [text for text in (FILL_SQLITE if on_sqlite else FILL_POSTGRES) if not text.startswith("ANALYZE")]
    if only:
        statements = [text for text in statements if "TABLE filling" in text or f"INTO {only} " in text]
    for statement in statements if only else (*statements, *MORE):
        await raw.run(statement.replace("{true}", "1" if on_sqlite else "true"))
    for statement in ["ANALYZE"] if on_sqlite else [f"ANALYZE {table}" for table in sorted(TABLES)]:
        await raw.run(statement)
    assert await raw.count(only or "events") == ROWS


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


async def test_no_search_scans_at_100_000_events_and_effects(store: Store, raw: Raw, heard: list[Statement]) -> None:
    await fill(store, raw)
    assert isinstance(store, SqliteStore | PostgresStore)
    bad = await _scans_of_filters(store, heard) + await _scans_of_looks(store, heard)
    assert not bad, "\n".join(bad)


async def _scans_of_filters(store: SqliteStore | PostgresStore, heard: list[Statement]) -> list[str]:
    bad: list[str] = []
    for name, (where, allowed) in FILTERS.items():
        heard.clear()
        await store.search.page(where)
        for sql, values in list(heard):
            if isinstance(store, PostgresStore):
                more = {"events_of_kind"} if "RECURSIVE" in sql else QUEUE if "AS q" in sql else set()
                for plan_name, plan in await explain(store, sql, values):
                    bad += [f"{name} ({plan_name}): {words}" for words in wrong(plan, allowed | more)]
    if isinstance(store, SqliteStore):
        bad += await _scans(store, heard)
    return bad


AUDITS: dict[str, tuple[ActionFilter, str]] = {
    "every action": (ActionFilter(), "actions_pkey"),
    "a rare actor": (ActionFilter(actor="bob"), "actions_pkey"),
    "a time": (ActionFilter(since=THEN, until=THEN + timedelta(days=1)), "actions_pkey"),
    "no event": (ActionFilter(no_event=True), "actions_pkey"),
    "an event": (ActionFilter(event_id=LAST_ID), "actions_of_event"),
}


async def test_no_page_of_the_audit_log_scans_at_100_000_actions(
    store: Store, raw: Raw, heard: list[Statement]
) -> None:
    await fill(store, raw, only="actions")
    bad: list[str] = []
    for name, (where, index) in AUDITS.items():
        heard.clear()
        await store.audit.page(where, seconds=0)
        [(sql, values)] = heard
        if isinstance(store, PostgresStore):
            for plan_name, plan in await explain(store, sql, values):
                used = {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
                bad += [f"{name} ({plan_name}): {words}" for words in wrong(plan, set())]
                bad += [f"{name} ({plan_name}): {used}"] if used != {index} else []
        else:
            assert isinstance(store, SqliteStore)
            plan_lines = await store._do(partial(planned, sql=sql, values=values))
            is_by_id = any("SEARCH w USING PRIMARY KEY" in line for line in plan_lines)
            is_by_event = any("USING INDEX actions_of_event (event_id=?)" in line for line in plan_lines)
            if not (is_by_id if index == "actions_pkey" else is_by_event):
                bad.append(f"{name}: {plan_lines}")
    assert not bad, "\n".join(bad)


def planned(connection: apsw.Connection, sql: str, values: Any) -> list[str]:
    """SQLite's plan."""
    return [detail for *_, detail in sqlite.SqliteSession(connection, 0).cursor(f"EXPLAIN QUERY PLAN {sql}", values)]


async def _scans(store: SqliteStore, heard: list[Statement]) -> list[str]:
    """SQLite: whatever is read is looked up, or is the index of the queue."""
    heard.clear()
    for where, _ in FILTERS.values():
        await store.search.page(where)
    await store.search.failures()
    await store.search.lag()

    def job(connection: apsw.Connection) -> list[str]:
        bad = []
        for sql, values in list(heard):
            plan = planned(connection, sql, values)
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
LOOKS: dict[str, tuple[Callable[[Attention], Awaitable[object]], set[str]]] = {
    "failed events": (lambda trouble: trouble.events(State.FAILED), {"events_in_state", "events_failed_at"}),
    "events in review": (
        lambda trouble: trouble.events(State.NEEDS_REVIEW),
        {"events_in_state", "events_in_review"},
    ),
    "alerts": (lambda trouble: trouble.alerts(11), {"events_marked"}),
    "alerts of effects": (lambda trouble: trouble.effect_alerts(11), MARKED),
    "effects": (lambda trouble: trouble.effects(EffectFilter()), OPEN | FLYING),
    "effects of a name": (lambda trouble: trouble.effects(EffectFilter(name="e1", source="s")), OPEN | FLYING),
    "done effects": (lambda trouble: trouble.effects(EffectFilter((EffectState.DONE,))), ALL),
    "how many": (lambda trouble: trouble.tally(EffectState.UNKNOWN), OPEN | {"effects_unknown"}),
    "how many failed": (lambda trouble: trouble.tally(EffectState.FAILED, outbox=True), OPEN),
    "the oldest": (lambda trouble: trouble.oldest(EffectState.FAILED, 1, outbox=True), OPEN),
    "overdue": (lambda trouble: trouble.overdue(300.0), OPEN),
    "the queue": (lambda trouble: trouble.queue(11), QUEUE),
}


async def _scans_of_looks(store: SqliteStore | PostgresStore, heard: list[Statement]) -> list[str]:
    bad: list[str] = []
    for name, (look, allowed) in LOOKS.items():
        heard.clear()
        await look(store.attention)
        for sql, values in list(heard):
            if isinstance(store, PostgresStore):
                plans = await explain(store, sql, values)
                used = [(how, node) for how, plan in plans for node in nodes(plan)]
                bad += [f"{name} ({how}): {words}" for how, node in used for words in elsewhere(node, allowed)]
            else:
                bad += [f"{name}: {detail}" for detail in await whole(store, sql, values, allowed)]
    return bad


def elsewhere(node: dict[str, Any], allowed: set[str]) -> list[str]:
    """What a node reads along another index than those allowed, or along none."""
    index = node.get("Index Name", "")
    if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in TABLES:
        return [f"all of {node['Relation Name']}"]
    keys = {"events_pkey", "effects_pkey", "effect_calls_pkey"}
    return [f"along {index}"] if index and index not in allowed | keys else []


async def whole(store: SqliteStore, sql: str, values: Any, allowed: set[str]) -> list[str]:
    """Tables that SQLite reads from end to end, and not along an index that has few of their rows."""

    def job(connection: apsw.Connection) -> list[str]:
        plan = planned(connection, sql, values)
        partial = allowed & {"events_marked", "effects_leased"}
        return [
            detail
            for detail in plan
            if detail.startswith("SCAN ")
            and detail.split()[1] in TABLES | {"f"}
            and not any(index in detail for index in partial)
        ]

    return await store._do(job)
