"""One installation under test: a database, a settings file, and real processes with their logs in files."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hookledger import Inbox
from tests import soak
from tests.crash.app import EFFECTS
from tests.crash.checker import Database, Log, check
from tests.services.forked import Forked
from tests.services.ports import free_port

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
"""Seconds for anything to happen; the machine may be busy. Nothing is asserted about how long it took."""
TOKEN = "a-made-up-token-of-ada"
WORK: dict[str, Any] = {
    "concurrency": 8,
    "lease": "1s",
    "poll": "50ms",
    "shutdown_timeout": "20s",
    "transaction_limit": "700ms",
    "retry": {"attempts": 20, "initial_delay": "50ms", "max_delay": "500ms"},
}


def eventually(condition: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """The condition's value, once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return value


class Process:
    """One process that we started, and what it said."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log_file = log
        self._popen: Forked | subprocess.Popen[bytes]
        if not soak.LONG:
            self._popen = Forked(module, arguments, cwd=ROOT, env=env, stdout=log, stderr=log)
            return
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self._popen.kill()
        self._popen.wait(PATIENCE)

    def freeze(self) -> None:
        self._popen.send_signal(signal.SIGSTOP)
        eventually(lambda: process_state(self.pid) == "T", "the process is stopped")

    def thaw(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._popen.terminate()

    def exit_code(self, seconds: float = PATIENCE) -> int:
        return self._popen.wait(seconds)

    def children(self) -> list[int]:
        return children_of(self.pid)


def children_of(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # each thread has those that it started
    return [int(child) for children in lists for child in children.read_text().split()]


def process_state(pid: int) -> str | None:
    """The letter that ps shows, or None when there is no such process. A zombie is as good as gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else state


class Installation:
    def __init__(self, folder: Path, url: str, **work: Any) -> None:
        self.folder = folder
        self.database = Database(url)
        self.port, self.operator_port = free_port(), free_port()
        self.processes: list[Process] = []
        self.logs: list[Log] = []
        self._settings = folder / "hookledger.toml"
        self._settings.write_text(
            f"[intake]\nport = {self.port}\n[operator]\nport = {self.operator_port}\n[work]\n{_toml(WORK | work)}\n"
        )
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")},
            "HOOKLEDGER_APP": "tests.crash.app:inbox",
            "HOOKLEDGER_CONFIG": str(self._settings),
            "HOOKLEDGER_DATABASE": url,
            "PYTHONUNBUFFERED": "1",
        }

    def give_token(self) -> None:
        """Turn the API on."""
        token = f'tokens = [{{ name = "ada", role = "operator", token = "{TOKEN}" }}]'
        self._settings.write_text(self._settings.read_text().replace("[operator]", f"[operator]\n{token}"))

    def set_intake(self, line: str) -> None:
        """Add a setting to `[intake]`."""
        self._settings.write_text(self._settings.read_text().replace("[intake]", f"[intake]\n{line}"))

    def set(self, line: str) -> None:
        """Put one more line into the settings file, outside every table."""
        self._settings.write_text(f"{line}\n{self._settings.read_text()}")

    def use(self, app: str, **environment: str) -> None:
        """Run this application instead of the usual one."""
        self.environment |= {"HOOKLEDGER_APP": app, **environment}

    def prepare(self) -> None:
        """Hookledger's tables, and the business table that the handlers write to."""
        asyncio.run(Inbox(self.database.url).migrate())
        self.database.rows(EFFECTS)

    # ── processes ──

    def _start(self, name: str, module: str, *arguments: str) -> Process:
        number = sum(process.name == name for process in self.processes) + 1
        log = self.folder / f"{name}-{number}.log"
        process = Process(name, module, arguments, log, self.environment)
        self.processes.append(process)
        return process

    def receive(self, *options: str) -> Process:
        """A receiver that listens."""
        process = self._start("receive", "hookledger", "receive", *options)
        self._await_listener(process)
        return process

    def work(self, *options: str) -> Process:
        """A worker, perhaps not ready yet."""
        return self._start("work", "hookledger", "work", *options)

    def serve(self, *options: str) -> Process:
        """A supervisor whose receiver listens."""
        process = self._start("serve", "hookledger", "serve", *options)
        self._await_listener(process)
        return process

    def _await_listener(self, process: Process) -> None:
        def listens() -> bool:
            assert process.running, f"{process.name} ended: {process.log}"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        eventually(listens, f"{process.name} listens")

    def ready(self) -> bool:
        """What /readyz says."""
        return self.ask_operator("/readyz")[0] == 200

    def ask_operator(self, path: str) -> tuple[int, bytes]:
        """Status and body; 0 where nobody answers."""
        url, token = f"http://127.0.0.1:{self.operator_port}{path}", {"authorization": f"Bearer {TOKEN}"}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=token), timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, http.client.HTTPException):
            return 0, b""

    def end(self) -> None:
        """kill -9 to everything that we started and that still runs; the children of a supervisor follow it."""
        children = [pid for p in self.processes if p.running for pid in p.children()]
        for process in self.processes:
            if process.running:
                process.thaw()
                process.kill()
        eventually(lambda: all(process_state(pid) is None for pid in children), "the children have ended")

    # ── sending ──

    def start_sending(
        self,
        events: Sequence[dict[str, Any]],
        *,
        connections: int = 8,
        times: int = 1,
        pause: float = 0.0,
        deadline: float = PATIENCE,
        module: str = "tests.crash.sender",
    ) -> tuple[Process, Log]:
        """A sender, and the log that it writes."""
        number = len(self.logs) + 1
        plan, log = self.folder / f"plan-{number}.json", Log(self.folder / f"answers-{number}.jsonl")
        self.logs.append(log)
        settings = {"port": self.port, "connections": connections, "times": times, "pause": pause}
        plan.write_text(json.dumps({**settings, "deadline": deadline, "seed": number, "events": list(events)}))
        process = self._start("send", module, str(plan), str(log.path))
        return process, log

    def send(self, *events: dict[str, Any], **options: Any) -> Log:
        """Send these, and return when each was acked."""
        process, log = self.start_sending(events, **options)
        assert process.exit_code() == 0, f"not everything was acked: {log.statuses()}"
        return log

    # ── the end ──

    def drain(self, seconds: float = PATIENCE) -> None:
        """Until no event waits or is worked on."""
        eventually(lambda: self.database.unfinished() == 0, "every event is in a final state", seconds)

    def check(self) -> None:
        check(self.database, self.logs)


def event(name: str, kind: str = "order", source: str = "stripe", **do: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "source": source, "do": do}


def events(count: int, *kinds: str, prefix: str = "evt") -> list[dict[str, Any]]:
    """Distinct events over all sources and the given types in turn."""
    sources = ("stripe", "github", "standard")
    kinds = kinds or ("order",)
    return [event(f"{prefix}_{n:05}", kinds[n % len(kinds)], sources[n // len(kinds) % 3]) for n in range(count)]


def _toml(values: dict[str, Any]) -> str:
    return "\n".join(f"{name} = {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value)
