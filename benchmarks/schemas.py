"""What checking content against a schema costs a worker: pairs of runs, with and without the schema.

    python -m benchmarks.schemas                 # eleven pairs on each store
    python -m benchmarks.schemas --quick         # does it run at all

Bodies of about 1.2 kB with seven line items, and a schema of all their fields. The one-row handler does not read the
content, so a run with a check pays for decoding it as well: a handler that reads `event.json` would decode it anyway.
The runs of a pair follow each other, first the one, then the other; the cost is the median of the pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from benchmarks import report, work
from benchmarks.servers import postgresql
from hookledger.clock import Clock
from hookledger.schemas.shape import Draft
from hookledger.store.connect import connect

SCHEMAS = "BENCHMARK_SCHEMAS"
"""Names the folder to work_app.py."""
GOAL = 0.15
LINE = {"id": "il_0", "amount": 1200, "currency": "eur", "quantity": 1, "description": "Seats of the plan, monthly"}
INVOICE = {
    "id": "in_0",
    "amount_paid": 8400,
    "currency": "eur",
    "customer": "cus_0",
    "status": "paid",
    "lines": {"data": [{**LINE, "id": f"il_{number}"} for number in range(7)]},
    "metadata": {"order": "order_0", "note": "x" * 270},
}
CONTENT = {"id": "evt_0", "type": "invoice.paid", "created": 1_790_000_000, "data": {"object": INVOICE}}
BODY = json.dumps(CONTENT, separators=(",", ":")).encode()


async def fill(url: str, source: str, count: int) -> None:
    store = connect(url, clock=Clock())
    await store.open(handlers=1)
    await store.migrate()
    for start in range(0, count, 500):
        numbers = range(start + 1, min(start + 500, count) + 1)
        await store.record([replace(work.arrival(source, number), body=BODY) for number in numbers])
    await store.close()


def folder(root: Path) -> None:
    """Write a schema of every field, with limits and a pattern."""
    draft = Draft()
    for _ in range(2):
        draft.add(CONTENT)
    document = draft.document("benchmark")
    invoice = document["properties"]["data"]["properties"]["object"]["properties"]
    invoice["id"]["pattern"] = "^in_"
    invoice["amount_paid"]["minimum"] = 0
    invoice["currency"]["enum"] = ["eur", "usd"]
    file = root / "rows" / "invoice.paid" / "default.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(document))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schemas", description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--events", type=int, default=16_000)
    parser.add_argument("--quick", action="store_true", help="two pairs of few events: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown on stdout")
    options = parser.parse_args(arguments)
    if options.quick:
        options.pairs, options.events = 2, 3200
    lines = []
    with tempfile.TemporaryDirectory(prefix="hookledger-schemas-") as root, postgresql() as server:
        folder(Path(root))
        stores = {"PostgreSQL": work.rate_on_postgres, "SQLite": work.rate_on_sqlite}
        for name, rate in stores.items():
            run = partial(rate, server, "rows", options.events, fill)
            plain: list[float] = []
            checked: list[float] = []
            cpu_plain: list[float] = []
            cpu_checked: list[float] = []
            for number in range(options.pairs):
                for with_schema in (False, True) if number % 2 else (True, False):
                    os.environ[SCHEMAS] = root if with_schema else ""
                    before = resource.getrusage(resource.RUSAGE_CHILDREN)
                    (checked if with_schema else plain).append(run())
                    after = resource.getrusage(resource.RUSAGE_CHILDREN)
                    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                    (cpu_checked if with_schema else cpu_plain).append(used / options.events)
            costs = [1 - one / other for one, other in zip(checked, plain, strict=True)]
            cost = statistics.median(costs)
            more = statistics.median(one - other for one, other in zip(cpu_checked, cpu_plain, strict=True))
            cpu = f"{more * 1e6:+.0f} of {statistics.median(cpu_plain) * 1e6:.0f} µs"
            verdict = "met" if cost < GOAL else "MISSED"
            spread = f"{min(costs):.1%} to {max(costs):.1%}"
            rates = f"{statistics.median(plain):,.0f}", f"{statistics.median(checked):,.0f}"
            lines.append([name, *rates, f"{cost:.1%}", spread, cpu, f"< {GOAL:.0%}: {verdict}"])
        notes = report.machine(server.version)
    head = [
        "store",
        "events/s without",
        "with a schema",
        "cost",
        "of pairs",
        "CPU of the worker an event",
        "stated target",
    ]
    notes.append(f"{options.events:,} events of {len(BODY):,} bytes a run, {options.pairs} pairs, one worker process")
    print(report.markdown(head, lines, notes)) if options.markdown else report.show(head, lines, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
