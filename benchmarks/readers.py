"""What an ack costs while operators read without a pause: a part of `benchmarks.operate`.

A steady load goes to a real receiver. Callers in a process of their own read pages of 500 events from the API, as
fast as they get them; that process is stopped and let go by turns. The API is served in three arrangements, each with
a receiver and a database of its own, and these take turns too: a machine that slows down slows all figures.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from tests.services.ports import free_port

from benchmarks.prune import Client, Load, percentile, tell
from benchmarks.servers import ROOT, Postgresql, Server
from hookledger.cli.supervise import lower_priority

TOKEN = "a-made-up-token-to-read-with"
CALLERS = 4
PAGE = 500
EVENTS = 1_000
"""In the inbox when it begins."""
PER_SECOND = 100.0
SETTLE = 0.5
"""Seconds after each change that count for neither."""
HERE, APART, BEHIND = "the receiver's process", "a process of its own", "the same, which stands back"
"""Where the API is: as in `hookledger receive`, beside it, and as under `hookledger serve`."""


@dataclass
class Arrangement:
    """One receiver, the API beside it, and what was measured there."""

    load: Load
    readers: subprocess.Popen[bytes]
    pids: dict[str, int]
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    pages: int = 0

    async def phase(self, name: str, seconds: float) -> None:
        tell(self.readers, signal.SIGCONT if name == "with" else signal.SIGSTOP)
        await asyncio.sleep(SETTLE)
        self.load.phase = name
        await asyncio.sleep(seconds)
        self.load.phase = None
        tell(self.readers, signal.SIGSTOP)
        self.seconds[name] += seconds + (SETTLE if name == "with" else 0.0)

    def cells(self) -> list[str]:
        table = []
        for share in (0.5, 0.99):
            before, after = (percentile(self.load.latencies[phase], share) for phase in ("without", "with"))
            table += [f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"]
        return [*table, f"{self.pages / self.seconds['with']:.0f}"]


def command(name: str, url: str, *options: str) -> list[str]:
    config = ["--config", str(ROOT / "benchmarks" / "readers.toml"), "--database", url]
    return [sys.executable, "-m", "hookledger", name, *config, *options]


@contextmanager
def arranged(where: str, url: str) -> Iterator[Arrangement]:
    port, operator = free_port(), free_port()
    listen, quiet = ["--operator-port", str(operator)], ["--log-level", "error"]
    alone = [] if where == HERE else ["--no-operator"]
    receiver = Server(
        command("receive", url, "--port", str(port), *listen, *quiet, *alone), port, prepare=[command("migrate", url)]
    )
    health = ["--receiver", f"http://127.0.0.1:{port}"]
    apart = Server(command("api", url, *health, *listen, *quiet), operator)
    with ExitStack() as stack:
        pids = {"receive": stack.enter_context(receiver.running())}
        if where != HERE:
            pids["api"] = stack.enter_context(apart.running())
        if where == BEHIND:
            lower_priority(pids["api"])
        reading = [sys.executable, "-m", "benchmarks.readers", str(operator)]
        readers = stack.enter_context(
            subprocess.Popen(reading, cwd=ROOT, env=apart._environment(), stdout=subprocess.PIPE)
        )
        stack.callback(readers.kill)
        tell(readers, signal.SIGSTOP)
        yield Arrangement(Load(Client(port), PER_SECOND), readers, pids)


async def measured(all_of_them: list[Arrangement], rounds: int, seconds: float) -> None:
    for one in all_of_them:
        for number in range(0, EVENTS, 20):
            await asyncio.gather(*(one.load._client.send(f"old_{number + n}") for n in range(20)))
    for _ in range(rounds):
        for one in all_of_them:
            running = asyncio.create_task(one.load.run())
            for phase in ("without", "with"):
                await one.phase(phase, seconds)
            running.cancel()
            await asyncio.sleep(SETTLE)
    for one in all_of_them:
        one.readers.terminate()
        tell(one.readers, signal.SIGCONT)
        one.pages = int(one.readers.communicate()[0])


def memory(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.partition(":")[0]: int(line.split()[1]) // 1024 for line in lines if line.startswith("Rss")}
    return f"{sum(found.values())} MiB, {found['RssAnon']} of them its own"


def run(server: Postgresql, rounds: int, seconds: float) -> tuple[list[str], list[list[str]], list[str]]:
    """A table with both stores."""
    head = ["store", "the API is in", "p50 ms", "reading", "ratio", "p99 ms", "reading", "ratio", "pages/s"]
    table: list[list[str]] = []
    notes = [
        f"{CALLERS} callers read pages of {PAGE} without a pause, or do not; {PER_SECOND:g} deliveries a second, "
        f"{rounds} turns of {seconds:g} s each; latency counts from when a delivery was due"
    ]
    for store in ("SQLite", "PostgreSQL"):
        with ExitStack() as stack:
            there: dict[str, Arrangement] = {}
            for where in (HERE, APART, BEHIND):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hookledger-bench-"))
                url = f"sqlite:///{folder}/inbox.db" if store == "SQLite" else stack.enter_context(server.database())
                there[where] = stack.enter_context(arranged(where, url))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(measured(list(there.values()), rounds, seconds))
            table += [[store, where, *one.cells()] for where, one in there.items()]
            answers = sum((one.load.statuses for one in there.values()), Counter[int]())
            notes.append(f"{store}: answers {dict(answers)}; memory of the receiver with the API: "
                         f"{memory(there[HERE].pids['receive'])}; without: {memory(there[APART].pids['receive'])}; "
                         f"of the operator's process: {memory(there[APART].pids['api'])}")  # fmt: skip
    return head, table, notes


# ── the callers ──


async def read(port: int, count: Callable[[], object]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET /api/v1/events?limit={PAGE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    while True:
        writer.write(request.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.split()[1] == b"200", head
        await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
        count()


async def call(port: int) -> None:
    """Until SIGTERM; then say how many pages it were."""
    pages: Counter[str] = Counter()
    callers = [asyncio.create_task(read(port, lambda: pages.update(["read"]))) for _ in range(CALLERS)]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [one.cancel() for one in callers])
    await asyncio.gather(*callers, return_exceptions=True)
    print(pages["read"])


if __name__ == "__main__":
    uvloop.run(call(int(sys.argv[1])))
