"""How many answers per second are computed, stored and sent, and how many duplicates get theirs.

    python -m benchmarks.answers                       # everything, three rounds
    python -m benchmarks.answers --only redis,upsert   # some targets
    python -m benchmarks.answers --quick               # does it run at all
    python -m benchmarks.answers --markdown            # for docs/explanation/performance.md

Each target answers signed Stripe events with JSON that its handler makes of the event. `new` sends another event each
time; `duplicate` sends the same thousand events again and again, after each was answered once. Runs are interleaved:
in each round every target runs once in each way, on a fresh server and a fresh database. Figures are medians over the
rounds, ratios are of medians.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import apsw
import redis
from tests.services.ports import free_port
from tests.services.postgres import Databases

from benchmarks import report
from benchmarks.intake import SECRET, Room, Running, WrongFiguresError, calmest, watched
from benchmarks.load import MAX_REQUESTS, Plan, Result, signed_requests
from benchmarks.servers import ROOT, Server, granian, uvicorn, valkey

DISTINCT = 1_000
"""Events of a run of duplicates."""
WAYS = ("new", "duplicate")
PEERS = ("redis", "upsert", "upsert_look")


@contextmanager
def with_redis(room: Room, app: str) -> Iterator[Running]:
    with valkey() as (url, valkey_pid):
        server = room.peer_server(app, {"REDIS_URL": url, "STRIPE_SECRET": SECRET})
        with server.running() as pid:
            yield Running(server, {"server": pid, "valkey": valkey_pid}, lambda: _keys(url))


def _keys(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.dbsize())


@contextmanager
def upsert(room: Room, environment: Mapping[str, str]) -> Iterator[Running]:
    with room.postgresql.database() as url:
        env = {"DATABASE_URL": url, "STRIPE_SECRET": SECRET, **environment}
        server = room.peer_server("benchmarks.peers.answers_upsert:app", env)
        with server.running() as pid:
            count = "SELECT count(*) FROM webhook_answers WHERE answer IS NOT NULL"
            yield Running(server, watched(room, server=pid), lambda: int(Databases(url).fetchval(count)))


@contextmanager
def ours_postgres(room: Room) -> Iterator[Running]:
    with room.postgresql.database() as url:
        server = ours(url)
        with server.running() as pid:
            count = "SELECT count(*) FROM hookledger.answers"
            yield Running(server, watched(room, server=pid), lambda: int(Databases(url).fetchval(count)))


@contextmanager
def ours_sqlite(room: Room) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="hookledger-bench-") as directory:
        server = ours(f"sqlite:///{directory}/inbox.db")
        with server.running() as pid:
            yield Running(server, {"server": pid}, lambda: _answers_sqlite(f"{directory}/inbox.db"))


def _answers_sqlite(path: str) -> int:
    return int(str(apsw.Connection(path).execute("SELECT count(*) FROM answers").fetchall()[0][0]))


def ours(database_url: str) -> Server:
    """Our receiver as `hookledger receive` runs it: with a process for the handlers that answer."""
    port = free_port()
    command = [sys.executable, "-m", "hookledger"]
    settings = ["--app", "benchmarks.answers_app:inbox", "--database", database_url]
    listen = ["--port", str(port), "--operator-port", str(free_port())]
    return Server(
        [*command, "receive", "--log-level", "error", *listen, *settings],
        port,
        {"HOOKLEDGER_DATABASE": database_url, "STRIPE_SECRET": SECRET},
        prepare=[[*command, "migrate", *settings]],
        path="/stripe",
    )


@dataclass(frozen=True)
class Target:
    name: str
    label: str
    open: Callable[[Room], AbstractContextManager[Running]]
    goals: Sequence[report.Goal] = ()


GOALS = tuple(report.Goal(peer, 1.0) for peer in PEERS)

TARGETS = (
    Target(
        "redis",
        "FastAPI, lock and cached response in Redis",
        partial(with_redis, app="benchmarks.peers.answers_redis:app"),
    ),
    Target(
        "guard", "FastAPI, hookledger.contrib.redis", partial(with_redis, app="benchmarks.peers.answers_guard:app")
    ),
    Target("upsert", "FastAPI, upsert in PostgreSQL", partial(upsert, environment={})),
    Target("upsert_look", "the same, with a look before the insert", partial(upsert, environment={"PEER_LOOK": "1"})),
    Target("postgres", "Hookledger on PostgreSQL", ours_postgres, GOALS),
    Target("sqlite", "Hookledger on SQLite", ours_sqlite, GOALS),
)


def check_repeats(running: Running) -> None:
    """Raise unless a second delivery gets the first one's answer; the load reads only statuses."""
    plan = Plan(running.server.port, SECRET, path=running.server.path, connections=1, requests=1)
    [request] = signed_requests(plan)
    first, second = (_exchange(running.server.port, request) for _ in range(2))
    if first != second or not first[0].startswith(b"HTTP/1.1 200") or b"thank you" not in first[1]:
        raise WrongFiguresError(f"two deliveries of one event got {first} and {second}")


