"""How many events per second one worker process handles, and how that compares with pgbench.

    python -m benchmarks.work                    # everything, three rounds
    python -m benchmarks.work --quick            # does it run at all
    python -m benchmarks.work --markdown         # for docs/explanation/performance.md

The peer is pgbench, a C program, that runs the statements of the one-row handler: claim one event, begin with
the transaction-local settings, insert the row, write the outcome, commit; with as many clients as our worker has
slots. A second pgbench run leaves the claims out (ours takes many at once), which is the harder peer.
Rates are events over the time from the first claim to the last outcome, as the database has them. With effects, to
the last effect done: each event then has one effect whose function does nothing, so only the ledger is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
from tests.services.postgres import Databases

from benchmarks import report
from benchmarks.pgbench import pgbench
from benchmarks.servers import ROOT, Postgresql, ServerError, postgresql
from hookledger.clock import Clock
from hookledger.ids import key_identity
from hookledger.model import Arrival, Item, Proof
from hookledger.states import KeyOrigin
from hookledger.store.connect import connect

CLIENTS = 16
WITH_EFFECTS = ("calls", "laters")
BODY = b'{"id":"evt_0","type":"invoice.paid","data":{"object":{"id":"in_0","note":"' + b"x" * 1100 + b'"}}}'


def event_id(number: int) -> UUID:
    return UUID(int=number)


def arrival(source: str, number: int) -> Arrival:
    key = f"evt_{number}"
    digest = sha256(key.encode()).digest()
    item = Item(key, KeyOrigin.SIGNED_ID, key_identity(source, key.encode()), digest, "invoice.paid")
    proof, own = Proof("hmac-sha256", "00000000"), UUID(int=number + 2**64)
    return Arrival(own, source, b"", b"", BODY, None, proof, (item,), (event_id(number),))


async def fill(url: str, source: str, count: int) -> None:
    """`count` events that wait, and the business table."""
    store = connect(url, clock=Clock())
    await store.open(handlers=1)
    await store.migrate()
    for start in range(0, count, 500):
        await store.record([arrival(source, number) for number in range(start + 1, min(start + 500, count) + 1)])
    await store.close()


Fill = Callable[[str, str, int], Coroutine[Any, Any, None]]


# ── ours ─────────────────────────────────────────────────────────────────────


def worker(url: str) -> None:
    """`hookledger work --drain`, as a user runs it."""
    environment = {**os.environ, "HOOKLEDGER_DATABASE": url, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "hookledger", "work", "--drain", "--app", "benchmarks.work_app:inbox"]
    command += ["--log-level", "error", "--concurrency", str(CLIENTS)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stderr=subprocess.DEVNULL, timeout=300)


def rate_on_postgres(server: Postgresql, source: str, count: int, fill: Fill = fill) -> float:
    with server.database() as url:
        Databases(url).execute("CREATE TABLE business (event text)")
        asyncio.run(fill(url, source, count))
        Databases(url).execute("VACUUM ANALYZE")
        worker(url)
        table = "hookledger.effects" if source in WITH_EFFECTS else "business"
        done = " WHERE state = 'done'" if source in WITH_EFFECTS else ""
        last = "greatest(max(finished_at), (SELECT max(finished_at) FROM hookledger.effects))"
        return _checked(
            count,
            0 if source == "empty" else count,
            int(Databases(url).fetchval("SELECT count(*) FROM hookledger.events WHERE state = 'processed'")),
            int(Databases(url).fetchval(f"SELECT count(*) FROM {table}{done}")),
            float(
                Databases(url).fetchval(f"SELECT extract(epoch FROM {last} - min(claimed_at)) FROM hookledger.events")
            ),
        )


def rate_on_sqlite(_server: Postgresql, source: str, count: int, fill: Fill = fill) -> float:
    with tempfile.TemporaryDirectory(prefix="hookledger-bench-") as directory:
        path = Path(directory) / "inbox.db"
        asyncio.run(fill(f"sqlite:///{path}", source, count))
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE business (event TEXT)")
        worker(f"sqlite:///{path}")

        def value(sql: str) -> float:
            return float(str(connection.execute(sql).fetchall()[0][0]))

        rows = 0 if source == "empty" else count
        processed = int(value("SELECT count(*) FROM events WHERE state = 'processed'"))
        table = "effects WHERE state = 'done'" if source in WITH_EFFECTS else "business"
        effects = int(value(f"SELECT count(*) FROM {table}"))
        last = "max(max(finished_at), (SELECT coalesce(max(finished_at), 0) FROM effects))"
        span = value(f"SELECT ({last} - min(claimed_at)) / 1e6 FROM events")
        connection.close()
        return _checked(count, rows, processed, effects, span)


def _checked(count: int, rows: int, processed: int, effects: int, seconds: float) -> float:
    if processed != count or effects != rows:
        raise ServerError(f"{count} events, but {processed} processed with {effects} effects of {rows}")
    return count / seconds


# ── pgbench ──────────────────────────────────────────────────────────────────


def script(url: str, *, claims: bool) -> str:
    """The worker's own statements, parameters written into them."""
    store = connect(url, clock=Clock())
    sql: Callable[[str], str] = store.sql  # type: ignore[attr-defined]
    kind = ("ARRAY['rows']", "ARRAY['invoice.paid']", "ARRAY['']")
    claim = _fill_in(sql("claim"), "'pgbench'", "60", *kind, "ARRAY[0]", "ARRAY[1]")
    begin = sql("begin_handler") % ("mark", 60000, 60000)
    settle = _fill_in(
        sql("settle"),
        "ARRAY[:id::uuid]" if claims else "ARRAY[lpad(to_hex((:client_id * 1000000 + :i)::bigint), 32, '0')::uuid]",
        "ARRAY[:claim::bigint]" if claims else "ARRAY[1::bigint]",
        "ARRAY['complete']",
        "ARRAY['processed']",
        "ARRAY[NULL]",
        "ARRAY[0.0]",
        *["ARRAY[NULL]"] * 5,
        "'mark'",
    )
    lines = [f"{claim} \\gset" if claims else "\\set i :i + 1", *(f"{part};" for part in begin.split(";"))]
    key = ":key" if claims else "'evt_' || (:client_id * 1000000 + :i)::bigint"
    lines += [f"INSERT INTO business (event) VALUES ({key});", f"{settle};", "COMMIT;"]
    return "\n".join(" ".join(line.split()) for line in lines) + "\n"


