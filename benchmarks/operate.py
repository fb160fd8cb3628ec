"""How long operators wait, with a million events in the inbox.

    python -m benchmarks.operate                     # one million events on PostgreSQL
    python -m benchmarks.operate --events 20000      # does it run at all
    python -m benchmarks.operate --markdown          # for docs/explanation/performance.md

Every figure is also given as a multiple of the median look-up of one event by its primary key, in the same run,
through the same store and driver. The events come from 8 sources with 40 kinds, some of them rare; 98 % are
processed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from tests.services.postgres import Databases

from benchmarks import report
from benchmarks.servers import postgresql
from hookledger.clock import Clock
from hookledger.filters import Filter
from hookledger.model import effect_identity, key_identity
from hookledger.states import State
from hookledger.store.connect import connect
from hookledger.store.postgres.store import PostgresStore

SPAN = 30 * 86400
"""Seconds over which the events came in."""
ROUNDS = 100
ONE, MANY = "an event by its primary key", "50 events by their primary keys, in one statement"
FIFTY = "SELECT * FROM hookledger.events WHERE id = ANY($1::uuid[])"
Reading = Callable[[], Awaitable[object]]

# ── the inbox ────────────────────────────────────────────────────────────────

# Sources 1 to 7 share the events, each with 5 kinds and the third of these rare; of 20,000 events one is of source 8.
FILL = """
CREATE UNLOGGED TABLE filling AS
SELECT n, source, type, at, state,
       (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0')
        || '8' || right(md5('e' || n), 15))::uuid AS id,
       (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0')
        || '8' || right(md5('r' || n), 15))::uuid AS rid,
       sha256(n::text::bytea) AS digest
FROM (
    SELECT n, now() - make_interval(secs => ({events} - n) * {span}::float8 / {events}) AS at,
           CASE WHEN n % 20000 = 7 THEN 'rare' ELSE 'source' || (n % 7) END AS source,
           CASE WHEN n % 10000 = 9 THEN 'type.rare' WHEN n % 100 = 3 THEN 'type.seldom'
                ELSE 'type.' || (n / 7 % 3) END AS type,
           CASE WHEN n % 1000 < 980 THEN 'processed' WHEN n % 1000 < 988 THEN 'failed'
                WHEN n % 1000 < 992 THEN 'skipped' WHEN n % 1000 < 994 THEN 'needs_review'
                WHEN n % 1000 < 996 THEN 'discarded' WHEN n % 1000 < 997 THEN 'retrying'
                ELSE 'processed' END AS state
    FROM generate_series(1, {events}) AS n
) AS f;
UPDATE filling SET state = 'pending' WHERE n > {events} - 500;
INSERT INTO hookledger.sources SELECT DISTINCT source FROM filling;
INSERT INTO hookledger.requests (id, source, received_at, query, headers, body, scheme, secret, signed_at)
SELECT rid, source, at, '', 'content-type: application/json',
       convert_to('{"id":"evt_' || n || '","note":"' || repeat('x', 1100) || '"}', 'UTF8'), 'hmac-sha256', '00000000',
       at
FROM filling;
INSERT INTO hookledger.events (id, source, type, key, key_origin, object_id, fingerprint, request_id, item,
                               received_at, run_started_at, state, reason, error, cause, claim, attempts, due_at,
                               claimed_at, worker, first_processed_at, finished_at, attention)
SELECT id, source, type, 'evt_' || n, 'signed_id', 'obj_' || n / 4, digest, rid, 0, at, at, state,
       CASE WHEN state NOT IN ('processed', 'pending') THEN 'ValueError: no such customer ' || n END,
       CASE WHEN state IN ('failed', 'needs_review', 'retrying') THEN 'ValueError: no such customer ' || n END,
       CASE WHEN state IN ('failed', 'needs_review', 'retrying') THEN 'ValueError: no such customer of kind ' ||
            chr(65 + (n / 1000 % 20)::integer) END,
       CASE WHEN state = 'pending' THEN 0 ELSE 2 END, CASE WHEN state = 'pending' THEN 0 ELSE 1 END,
       CASE WHEN state IN ('pending', 'retrying') THEN at END, CASE WHEN state <> 'pending' THEN at END,
       CASE WHEN state <> 'pending' THEN 'w' END, CASE WHEN state = 'processed' THEN at END,
       CASE WHEN state IN ('processed', 'skipped', 'failed', 'discarded') THEN at END, n % 5000 = 11
