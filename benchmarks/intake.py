"""How many signed deliveries per second are accepted, and how that compares with what people write by hand.

    python -m benchmarks.intake                              # everything, three rounds
    python -m benchmarks.intake --only nothing,one_row       # some targets
    python -m benchmarks.intake --only sqlite,sqlite_lines   # what a log line for each delivery costs
    python -m benchmarks.intake --quick                      # does it run at all
    python -m benchmarks.intake --markdown                   # for docs/explanation/performance.md

Runs are interleaved: in each round every target runs once, on a fresh server and a fresh database, so that
a machine that slows down slows everyone. Figures are medians over the rounds, ratios are of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import apsw
from tests.services.ports import free_port
from tests.services.postgres import Databases

from benchmarks import report
from benchmarks.load import MAX_REQUESTS, Result
from benchmarks.servers import ROOT, Postgresql, Server, granian, postgresql, uvicorn, valkey

SECRET = "whsec_benchmark"
PEERS = ("nothing", "nothing_uvicorn", "one_row", "redis_guard")


@dataclass(frozen=True)
class Running:
    """A target that answers now."""

    server: Server
    watch: Mapping[str, int]
    rows: Callable[[], int] | None = None
    """How many events it owns: must equal what it accepted. None where nothing is kept."""


@dataclass
class Room:
    """What the targets of one measurement share."""

    stack: ExitStack
    peer_server: Callable[[str, Mapping[str, str]], Server]
    _postgresql: Postgresql | None = field(default=None, init=False)

    @property
    def postgresql(self) -> Postgresql:
        """Started when the first target needs it, and kept until the end."""
        if self._postgresql is None:
            self._postgresql = self.stack.enter_context(postgresql())
        return self._postgresql

    @property
    def postgresql_version(self) -> str | None:
        return self._postgresql.version if self._postgresql else None


LINES = ("--log-dev", "--log-json")
"""A JSON line for each delivery."""


def ours(database_url: str, options: Sequence[str] = ()) -> Server:
    """Our receiver as `hookledger receive` runs it, migrated first."""
    port = free_port()
    file = "ours_without_rates.toml" if os.environ.get("BENCHMARK_RATES") == "off" else "ours.toml"
    settings = ["--config", str(ROOT / "benchmarks" / file), "--database", database_url]
    command = [sys.executable, "-m", "hookledger"]
    listen = ["--port", str(port), "--operator-port", str(free_port())]
    return Server(
        [*command, "receive", "--log-level", "error", *options, *listen, *settings],
        port,
        prepare=[[*command, "migrate", *settings]],
        path="/stripe",
    )


@contextmanager
def nothing(room: Room) -> Iterator[Running]:
    server = granian("benchmarks.peers.nothing:app")
    with server.running() as pid:
        yield Running(server, {"server": pid})


@contextmanager
def nothing_uvicorn(room: Room) -> Iterator[Running]:
    server = uvicorn("benchmarks.peers.nothing:app")
    with server.running() as pid:
        yield Running(server, {"server": pid})


@contextmanager
def one_row(room: Room) -> Iterator[Running]:
    with room.postgresql.database() as url:
        server = room.peer_server("benchmarks.peers.one_row:app", {"DATABASE_URL": url, "STRIPE_SECRET": SECRET})
        with server.running() as pid:
            yield Running(server, watched(room, server=pid), lambda: _peer_rows(url))


@contextmanager
def redis_guard(room: Room) -> Iterator[Running]:
    with room.postgresql.database() as url, valkey() as (redis_url, valkey_pid):
        env = {"DATABASE_URL": url, "REDIS_URL": redis_url, "STRIPE_SECRET": SECRET}
        server = room.peer_server("benchmarks.peers.redis_guard:app", env)
        with server.running() as pid:
            yield Running(server, watched(room, server=pid, valkey=valkey_pid), lambda: _peer_rows(url))


@contextmanager
def ours_postgres(room: Room, options: Sequence[str] = ()) -> Iterator[Running]:
    with room.postgresql.database() as url:
        server = ours(url, options)
        with server.running() as pid:
            yield Running(server, watched(room, server=pid), lambda: _our_rows_postgres(url))


@contextmanager
def ours_sqlite(room: Room, options: Sequence[str] = ()) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="hookledger-bench-") as directory:
        server = ours(f"sqlite:///{directory}/inbox.db", options)
        with server.running() as pid:
            yield Running(server, {"server": pid}, lambda: _our_rows_sqlite(f"{directory}/inbox.db"))


def watched(room: Room, **pids: int) -> dict[str, int]:
    return {**pids, "postgres": room.postgresql.pid} if room.postgresql.pid else pids


def _peer_rows(url: str) -> int:
    return int(Databases(url).fetchval("SELECT count(*) FROM webhook_events"))


def _our_rows_postgres(url: str) -> int:
    return int(Databases(url).fetchval("SELECT count(*) FROM hookledger.events"))


def _our_rows_sqlite(path: str) -> int:
    return int(str(apsw.Connection(path).execute("SELECT count(*) FROM events").fetchall()[0][0]))


@dataclass(frozen=True)
class Target:
    name: str
    label: str
    open: Callable[[Room], AbstractContextManager[Running]]
    ceiling: int
    """Requests prepared per second: well above what it reaches, so that they do not run out."""
    goals: Sequence[report.Goal] = ()


GOALS = (report.Goal("nothing", 0.4), report.Goal("one_row", 4.0), report.Goal("redis_guard", 6.0))

TARGETS = (
    Target("nothing", "ASGI app that keeps nothing", nothing, 40_000),
    Target("nothing_uvicorn", "the same on uvicorn, which has our parser", nothing_uvicorn, 40_000),
    Target("one_row", "FastAPI, one durable row per request", one_row, 10_000),
    Target("redis_guard", "FastAPI, Redis lock and cache, one durable row", redis_guard, 10_000),
    Target("postgres", "Hookledger on PostgreSQL", ours_postgres, 25_000, GOALS),
    Target("sqlite", "Hookledger on SQLite", ours_sqlite, 25_000, GOALS),
)
WITH_LINES = (
    Target(
        "postgres_lines", "Hookledger on PostgreSQL, a log line each", partial(ours_postgres, options=LINES), 25_000
    ),
    Target("sqlite_lines", "Hookledger on SQLite, a log line each", partial(ours_sqlite, options=LINES), 25_000),
)
"""Run only if they are asked for."""


class WrongFiguresError(Exception):
    """A run whose figures must not be published: lost rows."""


def measure(target: Target, room: Room, *, seconds: float, warmup: float, connections: int) -> Result:
    """One run against a fresh server, the load in a process of its own."""
    prepared = min(MAX_REQUESTS, int(target.ceiling * (seconds + warmup)))
    with target.open(room) as running:
        command = [sys.executable, "-m", "benchmarks.load", "--secret", SECRET, "--path", running.server.path]
        command += ["--port", str(running.server.port), "--connections", str(connections)]
        command += ["--requests", str(prepared), "--seconds", str(seconds), "--warmup", str(warmup)]
        for name, pid in running.watch.items():
            command += ["--watch", f"{name}={pid}"]
        limit = seconds + warmup + 120  # signing the requests, connecting and draining have limits of their own
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=limit)
        result = Result(**json.loads(done.stdout))
        if running.rows is not None and (rows := running.rows()) != result.accepted:
            raise WrongFiguresError(f"{target.name} accepted {result.accepted} deliveries and owns {rows} rows")
    return result


def calmest(tries: int, run: Callable[[], Result]) -> Result:
    """Run again while others disturb it; keep the least disturbed. Chosen by disturbance, never by rate."""
    seen: list[Result] = []
    while len(seen) < tries:
        seen.append(run())
        if report.disturbance(seen[-1]) <= report.DISTURBED:
            return seen[-1]
    return min(seen, key=report.disturbance)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intake", description=__doc__.split("\n")[0])
    names = [target.name for target in TARGETS]
    more = [target.name for target in WITH_LINES]
    parser.add_argument("--only", default=",".join(names), help=f"a comma list of: {', '.join([*names, *more])}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warmup", type=float, default=2.0)
    parser.add_argument("--tries", type=int, default=3, help="at most so many runs where others disturb one")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--peer-server", choices=["granian", "uvicorn"], default="granian")
    parser.add_argument("--quick", action="store_true", help="one round of one second: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown on stdout")
    parser.add_argument("--json", action="store_true", help="every run as JSON on stdout")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.tries, options.seconds, options.warmup = 1, 1, 1.0, 0.5
    wanted = options.only.split(",")
    if unknown := set(wanted) - {*names, *more}:
        parser.error(f"unknown target: {', '.join(sorted(unknown))}")
    targets = [target for target in (*TARGETS, *WITH_LINES) if target.name in wanted]
    runs: dict[str, list[Result]] = {target.name: [] for target in targets}
    with ExitStack() as stack:
        room = Room(stack, {"granian": granian, "uvicorn": uvicorn}[options.peer_server])
        for number in range(1, options.rounds + 1):
            for target in targets:
                run = partial(
                    measure,
                    target,
                    room,
                    seconds=options.seconds,
                    warmup=options.warmup,
                    connections=options.connections,
                )
                result = calmest(options.tries, run)
                runs[target.name].append(result)
                print(f"round {number}: {target.name} {result.rate:,.0f}/s {result.cpu}", file=sys.stderr)
        notes = report.machine(room.postgresql_version)

    rows = [report.Row(target.name, target.label, runs[target.name], target.goals) for target in targets]
    notes += [f"{target.name}: {target.label}" for target in targets]
    notes += [
        f"{options.connections} keep-alive connections, unique signed bodies of about 1.2 kB, "
        f"{options.rounds} interleaved rounds of {options.seconds:g} s after {options.warmup:g} s of warm-up; "
        "load and servers share the machine",
        "every server one worker process; PostgreSQL with fsync and synchronous_commit on; "
        "Valkey with appendonly yes, appendfsync everysec",
        f"CPU in cores; a run is disturbed when others here or on the host had more than {report.DISTURBED}",
    ]
    head, lines = report.cells(rows, PEERS)
    if options.json:
        print(json.dumps({name: [vars(run) for run in results] for name, results in runs.items()}, indent=1))
    elif options.markdown:
        print(report.markdown(head, lines, notes))
    else:
        report.show(head, lines, notes)
    return 0 if not any(row.failures for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