def _fill_in(sql: str, *values: str) -> str:
    for number in range(len(values), 0, -1):
        sql = sql.replace(f"${number}", values[number - 1])
    return sql


def rate_of_pgbench(server: Postgresql, count: int, *, claims: bool) -> float:
    each = count // CLIENTS
    with server.database() as url, tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        databases = Databases(url)
        databases.execute("CREATE TABLE business (event text)")
        if claims:
            asyncio.run(fill(url, "rows", count))
        else:
            asyncio.run(_fill_claimed(url, each))
        databases.execute("VACUUM ANALYZE")
        file.write(script(url, claims=claims))
        file.flush()
        result = pgbench(url, Path(file.name), clients=CLIENTS, seconds=60, each=each, variables={"i": 0})
        done = int(databases.fetchval("SELECT count(*) FROM hookledger.events WHERE state = 'processed'"))
        if done != each * CLIENTS or result.failed:
            raise ServerError(f"pgbench processed {done} of {each * CLIENTS}")
        return result.tps


async def _fill_claimed(url: str, each: int) -> None:
    """Events that every client finds by its own number, claimed already."""
    store = connect(url, clock=Clock())
    await store.open(handlers=1)
    await store.migrate()
    numbers = [client * 1_000_000 + i for client in range(CLIENTS) for i in range(1, each + 1)]
    for start in range(0, len(numbers), 500):
        await store.record([arrival("rows", number) for number in numbers[start : start + 500]])
    await store.close()
    Databases(url).execute(
        "UPDATE hookledger.events SET state = 'processing', claim = 1, attempts = 1, worker = 'pgbench', "
        "claimed_at = now(), leased_until = now() + interval '1 hour', due_at = NULL"
    )


