"""What a step reads does not grow with its job: looked up and counted at 100,000 events, 60,000 of them frozen."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw.ext
import pytest

from hookledger.ids import FIRST_ID, new_id
from hookledger.store.postgres.session import Queries, numbered, values_of
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite.session import query
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import Raw
from tests.contract.test_plans import FILL_POSTGRES, FILL_SQLITE, check_shared, check_sqlite, nodes

pytestmark = pytest.mark.without_statistics

JOB, FROZEN, OVER, STEP = new_id(), 60_000, 30_000, 100
MOST = 1_000
"""Rows that a query may read of one table: a step's, several times, or a page's."""

JOBS = """INSERT INTO jobs (id, name, filter, actor, reason, per_second, state, total, done, not_allowed, position,
                            created_at, frozen_at, started_at, fence, worker)
          SELECT {job}, 'retry', '{{}}', 'ada', 'why', 0, 'running', {frozen}, {over} - n, n, upto,
                 {now}, {now}, {now}, 1, 'w'
          FROM (SELECT event_id AS upto FROM job_items WHERE outcome IS NOT NULL ORDER BY 1 DESC LIMIT 1) AS a,
               (SELECT count(*) AS n FROM job_items WHERE outcome = 'not_allowed') AS b"""
ITEMS = """INSERT INTO job_items (job_id, event_id, seen_state, seen_claim, outcome, cause, reason, ended_at)
           SELECT {job}, id, state, claim,
                  CASE WHEN n > {over} THEN NULL WHEN n % 100 = 0 THEN 'not_allowed' ELSE 'done' END,
                  CASE WHEN n <= {over} AND n % 100 = 0 THEN 'changed' END,
                  CASE WHEN n <= {over} AND n % 100 = 0 THEN 'it is not failed any more' END,
                  CASE WHEN n <= {over} THEN {now} END
           FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM events) AS e WHERE n <= {frozen}"""
EFFECTS = """INSERT INTO job_effects (job_id, event_id, identity, fence)
             SELECT {job}, i.event_id, f.identity, f.fence FROM job_items AS i JOIN effects AS f USING (event_id)"""
SHARED = [
    *("free_job", "take_job", "renew_job", "open_items", "hold_job", "end_items", "advance_job", "lock_job"),
    *("cancel_job", "list_jobs", "find_jobs", "find_job", "list_items", "list_not_allowed_items", "item_effects"),
    *("events_to_preview", "attempts_of_events"),
]
DOUBTFUL = ("breakdown_unknown", "size_of_set_unknown")
WHOLE = {"set_frozen", "count_not_allowed_items", "present_states"}
"""Read a whole set, or all that was not allowed of it: once when it is frozen, and when somebody looks at the job."""


async def fill(store: Store, raw: Raw) -> None:
    for statement in FILL_SQLITE if isinstance(store, SqliteStore) else FILL_POSTGRES:
        await raw.run(statement)
    if isinstance(store, PostgresStore):  # a new set has no statistics, and gets none here by chance
        await raw.run("ALTER TABLE job_items SET (autovacuum_enabled = false)")
    facts = {"job": raw.ident(JOB), "now": raw.now, "frozen": FROZEN, "over": OVER}
    await raw.run(ITEMS.format(**facts))
    await raw.run(JOBS.format(**facts))
    await raw.run(EFFECTS.format(**facts))
    assert await raw.count("job_items") == FROZEN


def literal(value: Any) -> str:
    """A value as EXECUTE takes it."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        inside = ",".join("NULL" if one is None else f'"{one}"' for one in value)
        return f"'{{{inside}}}'"
    return str(value) if isinstance(value, int | float) else f"'{value}'"


