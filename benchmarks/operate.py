"""How long operators wait with a million events in the inbox, and what senders notice of operators and of pruning.

    python -m benchmarks.operate                     # one million events on PostgreSQL: about ten minutes
    python -m benchmarks.operate --only read         # or prune, or ack
    python -m benchmarks.operate --events 20000      # does it run at all
    python -m benchmarks.operate --markdown          # for docs/explanation/performance.md

Every reading is compared with the look-up of one event by its primary key, and of 50 anywhere in one statement, made
right after it through the same store and driver: a page has 50 events, so it can hardly cost less than the latter.
The events come from 8 sources with 38 kinds, some of them rare; 98 % are processed, the newest 500 are pending.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
from tests.services.postgres import Databases

from benchmarks import prune, readers, report
from benchmarks.servers import Postgresql, postgresql
from hookledger.clock import Clock
from hookledger.ids import effect_identity, key_identity
from hookledger.states import State
from hookledger.store.connect import connect
from hookledger.store.ops.filters import Filter
from hookledger.store.postgres.store import PostgresStore

SPAN = 30 * 86400
"""Seconds over which the events came in."""
ROUNDS = 100
LONGEST = 5.0
"""Seconds after which a reading is not repeated any more."""
ONE = "SELECT * FROM hookledger.events WHERE id = $1"
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


@dataclass(frozen=True)
class Timed:
    """Seconds of each round, sorted: of a reading, and of the two yardsticks right after it."""

    reading: list[float]
    one: list[float]
    fifty: list[float]

    def cells(self) -> list[str]:
        median, worst = statistics.median(self.reading), p99(self.reading)
        one, fifty = statistics.median(self.one), statistics.median(self.fifty)
        times = [median / one, median / fifty, worst / p99(self.fifty)]
        return [f"{median * 1e3:.2f}", f"{worst * 1e3:.2f}", *(f"{value:.1f}" for value in times)]


def p99(ordered: list[float]) -> float:
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


async def timed(rounds: int, *readings: Reading) -> Timed:
    """By turns, so that a machine that slows down slows them all."""
    took: list[list[float]] = [[] for _ in readings]
    ends = time.perf_counter() + LONGEST
    for number in range(rounds + 10):
        for reading, seconds in zip(readings, took, strict=True):
            started = time.perf_counter()
            await reading()
            if number >= 10:  # the first ones prepare statements
                seconds.append(time.perf_counter() - started)
        if number >= 20 and time.perf_counter() > ends:
            break
    return Timed(*(sorted(seconds) for seconds in took))


async def readings(store: PostgresStore, ids: list[UUID], events: int) -> dict[str, Timed]:
    """Every reading with how long it took."""
    places = itertools.count(step=7919)

    async def one() -> object:
        async with store._use() as connection:
            return await connection.fetchrow(ONE, ids[next(places) % len(ids)])

    async def fifty() -> object:
        wanted = [ids[next(places) % len(ids)] for _ in range(50)]
        async with store._use() as connection:
            return await connection.fetch(FIFTY, wanted)

    async def deep(where: Filter) -> object:
        return await store.search.page(where, before=ids[next(places) % len(ids)])

    search, failed = store.search, Filter(states=(State.FAILED,))
    often: dict[str, Reading] = {"50 events by their primary keys, in one statement": fifty}
    often |= {f"list: {name}": partial(search.page, where) for name, where in filters(events).items()}
    paged = {"no filter": Filter(), "source": Filter(source="source1"), "state": failed}
    often |= {f"any page, {name}": partial(deep, where) for name, where in paged.items()}
    often |= {"detail": lambda: store.history(ids[next(places) % len(ids)]), "lag": search.lag}
    seldom: dict[str, Reading] = {
        "failures by cause": search.failures,
        "count: state failed": lambda: search.count(failed),
        "count: everything": lambda: search.count(Filter()),
        "counts by source and state": search.by_source,
    }
    found = {name: await timed(ROUNDS, reading, one, fifty) for name, reading in often.items()}
    return found | {name: await timed(ROUNDS // 10, reading, one, fifty) for name, reading in seldom.items()}


async def measure(url: str, events: int) -> dict[str, Timed]:
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


HEAD = ["reading", "median ms", "p99 ms", "median to one", "median to 50", "p99 to 50"]


def read(server: Postgresql, events: int) -> tuple[list[str], list[list[str]], list[str]]:
    with server.database() as url:
        found = asyncio.run(measure(url, events))
    note = f"{events:,} events over 30 days; {ROUNDS} rounds, one connection, by turns with look-ups of one and of 50"
    return HEAD, [[name, *took.cells()] for name, took in found.items()], [note]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operate", description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["read", "prune", "ack"], help="one of the parts")
    parser.add_argument("--rounds", type=int, default=10, help="turns of the callers while acks are measured")
    parser.add_argument("--per-second", type=float, default=100.0, help="deliveries while pruning")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds after which pruning is broken off")
    parser.add_argument("--markdown", action="store_true", help="the tables as Markdown on stdout")
    options = parser.parse_args(arguments)
    show = (lambda *table: print(report.markdown(*table))) if options.markdown else report.show
    is_sound = True
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and databases go too
    with postgresql() as server:
        notes = report.machine(server.version)
        if options.only in (None, "ack"):
            watch = report.Watch()
            head, table, more = readers.run(server, options.rounds, 3.0)
            show(head, table, [*notes, *more, watch.words()])
        if options.only in (None, "read"):
            watch = report.Watch()
            head, table, more = read(server, options.events)
            show(head, table, [*notes, *more, watch.words()])
        if options.only in (None, "prune"):
            watch = report.Watch()
            found = prune.run(server, options.events, per_second=options.per_second, limit=options.limit)
            head = ["while all is pruned", "resting, ms", "running, ms", "ratio"]
            show(head, found.lines(), [*notes, *found.notes(), watch.words()])
            is_sound = found.is_sound
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