FROM filling;
INSERT INTO hookledger.deliveries (request_id, item, event_id, source, received_at, outcome, fingerprint)
SELECT rid, 0, id, source, at, 'accepted', digest FROM filling
UNION ALL SELECT gen_random_uuid(), 0, id, source, at, 'duplicate', digest FROM filling WHERE n % 20 = 0;
INSERT INTO hookledger.attempts (event_id, claim, run, worker, started_at, ended_at, outcome)
SELECT id, 1, 1, 'w', at, at, CASE WHEN state = 'discarded' THEN 'failed' ELSE state END FROM filling
WHERE state <> 'pending';
INSERT INTO hookledger.identities SELECT key_identity, 'key', source, id, digest FROM filling JOIN digests USING (n);
INSERT INTO hookledger.effects (identity, kind, source, name, key, event_id, claim, arguments, arguments_digest,
                                repeat, downstream, state, number, planned_at, created_at, finished_at)
SELECT effect_identity, 'call', source, 'send_receipt', 'k' || n, id, 1, '{}', '', 'safe', 'mail', 'done', 1, at,
       at, at
FROM filling JOIN digests USING (n) WHERE n % 10 = 0;
INSERT INTO hookledger.effect_calls (identity, number, generation, worker, started_at, ended_at, outcome)
SELECT effect_identity, 1, 1, 'w', at, at, 'done' FROM filling JOIN digests USING (n) WHERE n % 10 = 0;
INSERT INTO hookledger.actions (id, at, name, actor, reason, event_id, from_state, to_state)
SELECT gen_random_uuid(), at, 'retry', 'ada', 'why', id, 'failed', 'pending' FROM filling WHERE n % 1000 = 0;
"""


async def fill(url: str, events: int) -> list[UUID]:
    """Events with all that belongs to them; returns their ids, the oldest first."""
    store = connect(url, clock=Clock())
    await store.open()
    await store.migrate()
    await store.close()
    connection = await asyncpg.connect(url)
    first, *others = FILL.replace("{events}", str(events)).replace("{span}", str(SPAN)).split(";\n")
    await connection.execute(first)
    await digests(connection)
    for statement in filter(str.strip, others):
        await connection.execute(statement)
    ids = [row["id"] for row in await connection.fetch("SELECT id FROM filling ORDER BY id")]
    await connection.execute("DROP TABLE filling, digests")
    await connection.close()
    Databases(url).execute("VACUUM ANALYZE")
    Databases(url).execute("CHECKPOINT")
    return ids


async def digests(connection: asyncpg.Connection[Any]) -> None:
    """Identities are digests that SQL has no word for."""
    await connection.execute("CREATE UNLOGGED TABLE digests (n integer, key_identity bytea, effect_identity bytea)")
    rows = await connection.fetch("SELECT n, source FROM filling")
    await connection.copy_records_to_table(
        "digests",
        records=(
            (n, key_identity(source, b"evt_%d" % n), effect_identity(source, "send_receipt", f"k{n}"))
            for n, source in rows
        ),
    )


# ── what is read ─────────────────────────────────────────────────────────────


def filters(events: int) -> dict[str, Filter]:
    now, middle = datetime.now(UTC), datetime.now(UTC) - timedelta(seconds=SPAN / 2)
    return {
        "no filter": Filter(),
        "source, common": Filter(source="source1"),
        "source, rare": Filter(source="rare"),
        "source, none": Filter(source="nobody"),
        "type, common": Filter(type="type.1"),
        "type, rare": Filter(type="type.rare"),
        "type, beginning": Filter(type="type.r*"),
        "type, none": Filter(type="nothing"),
        "source and type": Filter(source="source1", type="type.2"),
        "source and type, rare": Filter(source="source1", type="type.rare"),
        **{f"state {state}": Filter(states=(state,)) for state in State},
        "states of trouble": Filter(states=(State.FAILED, State.NEEDS_REVIEW, State.RETRYING)),
        "source and state failed": Filter(source="source1", states=(State.FAILED,)),
        "rare source and state failed": Filter(source="rare", states=(State.FAILED,)),
        "source and state processed": Filter(source="source1", states=(State.PROCESSED,)),
        "key": Filter(key=f"evt_{events // 3}"),
        "key, none": Filter(key="evt_none"),
        "object": Filter(object_id=f"obj_{events // 8}"),
        "effect NAME:KEY": Filter(effect=f"send_receipt:k{events // 2 // 10 * 10}"),
        "cause": Filter(cause="ValueError: no such customer of kind C"),
        "attention": Filter(attention=True),
        "since an hour ago": Filter(since=now - timedelta(hours=1)),
        "until the middle": Filter(until=middle),
        "an hour in the middle": Filter(since=middle, until=middle + timedelta(hours=1)),
        "source, an hour in the middle": Filter(source="source1", since=middle, until=middle + timedelta(hours=1)),
        "error, one stretch": Filter(error="no such customer 7"),
        "error in failed, one stretch": Filter(error="no such customer 7", states=(State.FAILED,)),
        "text, one stretch": Filter(text='"note"'),
        "text, none, one stretch": Filter(text="nowhere"),
    }


async def timed(reading: Reading, rounds: int) -> list[float]:
    took = []
    for number in range(rounds + 10):
        started = time.perf_counter()
        await reading()
        if number >= 10:  # the first ones prepare statements
            took.append(time.perf_counter() - started)
    return sorted(took)


async def readings(store: PostgresStore, ids: list[UUID], events: int) -> dict[str, list[float]]:
    """Every reading with how long it took."""
    places = iter(range(0, 10**9, 7919))

    async def look_up() -> object:
        async with store._use() as connection:
            return await connection.fetchrow(store.sql("event"), ids[next(places) % len(ids)])

    async def look_up_fifty() -> object:
        wanted = [ids[next(places) % len(ids)] for _ in range(50)]
        async with store._use() as connection:
            return await connection.fetch(FIFTY, wanted)

    async def deep(where: Filter) -> object:
        return await store.search.page(where, before=ids[next(places) % len(ids)])

    found = {ONE: await timed(look_up, ROUNDS), MANY: await timed(look_up_fifty, ROUNDS)}
    for name, where in filters(events).items():
        found[f"list: {name}"] = await timed(partial(store.search.page, where), ROUNDS)
    paged = {"no filter": Filter(), "source": Filter(source="source1"), "state": Filter(states=(State.FAILED,))}
    for name, where in paged.items():
        found[f"any page, {name}"] = await timed(partial(deep, where), ROUNDS)
    found["detail"] = await timed(lambda: store.history(ids[next(places) % len(ids)]), ROUNDS)
    few = ROUNDS // 10
    found["failures by cause"] = await timed(store.search.failures, few)
    found["lag"] = await timed(store.search.lag, few)
    found["count: state failed"] = await timed(lambda: store.search.count(Filter(states=(State.FAILED,))), few)
    found["count: everything"] = await timed(lambda: store.search.count(Filter()), few)
    found["counts by source and state"] = await timed(store.search.by_source, few)
    return found


async def measure(url: str, events: int) -> dict[str, list[float]]:
    started = time.monotonic()
    ids = await fill(url, events)
    print(f"filled: {time.monotonic() - started:.0f} s", file=sys.stderr)
    store = connect(url, clock=Clock())
    assert isinstance(store, PostgresStore)
    await store.open()
    try:
        return await readings(store, ids, events)
    finally:
        await store.close()


def lines(found: dict[str, list[float]]) -> list[list[str]]:
    one, many = statistics.median(found[ONE]), statistics.median(found[MANY])
    table = []
    for name, took in found.items():
        median, worst = statistics.median(took), took[int(0.99 * len(took))]
        times = [f"{median / one:.1f}", f"{median / many:.1f}", f"{worst / many:.1f}"]
        table.append([name, f"{median * 1e3:.2f}", f"{worst * 1e3:.2f}", *times])
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operate", description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown on stdout")
    options = parser.parse_args(arguments)
    with postgresql() as server:
        with server.database() as url:
            found = asyncio.run(measure(url, options.events))
        notes: list[Any] = report.machine(server.version)
    head = ["reading", "median ms", "p99 ms", "median to one", "median to 50", "p99 to the median of 50"]
    notes.append(f"{options.events:,} events over 30 days, {ROUNDS} rounds, one connection")
    shown = lines(found)
    print(report.markdown(head, shown, notes)) if options.markdown else report.show(head, shown, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