async def read(store: PostgresStore, name: str, sql: str, args: Sequence[Any], *, generic: bool) -> list[str]:
    """Run one query and undo it; what it read too much of."""
    async with store._use() as connection:
        await connection.execute(f"SET plan_cache_mode = {'force_generic_plan' if generic else 'force_custom_plan'}")
        await connection.execute(f"PREPARE checked AS {sql}")
        run = f"checked({', '.join(map(literal, args))})" if args else "checked"
        await connection.execute("BEGIN")
        [told] = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {run}"))
        await connection.execute("ROLLBACK; DEALLOCATE checked; RESET plan_cache_mode")
    bad = []
    for node in nodes(told["Plan"]):
        removed = [node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Join Filter", "Index Recheck")]
        rows = (node["Actual Rows"] + sum(removed)) * node["Actual Loops"]
        if rows > MOST:
            kind = f"{node['Node Type']} on {node.get('Relation Name')}, generic: {generic}"
            bad.append(f"{name}: {rows:,.0f} rows by {kind}")
    return bad


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_step_reads_its_own_events_on_postgres(store: Store, raw: Raw) -> None:
    assert isinstance(store, PostgresStore)
    await fill(store, raw)
    ahead = f"SELECT event_id FROM job_items WHERE outcome IS NULL ORDER BY event_id LIMIT {STEP}"
    step: list[UUID] = [row[0] for row in await raw.run(ahead)]
    ended = [(JOB, event, "done", None, None) for event in step]
    ours: dict[str, Any] = {"id": JOB, "fence": 1}
    queries: dict[str, dict[str, Any]] = {
        "free_job": {"id": None},
        "take_job": {"id": JOB, "worker": "w", "lease": 60.0},
        "renew_job": ours | {"lease": 60.0},
        "open_items": ours | {"first": FIRST_ID, "limit": STEP},
        "hold_job": ours,
        "end_items": {"id": JOB, "ended": ended, "first": step[0], "last": step[-1]},
        "advance_job": {"id": JOB, "position": step[-1], "done": STEP, "not_allowed": 0, "lease": 60.0},
        "lock_job": {"id": JOB},
        "cancel_job": {"id": JOB, "actor": "ada", "reason": "why"},
        "list_jobs": {"before": None, "limit": 50},
        "find_jobs": {"first": JOB, "last": JOB},
        "find_job": {"id": JOB},
        "count_not_allowed_items": {"id": JOB},
        "list_items": {"id": JOB, "after": step[0], "outcome": None, "limit": 50},
        "list_not_allowed_items": {"id": JOB, "after": FIRST_ID, "limit": 50},
        "events_to_preview": {"events": step},
        "attempts_of_events": {"events": step},
        "item_effects": {"id": JOB, "events": step[:1]},
    }
    assert queries.keys() == {*SHARED, "count_not_allowed_items"}
    written = Queries(store._schema, store._clock, store.sql)
    bad: list[str] = []
    for known in (False, True):
        if known:
            await raw.run("ANALYZE job_items")
        for name, given in queries.items():
            if known or name != "list_items":  # a page for a person, a minute after the set was frozen
                sql, names = written[name]
                for generic in (False, True):
                    bad += await read(store, name, sql, values_of(names, given), generic=generic)
    # Of 100,000 effects 250 of this name are unknown; nothing is known of the filter, and nothing of the new set.
    for name in ("freeze_unknown", *DOUBTFUL):
        sql, names = numbered(written(name).replace("{where}", "true"))
        args = values_of(names, {"job_id": new_id(), "effect_name": "e1"})
        bad += [line for generic in (False, True) for line in await read(store, name, sql, args, generic=generic)]
    bad += await check_shared(store, {name: queries[name] for name in ("events_to_preview", "attempts_of_events")})
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_step_reads_its_own_events_on_sqlite(store: Store, raw: Raw) -> None:
    assert isinstance(store, SqliteStore)
    await fill(store, raw)

    def plans(connection: apsw.Connection) -> list[str]:
        found = []
        texts = {name: query(name) for name in (*SHARED, "count_not_allowed_items")}
        for name in ("set_frozen", *DOUBTFUL, "members_unknown"):
            texts[name] = query(name).replace("{where}", "true")
        for name, sql in texts.items():
            bindings = [None] * apsw.ext.query_info(connection, sql).bindings_count
            for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings):
                walks = re.search(r"SEARCH (i|main\.job_items)\b.*?\((.*)\)", detail)
                whole = re.search(r"SCAN (?:main\.)?(i|f|e|job_items|job_effects|effects|events|attempts)\b", detail)
                if whole or (walks and "event_id" not in walks[2]):
                    found.append(f"{name}: {detail}")
        return found

    for _ in ("no statistics", "with statistics"):
        bad = [line for line in await store._do(plans) if line.partition(":")[0] not in WHOLE]
        bad += await check_sqlite(store, query, SHARED)
        assert not bad, "\n".join(bad)
        await raw.run("ANALYZE")