def _exchange(port: int, request: bytes) -> tuple[bytes, bytes]:
    """The line of the status and the body; other headers may have the time."""
    head, _, body = request.partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    top, _, content = answer.partition(b"\r\n\r\n")
    return top.split(b"\r\n", 1)[0], content


def measure(target: Target, way: str, room: Room, options: argparse.Namespace) -> Result:
    """One run against a fresh server, the load in a process of its own."""
    seconds, warmup, ceiling = options.seconds, options.warmup, 25_000
    prepared = MAX_REQUESTS if way == "duplicate" else min(MAX_REQUESTS, int(ceiling * (seconds + warmup)))
    with target.open(room) as running:
        check_repeats(running)
        command = [sys.executable, "-m", "benchmarks.load", "--secret", SECRET, "--path", running.server.path]
        command += ["--port", str(running.server.port), "--connections", str(options.connections)]
        command += ["--requests", str(prepared), "--seconds", str(seconds), "--warmup", str(warmup)]
        command += ["--distinct", str(DISTINCT)] if way == "duplicate" else []
        for name, pid in running.watch.items():
            command += ["--watch", f"{name}={pid}"]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=seconds + warmup + 180)
        result = Result(**json.loads(done.stdout))
        owned = (DISTINCT if way == "duplicate" else result.accepted) + 1  # and that of check_repeats
        if running.rows is not None and (rows := running.rows()) != owned:
            raise WrongFiguresError(f"{target.name} should own {owned} answers and owns {rows}")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description=__doc__.split("\n")[0])
    names = [target.name for target in TARGETS]
    parser.add_argument("--only", default=",".join(names), help=f"a comma list of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warmup", type=float, default=2.0)
    parser.add_argument("--tries", type=int, default=3, help="at most so many runs where others disturb one")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--peer-server", choices=["granian", "uvicorn"], default="granian")
    parser.add_argument("--quick", action="store_true", help="one round of one second: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="the tables as Markdown on stdout")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.tries, options.seconds, options.warmup = 1, 1, 1.0, 0.5
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(names):
        parser.error(f"unknown target: {', '.join(sorted(unknown))}")
    targets = [target for target in TARGETS if target.name in wanted]
    runs: dict[tuple[str, str], list[Result]] = {(target.name, way): [] for target in targets for way in WAYS}
    with ExitStack() as stack:
        room = Room(stack, {"granian": granian, "uvicorn": uvicorn}[options.peer_server])
        for number in range(1, options.rounds + 1):
            for target in targets:
                for way in WAYS:
                    result = calmest(options.tries, partial(measure, target, way, room, options))
                    runs[target.name, way].append(result)
                    print(f"round {number}: {target.name} {way} {result.rate:,.0f}/s {result.cpu}", file=sys.stderr)
        notes = report.machine(room.postgresql_version)

    notes += [f"{target.name}: {target.label}" for target in targets]
    notes += [
        f"{options.connections} keep-alive connections, signed bodies of about 1.2 kB, {options.rounds} interleaved "
        f"rounds of {options.seconds:g} s after {options.warmup:g} s of warm-up; load and servers share the machine",
        "every server one worker process; PostgreSQL with fsync and synchronous_commit on; "
        "Valkey with appendonly yes, appendfsync everysec: its answers are not durable when they are sent",
        f"CPU in cores; a run is disturbed when others here or on the host had more than {report.DISTURBED}",
    ]
    failures = 0
    for way in WAYS:
        rows = [report.Row(target.name, target.label, runs[target.name, way], target.goals) for target in targets]
        failures += sum(row.failures for row in rows)
        head, lines = report.cells(rows, PEERS)
        head[0] = f"{way} answers"
        told = notes if way == WAYS[-1] else []
        if options.markdown:
            print(report.markdown(head, lines, told))
        else:
            report.show(head, lines, told)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
