"""What order costs: the rates of ordered events and of guards beside plain ones, and what a claim reads.

    python -m benchmarks.order                   # 100,000 events of 10,000 entities, both databases
    python -m benchmarks.order --quick           # does it run at all
    python -m benchmarks.order --only buffers    # or rates

Rates are those of one worker process with the one-row handler of benchmarks/work.py: plain, in order, or behind a
guard that is new for each event; the runs take turns. Buffers are those of the claim on PostgreSQL after VACUUM
ANALYZE: few and many waiting entities, and one that has most of the events.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Sequence

import msgspec
from tests.services.postgres import Databases

from benchmarks import report, work
from benchmarks.servers import Postgresql, postgresql
from hookledger.clock import Clock
from hookledger.model import Arrival
from hookledger.store.connect import connect

FILLED = 500


def in_order(arrival: Arrival, entity: int, at: float) -> Arrival:
    """The same arrival, as an ordered event of this entity."""
    [item] = arrival.items
    given = msgspec.structs.replace(item, entity=f"entity_{entity}", ordered=True, order_at=at)
    return msgspec.structs.replace(arrival, items=(given,))


async def fill(url: str, source: str, entities: Sequence[int]) -> None:
    """One event for each number, which is its entity."""
    store = connect(url, clock=Clock())
    await store.open(handlers=1)
    await store.migrate()
    arrivals = [work.arrival(source, number) for number in range(1, len(entities) + 1)]
    if source == "ordered":
        pairs = zip(arrivals, entities, strict=True)
        arrivals = [in_order(one, entity, 1.7e9 + place) for place, (one, entity) in enumerate(pairs)]
    for start in range(0, len(arrivals), FILLED):
        await store.record(arrivals[start : start + FILLED])
    await store.close()


def rate(server: Postgresql, database: str, source: str, events: int, entities: int) -> float:
    """Events per second, from the first claim to the last outcome."""
    numbers = [number % entities for number in range(events)]

    async def filled(url: str, name: str, count: int) -> None:
        del count
        await fill(url, name, numbers)

    measure = work.rate_on_postgres if database == "postgres" else work.rate_on_sqlite
    return measure(server, source, events, filled)


# ── buffers ──────────────────────────────────────────────────────────────────


async def place(url: str) -> None:
    store = connect(url, clock=Clock())
    await store.open(handlers=1)
    while await store.entities.place():
        pass
    await store.close()


def buffers(server: Postgresql, entities: Sequence[int]) -> tuple[int, int]:
    """The events that a claim of 16 takes, and the buffers that it reads."""
    with server.database() as url:
        asyncio.run(fill(url, "ordered", entities))
        asyncio.run(place(url))
        databases = Databases(url)
        databases.execute("VACUUM ANALYZE")
        sql = connect(url, clock=Clock()).sql("claim")  # type: ignore[attr-defined]
        kind = "ARRAY['ordered']", "ARRAY['invoice.paid']", "ARRAY['']"
        claim = work._fill_in(sql, "'w'", "60", *kind, "ARRAY[0]", "ARRAY[16]")
        plan = databases.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claim}")
        [found] = json.loads(plan) if isinstance(plan, str) else plan
        root = found["Plan"]
        return root["Actual Rows"], root["Shared Hit Blocks"] + root["Shared Read Blocks"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.order", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=["rates", "buffers"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="one round of few events: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="the tables as Markdown on stdout")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.events, options.entities = 1, 2000, 200
    show = (lambda *given: print(report.markdown(*given))) if options.markdown else report.show
    with postgresql() as server:
        notes = report.machine(server.version)
        if options.only != "buffers":
            show(*_rates(server, options), notes)
        if options.only != "rates":
            show(*_buffers(server, options.events), notes)
    return 0


def _rates(server: Postgresql, options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    lines = []
    for database in ("postgres", "sqlite"):
        runs: dict[str, list[float]] = {"rows": [], "ordered": [], "guarded": []}
        for number in range(1, options.rounds + 1):
            for source, found in runs.items():
                found.append(rate(server, database, source, options.events, options.entities))
                print(f"round {number}: {database} {source} {found[-1]:,.0f}/s", file=sys.stderr)
        for source, found in runs.items():
            ratios = [one / plain for one, plain in zip(found, runs["rows"], strict=True)]
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            lines.append(
                [database, source, f"{statistics.median(found):,.0f}", f"{statistics.median(ratios):.2f}", spread]
            )
    return ["database", "handler", "events/s", "ratio to plain rows", "min-max"], lines


def _buffers(server: Postgresql, events: int) -> tuple[list[str], list[list[str]]]:
    cases = {
        "100 entities, one event each": list(range(100)),
        f"{events:,} entities, one event each": list(range(events)),
        f"one entity with {events:,} events, then one event of each of 100": [0] * events + list(range(1, 101)),
    }
    lines = []
    for name, entities in cases.items():
        claimed, read = buffers(server, entities)
        lines.append([name, f"{claimed}", f"{read:,}"])
        print(f"{name}: {claimed} events, {read:,} buffers", file=sys.stderr)
    return ["waiting", "claimed", "buffers"], lines


if __name__ == "__main__":
    sys.exit(main())