# ── the table ────────────────────────────────────────────────────────────────

TARGETS: dict[str, tuple[str, Callable[[Postgresql, int], float]]] = {
    "pgbench": ("pgbench, the same statements", lambda s, n: rate_of_pgbench(s, n, claims=True)),
    "pgbench_no_claims": ("pgbench, without the claims", lambda s, n: rate_of_pgbench(s, n, claims=False)),
    "postgres_row": ("PostgreSQL, one-row handler", lambda s, n: rate_on_postgres(s, "rows", n)),
    "postgres_batch": ("PostgreSQL, one-row handler, batch=50", lambda s, n: rate_on_postgres(s, "batches", n)),
    "postgres_empty": ("PostgreSQL, empty handler", lambda s, n: rate_on_postgres(s, "empty", n)),
    "postgres_call": ("PostgreSQL, one event.call each", lambda s, n: rate_on_postgres(s, "calls", n)),
    "postgres_later": ("PostgreSQL, one event.later each", lambda s, n: rate_on_postgres(s, "laters", n)),
    "sqlite_row": ("SQLite, one-row handler", lambda s, n: rate_on_sqlite(s, "rows", n)),
    "sqlite_batch": ("SQLite, one-row handler, batch=50", lambda s, n: rate_on_sqlite(s, "batches", n)),
    "sqlite_empty": ("SQLite, empty handler", lambda s, n: rate_on_sqlite(s, "empty", n)),
    "sqlite_call": ("SQLite, one event.call each", lambda s, n: rate_on_sqlite(s, "calls", n)),
    "sqlite_later": ("SQLite, one event.later each", lambda s, n: rate_on_sqlite(s, "laters", n)),
}
GOAL = ("postgres_row", "pgbench", 0.5)


@contextmanager
def timed(label: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{label}: {time.monotonic() - started:.1f} s", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.work", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(TARGETS), help=f"a comma list of: {', '.join(TARGETS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=16_000)
    parser.add_argument("--quick", action="store_true", help="one round of few events: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown on stdout")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.events = 1, 1600
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(TARGETS):
        parser.error(f"unknown target: {', '.join(sorted(unknown))}")

    runs: dict[str, list[float]] = {name: [] for name in wanted}
    with ExitStack() as stack:
        server = stack.enter_context(postgresql())
        for number in range(1, options.rounds + 1):
            for name in wanted:
                with timed(f"round {number}: {name}"):
                    runs[name].append(TARGETS[name][1](server, options.events))
        notes = report.machine(server.version)
    rates = {name: statistics.median(found) for name, found in runs.items()}
    head = ["target", "events/s", "min-max", "ratio to pgbench", "stated target"]
    lines = []
    for name in wanted:
        ratio = f"{rates[name] / rates['pgbench']:.2f}" if "pgbench" in rates else "not measured"
        stated = "none"
        if name == GOAL[0] and "pgbench" in rates:
            verdict = "met" if rates[name] >= GOAL[2] * rates["pgbench"] else "MISSED"
            stated = f"≥ {GOAL[2]} times pgbench: {verdict}"
        spread = f"{min(runs[name]):,.0f}-{max(runs[name]):,.0f}"
        lines.append([TARGETS[name][0], f"{rates[name]:,.0f}", spread, ratio, stated])
    notes.append(
        f"{options.events:,} events with bodies of about 1.2 kB a run, {options.rounds} interleaved rounds, "
        f"one worker process with {CLIENTS} slots, pgbench with {CLIENTS} clients and prepared statements"
    )
    print(report.markdown(head, lines, notes)) if options.markdown else report.show(head, lines, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
